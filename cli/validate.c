/* engine validate: everything that is wrong with configurations, at once, without running them. */
#include "cli/cli.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_validate;

static enum error check_one(struct cli_config *c) {
    struct run_settings s;
    enum error err = cli_load(c, &s);
    struct job job = {.settings = &s, .process = {.rank = -1}};
    struct job_facts f;
    if (err == ERR_NONE) err = cli_check(&job, &f);
    if (err == ERR_NONE) {
        char n[32], bytes[32];
        printf("%s ok: %s on %s, %s parameters (%s of gradients), %lld steps of %lld samples, %lld "
               "an epoch\n",
               c->path ? c->path : "(no file)", s.config.mode, s.config.devices_text,
               text_of_count(f.parameters, n), text_of_bytes((double)f.parameters * 4, bytes),
               (long long)f.steps, (long long)s.config.batch.size, (long long)f.per_epoch);
    }
    run_settings_free(&s);
    return err;
}

static int validate_run(int argc, char **argv) {
    struct cli_config c = {0};
    const char *paths[256];
    int npaths = 0, code = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--set")) {
            if (++i == argc) return cli_usage(&command_validate, "--set needs KEY=VALUE");
            if (cli_set(&c, argv[i]) != ERR_NONE) return cli_fail(ERR_USAGE);
        } else if (argv[i][0] == '-' && argv[i][1])
            return cli_usage(&command_validate, "unknown option '%s'", argv[i]);
        else if (npaths < 256)
            paths[npaths++] = argv[i];
    }
    for (int i = 0; i < npaths || i == 0; i++) {
        c.path = npaths ? paths[i] : NULL;
        enum error err = check_one(&c);
        if (err != ERR_NONE && code == 0) code = error_exit_code(err);
    }
    return code;
}

const struct command command_validate = {
    .name = "validate",
    .arguments = "[CONFIG...] [--set KEY=VALUE]...",
    .summary = "checks configurations (data and model included) without running them",
    .help = "  --set KEY=VALUE  changes one key, as in 'engine run'\n",
    .run = validate_run,
};
