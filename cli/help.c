/* engine help [COMMAND | KEY]: commands, and every key of the configuration from the schema. */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static int overview(void) {
    printf("engine: train a network on several devices, and see which way of sharing gradients is "
           "better, and why\n\n"
           "usage: engine COMMAND [ARGUMENTS]\n\n");
    int n;
    const struct command *const *all = command_list(&n);
    for (int i = 0; i < n; i++) printf("  %-10s %s\n", all[i]->name, all[i]->summary);
    printf("\n  engine run                     trains on generated data; needs no file\n"
           "  engine help COMMAND            what a command takes\n"
           "  engine help config             the keys of a configuration\n"
           "  engine help optimizer.momentum what a key means\n\n"
           "exit codes: 0 done, 1 result not acceptable, 64 usage, 65 bad data or checkpoint, 66 "
           "input missing, 69 device\n"
           "unavailable, 70 bug, 71 out of memory, 73 cannot create, 74 input or output, 75 a rank "
           "was lost, 78 bad\n"
           "configuration, 130/143 stopped by a signal after saving\n");
    return 0;
}

/* wanted: it is an error when there is no such key. */
static int about_key(const char *key, bool wanted, const char *title) {
    struct pool *pool;
    enum error err = pool_create(&pool);
    if (err != ERR_NONE) return cli_fail(err);
    char *text = config_help(&run_schema, key, pool);
    int code = 0;
    if (text)
        printf("%s%s", title, text);
    else if (wanted)
        code = cli_fail(ERR_USAGE);
    pool_free(pool);
    return code;
}

/* Some names are a command's and a key's: both are told. */
static int help_run(int argc, char **argv) {
    if (argc < 2) return overview();
    const char *topic = argv[1];
    const struct command *c = command_find(topic);
    bool whole = !strcmp(topic, "config");
    if (whole && argc > 2) return about_key(argv[2], true, "");
    if (c) printf("usage: engine %s %s\n\n%s\n%s", c->name, c->arguments, c->summary, c->help);
    if (whole) return about_key("", true, "\nKeys:\n");
    return about_key(topic, !c, c ? "\nand as a key of the configuration:\n" : "");
}

const struct command command_help = {
    .name = "help",
    .arguments = "[COMMAND | KEY]",
    .summary = "what a command takes, what a key of the configuration means",
    .help = "",
    .run = help_run,
};
