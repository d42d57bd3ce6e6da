/* When a rank traces: log.trace's range of steps, what is recorded in them beside what the mode puts there, and the
 * files after it. What an earlier run of the folder has left is removed first. */
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct tracing {
    int64_t first, last;
    struct trace_clock clock;
    enum { AHEAD, UNDER_WAY, BEHIND } range;
    bool written; /* or there is nothing to write: the rank compares clocks with the others all the same */
};

/* ---- layers ---- */

/* Layers are seen on devices in step with the host: others would have to be waited for after each. */
static bool sees_layers(const struct trainer *t) {
    return t->graph && !device_runtime(t->device)->asynchronous;
}

static void on_layer(void *user, int step, bool backward, bool done) {
    const struct trainer *t = user;
    bool direction;
    (void)step;
    trace_layer(t->trace, done ? graph_where(t->graph, &direction) : NULL, backward);
}

/* ---- the range ---- */

/* Events of a step, rather too many: what its pieces, its layers, its buckets and those that it serves leave. */
static void count_events(const struct trainer *t, int64_t events[TRACE_WRITERS]) {
    int64_t pieces = t->feed.nshards * t->config->batch.accumulate, layers = 0;
    int64_t served = t->standing.worker < 0 ? t->standing.workers : 0;
    struct graph_info info;
    if (sees_layers(t)) graph_info(t->graph, &info), layers = info.ops;
    int64_t passes = t->config->sync_batchnorm ? 6 : t->config->recompute != 1 ? 3 : 2;
    events[2] = 16 + (2 + 4 * pieces) * t->standing.cuts_most; /* each waited for, too */
    events[0] =
        64 + pieces * (12 + passes * layers) + t->model->nparams + 8 * (t->standing.cuts_most + served) + events[2];
    events[1] = 16 + 4 * (t->standing.cuts_most + served + pieces);
}

/* False: it is too late, or too early for this run. */
static bool lies_ahead(const struct trainer *t, int64_t first, int64_t last) {
    if (first <= t->steps && last > t->at.step) return true;
    log_warn("log.trace: steps %lld to %lld are none of this run's, which are %lld to %lld", (long long)first,
             (long long)last, (long long)t->at.step + 1, (long long)t->steps);
    return false;
}

/* What a run of this folder has left before. */
static enum error trace_clear(const struct trainer *t) {
    struct pool *pool;
    TRY(pool_create(&pool));
    const char *folder = pool_printf(pool, "%s/trace", t->job->run_dir),
               *merged = pool_printf(pool, "%s/trace.json", t->job->run_dir);
    enum error err = folder && merged ? file_remove_tree(folder) : ERR_MEMORY;
    if (err == ERR_NONE) err = file_remove_tree(merged);
    pool_free(pool);
    return err;
}

/* Other nodes have their own folders, with what this rank has left there before. */
static enum error clear_own(const struct trainer *t) {
    struct pool *pool;
    TRY(pool_create(&pool));
    const char *path = pool_printf(pool, "%s/trace/rank%d.bin", t->job->run_dir, t->rank);
    enum error err = path ? ERR_NONE : ERR_MEMORY;
    if (path && unlink(path) != 0 && errno != ENOENT)
        err = FAIL(ERR_IO, "cannot remove '%s': %s", path, strerror(errno));
    pool_free(pool);
    return err;
}

bool tracing_range(const struct trainer *t) {
    const struct log_config *log = &t->config->log;
    if (log->trace_first == 0 || t->job->task != JOB_TRAIN || !t->job->run_dir) return false;
    if (!lies_ahead(t, log->trace_first, log->trace_last)) return false;
    if (trace_clear(t) == ERR_NONE) return true;
    log_warn("no trace: %s", error_message());
    return false;
}

static enum error trace_prepare(struct trainer *t) {
    int64_t events[TRACE_WRITERS], steps = t->tracing->written ? 0 : t->tracing->last - t->tracing->first + 2;
    count_events(t, events);
    if (steps) TRY(clear_own(t));
    return trace_create(steps, events, &t->trace);
}

enum error tracing_open(struct trainer *t, int64_t first, int64_t last) {
    if (first == 0) return ERR_NONE;
    struct tracing *g = t->tracing = memory_new(sizeof *t->tracing);
    if (!g) return ERR_MEMORY;
    g->first = first;
    g->last = last < t->steps ? last : t->steps;
    g->written = !t->job->run_dir; /* a launcher's ranks but the first have none */
    if (trace_prepare(t) == ERR_NONE) return ERR_NONE;
    log_warn("no trace of this rank: %s", error_message());
    g->written = true;
    trace_free(t->trace);
    t->trace = NULL;
    return trace_prepare(t);
}

