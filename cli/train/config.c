/* engine config: the configuration with every default filled in and every 'auto' decided, each value with where it came from;
 * or, with --check, everything that is wrong with configurations, at once, without running them. */
#include "cli/line/cli.h"

#include "cli/line/load.h"
#include "engine/base/text.h"
#include "engine/optim/schedule.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"
#include "engine/train/job_check.h"

#include <stdio.h>

struct config_options {
    struct cli_config config;
    struct option_list paths;
    bool check;
};
#define OPTIONS_STRUCT struct config_options

static enum error config_print(struct run_settings *s) {
    char *text = tree_write(s->tree, true, s->pool);
    if (!text) return ERR_MEMORY;
    fputs(text, stdout);
    return ERR_NONE;
}

static enum error config_check(const char *path, struct run_settings *s) {
    const struct job job = {.settings = s, .mode = s->mode, .process = {.rank = -1}};
    struct job_facts f;
    char n[32], bytes[32], length[48];
    TRY(cli_check(&job, &f));
    if (f.steps == SPAN_ENDLESS)
        snprintf(length, sizeof length, "%g s of steps", s->config.train.length.value);
    else
        snprintf(length, sizeof length, "%lld steps", (long long)f.steps);
    printf("%s ok: %s on %s, %s parameters (%s of gradients), %s of %lld samples, %lld an epoch\n",
           path ? path : "(no file)", s->config.mode, s->config.devices_text, text_of_count(f.parameters, n),
           text_of_bytes((double)f.parameters * 4, bytes), length, (long long)s->config.batch.size,
           (long long)f.per_epoch);
    return ERR_NONE;
}

static int config_command(const struct cli *cli) {
    struct config_options *o = cli->options;
    int code = 0;
    if (o->paths.count > 1 && !o->check)
        return cli_usage(cli, "one configuration at a time, got '%s' and '%s'", o->paths.of[0], o->paths.of[1]);
    for (int i = 0; i < o->paths.count || i == 0; i++) {
        struct run_settings s;
        o->config.path = o->paths.count ? o->paths.of[i] : NULL;
        enum error err = cli_load(&o->config, &s);
        if (err == ERR_NONE) err = o->check ? config_check(o->config.path, &s) : config_print(&s);
        run_settings_free(&s);
        if (err != ERR_NONE && code == 0) code = error_exit_code(err);
    }
    return code;
}

static const struct option options[] = {
    {"CONFIG", NULL, NULL, .at = AT(paths), .many = OPTION_LIST},
    {"--check", NULL, "checks each CONFIG, with its data and model, and prints a line instead", CONFIG_BOOL, AT(check)},
    OPTION_SET(config, "changes one key, as in 'engine run'"),
    {0}};

const struct command command_config = {
    .name = "config",
    .also = "check|lint|verify",
    .summary = "prints the resolved configuration, each value with its origin (a valid configuration); or checks it",
    OPTIONS(options),
    .run = config_command,
};
