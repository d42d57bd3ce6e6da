/* The step that 'engine simulate' replays: a run's, or one that is measured now. */
#include "cli/simulate.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "modes/modes.h"

#include <string.h>

/* ---- measured now --------------------------------------------------------------------------- */

/* One device does all shards of the configuration, a few steps long. */
static enum error set_alone(const struct run_config *c, struct pool *pool, const char *dir, struct cli_config *out) {
    bool units = device_find(c->devices.kind)->units != NULL;
    const char *const texts[] = {pool_printf(pool, "devices=%s:%d", c->devices.kind, units ? c->devices.unit[0] : 1),
                                 pool_printf(pool, "batch.shards=%lld", (long long)c->batch.shards),
                                 pool_printf(pool, "threads=%lld", (long long)c->threads),
                                 pool_printf(pool, "log.dir=%s", dir),
                                 "log.every=1st",
                                 "log.trace=11..40st",
                                 "mode=single",
                                 "train=40st",
                                 "eval.every=off",
                                 "checkpoint.every=off",
                                 "checkpoint.best=off",
                                 "checkpoint.resume=never",
                                 "optimizer.shard=false",
                                 "comm={}",
                                 "dp={}",
                                 "run={}",
                                 "sync_batchnorm=false"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (!texts[i]) return ERR_MEMORY;
        TRY(cli_set(out, texts[i]));
    }
    return ERR_NONE;
}

static enum error train_alone(struct run_settings *s, const char *dir) {
    int code = 0;
    struct job job = {.settings = s,
                      .mode = s->mode,
                      .process = {.rank = -1, .meeting_fd = -1},
                      .processes = 1,
                      .quiet = true,
                      .console_out = -1,
                      .console_err = 2};
    enum error err = cli_train(&job, dir, &code);
    if (err != ERR_NONE) cli_fail(err);
    return err == ERR_NONE && code ? FAIL(ERR_RESULT, "the measurement ended with %d", code) : err;
}

/* What is wrong with a trace is told, and the run's other numbers are used. */
static enum error read_run(struct simulate_source *s, const char *dir) {
    TRY(run_result_read(dir, s->pool, &s->result));
    if (step_trace_read(dir, s->pool, &s->trace) == ERR_NONE) return ERR_NONE;
    log_warn("the run's trace is not used: %s", error_message());
    s->trace = (struct step_trace){0};
    return ERR_NONE;
}

static enum error measure_in(const struct simulate_options *o, struct simulate_source *s, const char *dir) {
    struct cli_config c = o->config;
    struct run_settings alone;
    TRY(set_alone(&s->settings.config, s->pool, dir, &c));
    enum error err = cli_load(&c, &alone);
    if (err == ERR_NONE) err = train_alone(&alone, dir);
    run_settings_free(&alone);
    if (err != ERR_NONE) return err;
    err = read_run(s, dir);
    if (err != ERR_NONE) cli_fail(err);
    return err;
}

static enum error measure(const struct simulate_options *o, struct simulate_source *s) {
    char *dir;
    enum error err = file_make_temporary("simulate", s->pool, &dir);
    if (err != ERR_NONE) {
        cli_fail(err);
        return err;
    }
    err = measure_in(o, s, dir);
    s->measured_here = true;
    if (file_remove_tree(dir) != ERR_NONE) log_warn("%s", error_message());
    return err;
}

/* ---- the network ---------------------------------------------------------------------------- */

static enum error read_network(const struct simulate_options *o, struct simulate_source *s) {
    struct config_errors *e;
    enum error err = config_errors_create(&e);
    if (err == ERR_NONE) {
        const struct run_config *c = &s->settings.config;
        err = planned_open(c, c->devices.kind, e, &s->network);
        char *text = config_errors_count(e) ? config_errors_text(e, s->pool) : NULL;
        if (text) fputs(text, stderr);
        config_errors_free(e);
        if (text) return err;
    }
    int cores = s->measured_here ? 0 : (int)o->cores;
    if (err == ERR_NONE)
        err = measured_read(&s->result, &s->settings.config, s->network.model, s->network.plan, cores, o->quantile,
                            s->pool, &s->step);
    if (err == ERR_NONE) measured_take_trace(&s->step, &s->trace);
    if (err != ERR_NONE) cli_fail(err);
    return err;
}

/* ---- both ----------------------------------------------------------------------------------- */

enum error simulate_source_open(const struct simulate_options *o, struct simulate_source *out) {
    struct cli_config c = o->config;
    const char *run_dir = NULL;
    *out = (struct simulate_source){0};
    enum error err = pool_create(&out->pool);
    if (err == ERR_NONE && o->path) err = cli_run_dir(o->path, out->pool, &c.path, &run_dir);
    if (err == ERR_NONE && run_dir) err = read_run(out, run_dir);
    if (err != ERR_NONE) {
        cli_fail(err);
        return err;
    }
    TRY(cli_load(&c, &out->settings));
    struct simulate_options with = *o;
    with.config.path = c.path;
    if (!run_dir) TRY(measure(&with, out));
    return read_network(o, out);
}

void simulate_source_close(struct simulate_source *s) {
    planned_close(&s->network);
    run_settings_free(&s->settings);
    pool_free(s->pool);
}
