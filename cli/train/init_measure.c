/* How long the training takes that 'engine init' has written: this program trains some of its steps, on the devices that
 * the training will have, in a folder that is removed afterwards. */
#include "cli/train/init.h"

#include "cli/advise/step_source.h"
#include "engine/base/file.h"
#include "engine/settings/run_config.h"
#include "engine/train/stop.h"

#include <math.h>

static const double LIMIT = 8; /* seconds, after which measuring is given up */

/* A second of steps, and an evaluation of few samples, with which every run ends. Of a run that takes longer, the steps
 * that it has made until then. */
static enum error measure_in(const struct init_length *l, const char *dir, const char *path, struct pool *pool,
                             struct run_result *out) {
    struct cli_config c = {.path = path};
    struct run_settings s;
    const char *run = pool_printf(pool, "%s/run", dir);
    const char *sets[] = {"train=1s", "schedule=constant", "log.trace=off",
                          pool_printf(pool, "data.val=%d", l->val < 64 ? (int)l->val : 64)};
    TRY(run ? step_source_short(1, run, pool, &c) : ERR_MEMORY);
    TRY(cli_set_all(&c, sets, sizeof sets / sizeof *sets));
    enum error err = step_source_read(&c, &s);
    const struct trial t = {ENGINE_ITSELF, &s, LIMIT};
    if (err == ERR_NONE) err = trial_run(&t, pool, out);
    if (err == ERR_TIMEOUT) {
        *out = (struct run_result){.event = ""};
        err = run_result_metrics(run, true, pool, out);
        if (err != ERR_NONE || out->nsteps == 0) err = FAIL(ERR_TIMEOUT, "no step ended within %g s", LIMIT);
    }
    out->devices = s.config.devices.count;
    run_settings_free(&s);
    return err;
}

/* The first step, which touches all memory for the first time, counts only where it is the only one. A sample of an
 * evaluation takes a third of a sample of a step, since it has no backward. */
static double init_seconds_of(const struct run_result *r, const struct init_length *l) {
    int64_t n;
    double step = run_result_step_ms(r, r->nsteps > 1, &n) * 1e-3;
    return step * ((double)l->steps + (double)l->evaluations * (double)l->val / (double)l->batch / 3);
}

static const char *init_words_of(double seconds, char out[64]) {
    if (seconds < 50) return "less than a minute";
    if (seconds < 100) return "about a minute";
    if (seconds < 7200)
        snprintf(out, 64, "about %.0f minutes", ceil(seconds / 60));
    else
        snprintf(out, 64, "about %.1f hours", seconds / 3600);
    return out;
}

static enum error length_measure(const struct init_length *l, const char *path, struct pool *pool,
                                 struct run_result *out) {
    char *dir;
    stop_install();
    TRY(file_make_temporary("init", pool, &dir));
    return step_source_clear(measure_in(l, dir, path, pool, out), dir);
}

void init_measure(const struct init_length *length, const char *path, struct pool *pool) {
    struct run_result r;
    char memory[64];
    if (length_measure(length, path, pool, &r) != ERR_NONE) {
        printf("time: not measured: %s\n", error_message());
        return;
    }
    printf("time: %s on this machine's ", init_words_of(init_seconds_of(&r, length), memory));
    printf(r.devices == 1 ? "only device\n" : "%lld devices\n", (long long)r.devices);
}