void tracing_close(struct trainer *t) {
    trace_free(t->trace);
    memory_free(t->tracing);
    t->trace = NULL;
    t->tracing = NULL;
}

/* ---- writing ---- */

static enum error list_buckets(const struct standing *s, struct pool *pool, struct trace_rank *r) {
    r->nbuckets = s->ncuts;
    if (!(r->bucket = pool_alloc(pool, (size_t)s->ncuts * sizeof *r->bucket))) return ERR_MEMORY;
    for (int b = 0; b < s->ncuts; b++)
        r->bucket[b] = (s->cuts[b] - (b ? s->cuts[b - 1] : s->part ? s->part->begin : 0)) * (int64_t)sizeof(float);
    return ERR_NONE;
}

static enum error write_in(const struct trainer *t, struct pool *pool) {
    struct trace_rank r = {.rank = t->rank,
                           .size = t->standing.ranks,
                           .worker = t->standing.worker,
                           .accel = device_runtime(t->device)->asynchronous,
                           .serves = t->rank == 0 && t->config->sharing.plan.update == UPDATE_BY_ROOT,
                           .first = t->tracing->first,
                           .last = t->tracing->last,
                           .clock = t->tracing->clock};
    const char *folder = pool_printf(pool, "%s/trace", t->job->run_dir),
               *path = pool_printf(pool, "%s/rank%d.bin", folder, t->rank);
    snprintf(r.mode, sizeof r.mode, "%s", t->config->mode);
    snprintf(r.run_id, sizeof r.run_id, "%s", t->run_id);
    (void)gethostname(r.host, sizeof r.host - 1);
    if (!folder || !path) return ERR_MEMORY;
    TRY(list_buckets(&t->standing, pool, &r));
    TRY(file_make_folders(folder));
    return trace_write(t->trace, &r, path);
}

static void write_file(struct trainer *t) {
    struct pool *pool;
    long long dropped = trace_dropped(t->trace);
    t->tracing->written = true;
    enum error err = pool_create(&pool);
    if (err == ERR_NONE) {
        err = write_in(t, pool);
        pool_free(pool);
    }
    if (err != ERR_NONE) log_warn("no trace of this rank: %s", error_message());
    if (err == ERR_NONE && dropped)
        log_warn("the trace has no room for %lld events more\ntrace fewer steps: log.trace", dropped);
}

void tracing_finish(struct trainer *t) {
    if (t->trace && trace_turn(t->trace, false) && !t->tracing->written) write_file(t);
}

/* ---- steps ---- */

enum error tracing_step_begin(struct trainer *t) {
    struct tracing *g = t->tracing;
    if (!g) return ERR_NONE;
    int64_t step = t->at.step + 1;
    const struct step_ops *ops = t->job->mode->step;
    if (g->range == UNDER_WAY && step > g->last) {
        tracing_finish(t);
        g->range = BEHIND;
        TRY(ops->watch(t->mode, NULL));
    } else if (g->range == AHEAD && step >= g->first) {
        TRY(ops->watch(t->mode, &g->clock));
        timers_anchor(t);
        g->range = UNDER_WAY;
        trace_turn(t->trace, !g->written);
    }
    trace_step(t->trace, step);
    if (trace_is_on(t->trace) && sees_layers(t)) graph_watch(t->graph, on_layer, t);
    return ERR_NONE;
}

bool tracing_has(const struct trainer *t, int64_t step) {
    return t->tracing && step >= t->tracing->first && step <= t->tracing->last;
}

void tracing_step_end(struct trainer *t, int64_t began) {
    if (!t->trace) return;
    trace_span(t->trace, TRACE_STEP, TRACE_COMPUTE, began, clock_ns());
    if (t->graph) graph_watch(t->graph, NULL, NULL);
}

int tracing_conclude(struct trainer *t) {
    struct pool *pool;
    struct trace_rank *ranks;
    int n = 0;
    if (!t->trace || t->rank > 0 || pool_create(&pool) != ERR_NONE) return 0;
    const char *path = pool_printf(pool, "%s/trace.json", t->job->run_dir);
    enum error err = path ? trace_read_all(t->job->run_dir, pool, &ranks, &n) : ERR_MEMORY;
    if (err == ERR_NONE && n > 0) err = trace_merge(ranks, n, pool, path);
    if (err != ERR_NONE) log_warn("no trace.json: %s", error_message());
    pool_free(pool);
    return err == ERR_NONE ? n : 0;
}
