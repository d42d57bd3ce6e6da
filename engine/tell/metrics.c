/* What a run measures, step by step: step times are kept for the percentiles, everything goes to
 * the sinks that the configuration names. Sinks are flushed when something happens, and a few
 * times a second for those who follow; a full disk costs a sink, never the run. */
#include "engine/tell/tell.h"

#include "engine/settings/job.h"
#include "engine/settings/run_config.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/quantile.h"

#include <math.h>
#include <stdlib.h>

enum { KEEP_TIMES = 1 << 16, FLUSH_NS = 250000000 }; /* of the last steps, for the percentiles */
struct metrics {
    void *sink[SINK_KINDS]; /* by kind; NULL: not asked for, or lost */
    int64_t count, capacity, flushed;
    double *times;
    struct usage usage;
};

/* jsonl is what others read the run by, and needs no asking. */
static bool metrics_is_wanted(const struct config_list *sinks, int kind) {
    bool wanted = kind == SINK_jsonl;
    for (int i = 0; i < sinks->count; i++) wanted |= ((const int *)sinks->items)[i] == kind;
    return wanted;
}

enum error metrics_open(const struct job *job, int64_t step, int64_t steps, struct metrics **out) {
    const struct config_list *sinks = &job->settings->config.log.sinks;
    const struct sink_place place = {job->run_dir, step, job->settings->tree};
    struct metrics *m = calloc(1, sizeof *m);
    if (!m) return FAIL(ERR_MEMORY, "no memory for metrics");
    m->capacity = steps < KEEP_TIMES ? (steps > 0 ? steps : 1) : KEEP_TIMES;
    m->times = malloc((size_t)m->capacity * sizeof *m->times);
    enum error err = m->times ? ERR_NONE : FAIL(ERR_MEMORY, "no memory for metrics");
    for (int kind = 0; kind < SINK_KINDS && err == ERR_NONE; kind++)
        if (metrics_is_wanted(sinks, kind)) err = sink_find(kind)->open(&place, &m->sink[kind]);
    if (err != ERR_NONE)
        metrics_close(m);
    else
        usage_begin(&m->usage, USAGE_POWERCAP), *out = m;
    return err;
}

/* Notes a sink's error: of a sink that has failed nothing is used any more. */
static void sink_follow(struct metrics *m, int kind, enum error err) {
    if (err == ERR_NONE) return;
    log_warn("%s: the run continues without it", error_message());
    sink_find(kind)->close(m->sink[kind]);
    m->sink[kind] = NULL;
}

static void sinks_flush(struct metrics *m, bool settled) {
    for (int i = 0; i < SINK_KINDS; i++)
        if (m->sink[i]) sink_follow(m, i, sink_find(i)->flush(m->sink[i], settled));
}

void metrics_step(struct metrics *m, const struct step_record *r) {
    struct step_record told = *r;
    int64_t now = clock_ns();
    bool due = now - m->flushed >= FLUSH_NS;
    m->times[m->count++ % m->capacity] = r->ms;
    if (due) usage_take(&m->usage, &told.usage);
    for (int i = 0; i < SINK_KINDS; i++)
        if (m->sink[i] && sink_find(i)->step) sink_follow(m, i, sink_find(i)->step(m->sink[i], &told));
    if (!due) return;
    m->flushed = now;
    sinks_flush(m, false);
}

void metrics_val(struct metrics *m, int64_t step, const struct val_result *v) {
    for (int i = 0; i < SINK_KINDS; i++)
        if (m->sink[i] && sink_find(i)->val) sink_follow(m, i, sink_find(i)->val(m->sink[i], step, v));
    sinks_flush(m, false);
}

static void sinks_tell(struct metrics *m, const struct sink_event *e) {
    for (int i = 0; i < SINK_KINDS; i++)
        if (m->sink[i] && sink_find(i)->event) sink_follow(m, i, sink_find(i)->event(m->sink[i], e));
    sinks_flush(m, false);
}

void metrics_start(struct metrics *m, const struct sink_event *e) {
    struct sink_event started = *e;
    started.name = "started";
    sinks_tell(m, &started);
}

void metrics_event(struct metrics *m, int64_t step, const char *event, const char *text) {
    sinks_tell(m, &(struct sink_event){.step = step, .name = event, .text = text});
}

void metrics_devices(struct metrics *m, int64_t step, const struct job_change *change, double seconds) {
    sinks_tell(m, &(struct sink_event){.step = step, .name = "devices", .change = change, .seconds = seconds});
}

void metrics_flush(struct metrics *m) {
    sinks_flush(m, true);
}

void metrics_percentiles(struct metrics *m, double *p50, double *p95) {
    int64_t n = m->count < m->capacity ? m->count : m->capacity;
    *p50 = *p95 = (double)NAN;
    if (n == 0) return;
    *p50 = quantile_of(m->times, n, 0.5);
    *p95 = quantile_of(m->times, n, 0.95);
}

void metrics_close(struct metrics *m) {
    if (!m) return;
    sinks_flush(m, true);
    for (int i = 0; i < SINK_KINDS; i++)
        if (m->sink[i]) sink_find(i)->close(m->sink[i]);
    free(m->times);
    free(m);
}
