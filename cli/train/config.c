/* engine config: the configuration with every default filled in and every 'auto' decided, each
 * value with where it came from. */
#include "cli/line/cli.h"

#include <stdio.h>
#include <string.h>

struct options {
    struct cli_config config;
};

static int run(const struct cli *cli) {
    const struct options *o = cli->options;
    struct run_settings s;
    enum error err = cli_load(&o->config, &s);
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

static const struct option options[] = {{"CONFIG", NULL, NULL, CONFIG_STRING, AT(config.path), .one = "configuration"},
                                        OPTION_SET(config, "changes one key, as in 'engine run'"),
                                        {0}};

const struct command command_config = {
    .name = "config",
    .summary = "prints the resolved configuration, each value with its origin; the output is a valid configuration",
    OPTIONS(options),
    .run = run,
};
