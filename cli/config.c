/* engine config: the configuration with every default filled in and every 'auto' decided, each
 * value with where it came from. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_config;

static int config_run(int argc, char **argv) {
    struct cli_config c = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--set")) {
            if (++i == argc) return cli_usage(&command_config, "--set needs KEY=VALUE");
            if (cli_set(&c, argv[i]) != ERR_NONE) return cli_fail(ERR_USAGE);
        } else if (argv[i][0] == '-' && argv[i][1])
            return cli_usage(&command_config, "unknown option '%s'", argv[i]);
        else if (c.path)
            return cli_usage(&command_config, "one configuration at a time, got '%s' and '%s'",
                             c.path, argv[i]);
        else
            c.path = argv[i];
    }
    struct run_settings s;
    enum error err = cli_load(&c, &s);
    if (err == ERR_NONE) {
        char *text = tree_write(s.tree, true, s.pool);
        if (text)
            fputs(text, stdout);
        else
            err = ERR_MEMORY;
    }
    run_settings_free(&s);
    return error_exit_code(err);
}

const struct command command_config = {
    .name = "config",
    .arguments = "[CONFIG] [--set KEY=VALUE]...",
    .summary =
        "prints the resolved configuration, each value with its origin; it can be run as it is",
    .help = "  --set KEY=VALUE  changes one key, as in 'engine run'\n",
    .run = config_run,
};
