#include "cli/line/load.h"

#include "cli/line/end.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/optim/schedule.h"
#include "engine/settings/run_config.h"
#include "engine/train/job_check.h"
#include "modes/modes.h"
#include "transport/algo/algo.h"
#include "transport/launch/launcher.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum error cli_set(struct cli_config *c, const char *assignment) {
    if (!assignment) return ERR_MEMORY;
    if (c->nsets == CLI_SETS) return FAIL(ERR_USAGE, "more than %d --set options", CLI_SETS);
    c->sets[c->nsets++] = assignment;
    return ERR_NONE;
}

enum error cli_set_all(struct cli_config *c, const char *const *assignments, size_t n) {
    for (size_t i = 0; i < n; i++) TRY(cli_set(c, assignments[i]));
    return ERR_NONE;
}

enum error cli_set_first(struct cli_config *c, const char *assignment) {
    TRY(cli_set(c, assignment));
    memmove(c->sets + 1, c->sets, (size_t)(c->nsets - 1) * sizeof *c->sets);
    c->sets[0] = assignment;
    return ERR_NONE;
}

enum error cli_read(const struct cli_config *c, struct run_settings *out, char **report) {
    const char *path = NULL, *run_dir;
    struct pool *pool;
    int n;
    *report = NULL;
    *out = (struct run_settings){0};
    TRY(pool_create(&pool));
    enum error err = c->path ? cli_run_dir(c->path, pool, &path, &run_dir) : ERR_NONE;
    const struct run_ask ask = {path, c->sets, c->nsets, mode_kinds(&n), algo_names(), c->launched, c->asks};
    if (err == ERR_NONE) err = run_settings_load(&ask, out, report);
    pool_free(pool);
    return err;
}

/* "lr=0.1" where a configuration is looked for. */
static enum error load_check_path(const struct cli_config *c, struct pool *pool) {
    struct config_place place;
    const char *equals = c->path ? strchr(c->path, '=') : NULL, *example = c->path;
    if (!equals || file_exists(c->path)) return ERR_NONE;
    char *key = pool_strndup(pool, c->path, (size_t)(equals - c->path));
    if (!key) return ERR_MEMORY;
    const struct config_sought sought = {key, equals + 1, .by_name = true};
    if (config_find(&run_schema, &sought, pool, &place) && *place.example) example = place.example;
    return FAIL(ERR_USAGE, "no file '%s'\na key is set by --set %s", c->path, example);
}

enum error cli_load(const struct cli_config *c, struct run_settings *out) {
    char *report;
    struct pool *pool;
    *out = (struct run_settings){0};
    TRY(pool_create(&pool));
    enum error err = load_check_path(c, pool);
    pool_free(pool);
    if (err != ERR_NONE) return cli_fail(err), err;
    err = cli_read(c, out, &report);
    if (err == ERR_NONE) return err;
    (void)cli_reported(err, report);
    if (report && strstr(report, "unknown key 'base'"))
        fprintf(stderr, "hint: with a 'base' this is an experiment: engine compare %s\n", c->path);
    return err;
}

char *cli_as_yaml(const char *text, struct pool *pool) {
    struct node node = {.kind = NODE_SCALAR, .text = text};
    char *out = tree_write(&node, false, pool);
    if (out) out[strcspn(out, "\n")] = '\0';
    return out;
}

struct run_launched cli_launched(struct launcher *l) {
    bool found;
    if (launcher_find(NULL, l, &found) != ERR_NONE) {
        const char *hint = error_hint();
        snprintf(l->variables, sizeof l->variables, "%s%s%s", error_message(), *hint ? "\n" : "", hint);
        return (struct run_launched){.local = -1, .problem = l->variables};
    }
    if (!found) return (struct run_launched){.local = -1};
    return (struct run_launched){.by = l->name,
                                 .variables = l->variables,
                                 .rank = l->rank,
                                 .size = l->size,
                                 .local = l->local,
                                 .locals = l->locals,
                                 .master = l->master,
                                 .job = l->job};
}

enum error cli_check(const struct job *job, struct job_facts *facts) {
    struct config_errors *errors;
    TRY(config_errors_create(&errors));
    enum error err = job_check(job, errors, facts);
    if (config_errors_count(errors) > 0) {
        char *text = config_errors_text(errors, job->settings->pool);
        if (text) fputs(text, stderr);
    } else if (err != ERR_NONE)
        cli_fail(err);
    config_errors_free(errors);
    if (err != ERR_NONE) return err;
    int64_t warmup = schedule_warmup(&job->settings->config.schedule, facts->per_epoch);
    if (warmup > facts->steps)
        log_warn("schedule.warmup: %lld steps, and the training has %lld: optimizer.lr is never reached",
                 (long long)warmup, (long long)facts->steps);
    return ERR_NONE;
}

enum error cli_run_dir(const char *path, struct pool *pool, const char **config, const char **run_dir) {
    *config = path;
    *run_dir = NULL;
    if (!file_is_folder(path)) return ERR_NONE;
    *run_dir = path;
    TRY_MEMORY(*config = pool_printf(pool, "%s/resolved.yaml", path));
    if (access(*config, R_OK) == 0) return ERR_NONE;
    return FAIL(ERR_INPUT, "'%s' is a folder without resolved.yaml: not a run directory", path);
}
