/* engine validate: everything that is wrong with configurations, at once, without running them. */
#include "cli/line/cli.h"

#include "engine/base/text.h"
#include "engine/optim/schedule.h"

#include <stdio.h>
#include <string.h>

struct options {
    struct cli_config config;
    struct option_list paths;
};

static enum error check_one(struct cli_config *c) {
    struct run_settings s;
    enum error err = cli_load(c, &s);
    struct job job = {.settings = &s, .process = {.rank = -1}};
    struct job_facts f;
    if (err == ERR_NONE) err = cli_check(&job, &f);
    if (err == ERR_NONE) {
        char n[32], bytes[32], length[48];
        if (f.steps == SPAN_ENDLESS)
            snprintf(length, sizeof length, "%g s of steps", s.config.train.length.value);
        else
            snprintf(length, sizeof length, "%lld steps", (long long)f.steps);
        printf("%s ok: %s on %s, %s parameters (%s of gradients), %s of %lld samples, %lld "
               "an epoch\n",
               c->path ? c->path : "(no file)", s.config.mode, s.config.devices_text, text_of_count(f.parameters, n),
               text_of_bytes((double)f.parameters * 4, bytes), length, (long long)s.config.batch.size,
               (long long)f.per_epoch);
    }
    run_settings_free(&s);
    return err;
}

static int run(const struct cli *cli) {
    struct options *o = cli->options;
    int code = 0;
    for (int i = 0; i < o->paths.count || i == 0; i++) {
        o->config.path = o->paths.count ? o->paths.of[i] : NULL;
        enum error err = check_one(&o->config);
        if (err != ERR_NONE && code == 0) code = error_exit_code(err);
    }
    return code;
}

static const struct option options[] = {{"CONFIG", NULL, NULL, .at = AT(paths), .many = OPTION_LIST},
                                        OPTION_SET(config, "changes one key, as in 'engine run'"),
                                        {0}};

const struct command command_validate = {
    .name = "validate",
    .also = "check|lint|verify",
    .summary = "checks configurations (data and model included) without running them",
    OPTIONS(options),
    .run = run,
};
