#include "cli/advise/step_source.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/train/stop.h"

#include <string.h>

/* ---- measured now --------------------------------------------------------------------------- */

enum error step_source_short(int steps, const char *dir, struct pool *pool, struct cli_config *out) {
    int first = steps / 4 + 1, last = first + 29 < steps ? first + 29 : steps;
    const char *const texts[] = {pool_printf(pool, "log.dir=%s", dir),
                                 pool_printf(pool, "train=%dst", steps),
                                 pool_printf(pool, "log.trace=%d..%dst", first, last),
                                 "log.every=1st",
                                 "log.dashboard=off",
                                 "eval.every=off",
                                 "checkpoint.every=off",
                                 "checkpoint.best=off",
                                 "checkpoint.resume=never",
                                 "run={}"};
    return cli_set_all(out, texts, sizeof texts / sizeof *texts);
}

/* One device does all shards of the configuration. */
static enum error source_set_alone(const struct run_config *c, struct pool *pool, struct cli_config *out) {
    bool units = device_find(c->devices.kind)->units != NULL;
    const char *const texts[] = {
        pool_printf(pool, "devices=%s:%d", c->devices.kind, units ? device_first_unit(&c->devices) : 1),
        pool_printf(pool, "batch.shards=%lld", (long long)c->batch.shards),
        pool_printf(pool, "threads=%lld", (long long)c->threads),
        "mode=single",
        "optimizer.shard=false",
        "comm={}",
        "dp={}",
        "ddp.sync={}",
        "ddp.reduce={}",
        "sync_batchnorm=false"};
    return cli_set_all(out, texts, sizeof texts / sizeof *texts);
}

enum error step_source_read(const struct cli_config *c, struct run_settings *out) {
    char *report;
    enum error err = cli_read(c, out, &report);
    if (err == ERR_NONE || !report) return err;
    if (!strncmp(report, "error: ", 7)) report += 7; /* the program says it again */
    return FAIL(err, "%.*s", (int)strcspn(report, "\n"), report);
}

/* Reads a run and its trace. An error in the trace is a warning: the run's other numbers are used. */
static enum error source_read_run(struct step_source *s, const char *dir) {
    TRY(run_result_read(dir, s->pool, &s->result));
    if (step_trace_read(dir, s->pool, &s->trace) == ERR_NONE) return ERR_NONE;
    log_warn("the run's trace is not used: %s", error_message());
    s->trace = (struct step_trace){0};
    return ERR_NONE;
}

static enum error source_measure_in(const struct step_ask *ask, const struct cli_config *of, struct step_source *s,
                                    const char *dir) {
    struct cli_config c = *of;
    struct run_settings alone;
    TRY(source_set_alone(&s->settings.config, s->pool, &c));
    TRY(step_source_short(ask->steps, dir, s->pool, &c));
    enum error err = step_source_read(&c, &alone);
    const struct trial t = {ENGINE_ITSELF, &alone, ask->limit};
    if (err == ERR_NONE) err = trial_run(&t, s->pool, &s->result);
    run_settings_free(&alone);
    return err == ERR_NONE ? source_read_run(s, dir) : err;
}

enum error step_source_clear(enum error err, const char *dir) {
    char words[ERROR_WORDS];
    error_words(words, sizeof words);
    if (file_remove_tree(dir) != ERR_NONE) log_warn("%s", error_message());
    return err == ERR_NONE ? err : FAIL(err, "%s", words);
}

static enum error step_measure(const struct step_ask *ask, const struct cli_config *of, struct step_source *s) {
    char *dir, *run;
    stop_install();
    TRY(file_make_temporary("measure", s->pool, &dir));
    enum error err = (run = pool_printf(s->pool, "%s/run", dir)) ? source_measure_in(ask, of, s, run) : ERR_MEMORY;
    s->measured_here = true;
    if (err != ERR_NONE) err = error_prefix(err, "measuring a step: ");
    return step_source_clear(err, dir);
}

/* ---- the network ---------------------------------------------------------------------------- */

/* Builds the network of the settings, and reads the measured step with it. */
static enum error read_network(const struct step_ask *ask, struct step_source *s) {
    struct config_errors *e;
    enum error err = config_errors_create(&e);
    if (err == ERR_NONE) {
        const struct run_config *c = &s->settings.config;
        err = planned_open(c, c->devices.kind, e, &s->network);
        char *text = config_errors_count(e) ? config_errors_text(e, s->pool) : NULL;
        s->printed = text && !ask->quiet;
        if (s->printed) fputs(text, stderr);
        config_errors_free(e);
        if (text) return FAIL(ERR_CONFIG, "%.*s", (int)strcspn(text, "\n"), text);
    }
    int cores = s->measured_here ? 0 : ask->cores;
    if (err == ERR_NONE)
        err = measured_read(&(struct measured_ask){&s->result, &s->settings.config, s->network.model, s->network.plan,
                                                   cores, ask->quantile},
                            s->pool, &s->step);
    if (err == ERR_NONE) measured_take_trace(&s->step, &s->trace);
    return err;
}

/* ---- both ----------------------------------------------------------------------------------- */

static enum error source_settings_load(const struct step_ask *ask, const struct cli_config *c, struct step_source *s) {
    if (ask->quiet) return step_source_read(c, &s->settings);
    enum error err = cli_load(c, &s->settings);
    s->printed = err != ERR_NONE;
    return err;
}

enum error step_source_open(const struct step_ask *ask, struct step_source *out) {
    struct cli_config c = *ask->config;
    const char *run_dir = NULL;
    *out = (struct step_source){0};
    TRY(pool_create(&out->pool));
    if (ask->path) TRY(cli_run_dir(ask->path, out->pool, &c.path, &run_dir));
    if (run_dir) TRY(source_read_run(out, run_dir));
    TRY(source_settings_load(ask, &c, out));
    if (!run_dir) TRY(step_measure(ask, &c, out));
    return read_network(ask, out);
}

void step_source_close(struct step_source *s) {
    planned_close(&s->network);
    run_settings_free(&s->settings);
    pool_free(s->pool);
}
