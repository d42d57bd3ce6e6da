/* Recording what a rank does. Each writer has a buffer of its own, and who reads believes its count: an event is
 * whole before it is counted. The communication lane is run by its thread or, at times, by the rank's, but never by
 * both at once. */
#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/device/runtime.h"
#include "engine/tell/trace_file.h"
#include "engine/train/internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct writer {
    struct trace_event *events;
    int64_t room;
    _Atomic int64_t count;
};
struct trace {
    struct trainer *t;
    int64_t first, last;
    _Atomic bool on;
    _Atomic int64_t step, dropped;
    int64_t layer_began; /* where the last one ended, if nothing has come between; 0: the clock has to tell */
    struct trace_clock clock;
    enum { AHEAD, UNDER_WAY, BEHIND } range;
    bool written; /* or there is nothing to write: the rank compares clocks with the others all the same */
    struct writer writers[TRACE_WRITERS];
};

/* ---- recording ---- */

static void record(struct trace *tr, const struct trace_event *e) {
    if (!atomic_load_explicit(&tr->on, memory_order_relaxed)) return;
    struct writer *w = &tr->writers[e->kind == TRACE_CALL && e->lane == TRACE_EXCHANGE];
    int64_t n = atomic_load_explicit(&w->count, memory_order_relaxed);
    if (n == w->room) {
        atomic_fetch_add_explicit(&tr->dropped, 1, memory_order_relaxed);
        return;
    }
    w->events[n] = *e;
    w->events[n].step = atomic_load_explicit(&tr->step, memory_order_relaxed);
    atomic_store_explicit(&w->count, n + 1, memory_order_release);
}

void trace_put(struct trace *tr, const struct trace_event *e) {
    if (!tr) return;
    if (e->lane == TRACE_COMPUTE) tr->layer_began = 0; /* the rank's own thread */
    record(tr, e);
}

void trace_span(struct trace *tr, enum trace_kind kind, enum trace_lane lane, int64_t begin, int64_t end) {
    const struct trace_event e = {
        .begin = begin, .end = end, .bucket = -1, .kind = (uint8_t)kind, .lane = (uint8_t)lane};
    trace_put(tr, &e);
    if (tr && kind == TRACE_FORWARD && lane == TRACE_COMPUTE) tr->layer_began = end;
}

void trace_ready(struct trace *tr, int64_t floats, bool leave) {
    if (!tr) return;
    int64_t now = clock_ns();
    const struct trace_event e = {
        .begin = now, .end = now, .bytes = floats * (int64_t)sizeof(float), .bucket = -1, .kind = TRACE_READY};
    record(tr, &e);
    tr->layer_began = leave ? 0 : now;
}

static void on_layer(void *user, int step, bool backward, bool done) {
    struct trace *tr = user;
    bool direction;
    (void)step;
    if (!done) {
        if (!tr->layer_began) tr->layer_began = clock_ns();
        return;
    }
    int64_t now = clock_ns();
    const struct trace_event e = {.begin = tr->layer_began,
                                  .end = now,
                                  .name = graph_where(tr->t->graph, &direction),
                                  .bucket = -1,
                                  .kind = TRACE_LAYER,
                                  .backward = backward};
    record(tr, &e);
    tr->layer_began = now;
}

/* ---- memory ---- */

/* Layers are seen on devices in step with the host: others would have to be waited for after each. */
static bool sees_layers(const struct trainer *t) {
    return t->graph && !device_runtime(t->device)->asynchronous;
}

/* Events of a step, rather too many: what its pieces, its layers, its buckets and those that it serves leave. */
static int64_t events_of(const struct trainer *t, bool lane) {
    int64_t pieces = t->nshards * t->config->batch.accumulate, layers = 0;
    int64_t n = t->nshards ? sampler_shard_size(&t->sampler, 0, t->shards[0]) : 0;
    int64_t served = t->standing.worker < 0 ? t->standing.workers : 0;
    if (lane) return 16 + 4 * t->standing.ncuts + 2 * served;
    if (sees_layers(t)) layers = graph_steps(t->graph, n / t->config->batch.accumulate);
    int64_t passes = t->config->sync_batchnorm ? 6 : 2;
    return 64 + pieces * (8 + passes * layers) + t->model->nparams + 8 * (t->standing.ncuts + served);
}

/* Written to now, so that no step has to wait for a page. */
static enum error open_writer(const struct trace *tr, struct writer *w, bool lane) {
    int64_t steps = tr->last - tr->first + 2, each = events_of(tr->t, lane);
    void *memory;
    w->room = steps < TRACE_EVENTS_MOST / each ? steps * each : TRACE_EVENTS_MOST;
    size_t bytes = (size_t)w->room * sizeof *w->events;
    TRY(memory_alloc(bytes, &memory));
    memset(memory, 0xff, bytes);
    w->events = memory;
    return ERR_NONE;
}

/* False: it is too late, or too early for this run. */
static bool lies_ahead(const struct trainer *t, int64_t first, int64_t last) {
    if (first <= t->steps && last > t->at.step) return true;
    log_warn("log.trace: steps %lld to %lld are none of this run's, which are %lld to %lld", (long long)first,
             (long long)last, (long long)t->at.step + 1, (long long)t->steps);
    return false;
}

/* What a run of this folder has left before. */
static enum error clear(const struct trainer *t) {
    struct pool *pool;
    TRY(pool_create(&pool));
    const char *folder = pool_printf(pool, "%s/trace", t->job->run_dir),
               *merged = pool_printf(pool, "%s/trace.json", t->job->run_dir);
    enum error err = folder && merged ? file_remove_tree(folder) : ERR_MEMORY;
    if (err == ERR_NONE) err = file_remove_tree(merged);
    pool_free(pool);
    return err;
}

/* Other nodes have folders of their own, and in them what this rank has left there before. */
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

bool trace_range(const struct trainer *t) {
    const struct log_config *log = &t->config->log;
    if (log->trace_first == 0 || t->job->task != JOB_TRAIN || !t->job->run_dir) return false;
    if (!lies_ahead(t, log->trace_first, log->trace_last)) return false;
    if (clear(t) == ERR_NONE) return true;
    log_warn("no trace: %s", error_message());
    return false;
}

static enum error prepare(struct trace *tr) {
    TRY(clear_own(tr->t));
    for (int i = 0; i < TRACE_WRITERS; i++) TRY(open_writer(tr, &tr->writers[i], i > 0));
    return ERR_NONE;
}

enum error trace_open(struct trainer *t, int64_t first, int64_t last) {
    void *memory;
    if (first == 0) return ERR_NONE;
    TRY(memory_alloc(sizeof *t->trace, &memory));
    struct trace *tr = t->trace = memory;
    tr->t = t;
    tr->first = first;
    tr->last = last < t->steps ? last : t->steps;
    tr->written = !t->job->run_dir; /* a launcher's ranks but the first have none */
    if (tr->written || prepare(tr) == ERR_NONE) return ERR_NONE;
    log_warn("no trace of this rank: %s", error_message());
    tr->written = true;
    return ERR_NONE;
}

void trace_close(struct trainer *t) {
    if (!t->trace) return;
    for (int i = 0; i < TRACE_WRITERS; i++) memory_free(t->trace->writers[i].events);
    memory_free(t->trace);
    t->trace = NULL;
}

/* ---- writing ---- */

enum { NAMES = 1024, OF_CALLS = 64, BYTES_OF_CALLS = 4096 };
struct names {
    const char *of[NAMES];
    int count;
    uint32_t bytes;
};

static int find_name(const struct names *n, const char *name) {
    for (int i = 0; i < n->count; i++)
        if (n->of[i] == name) return i;
    return -1;
}

static int add_name(struct names *n, const char *name) {
    n->of[n->count] = name;
    n->bytes += (uint32_t)strlen(name) + 1;
    return n->count++;
}

/* Layers, of which a network may have any number, leave room for the calls and for "other". */
static int name_index(struct names *n, const char *name, bool layer) {
    static const char other[] = "other";
    if (!name) return -1;
    int at = find_name(n, name), most = NAMES - 1 - (layer ? OF_CALLS : 0);
    size_t bytes = n->bytes + strlen(name) + 1 + sizeof other + (layer ? BYTES_OF_CALLS : 0);
    if (at >= 0) return at;
    if (n->count < most && bytes <= TRACE_NAMES_MOST) return add_name(n, name);
    at = find_name(n, other);
    return at >= 0 ? at : add_name(n, other);
}

static struct trace_record record_of(const struct trace_event *e, struct names *names) {
    return (struct trace_record){.begin = e->begin,
                                 .end = e->end,
                                 .step = e->step,
                                 .bytes = e->bytes,
                                 .name = name_index(names, e->name, e->kind == TRACE_LAYER),
                                 .bucket = e->bucket,
                                 .kind = e->kind,
                                 .lane = e->lane,
                                 .backward = e->backward,
                                 .weights = e->weights};
}

static struct trace_head head_of(const struct trace *tr) {
    const struct trainer *t = tr->t;
    struct trace_head h = {.rank = t->rank,
                           .size = t->standing.ranks,
                           .worker = t->standing.worker,
                           .accel = device_runtime(t->device)->asynchronous,
                           .nbuckets = (uint32_t)t->standing.ncuts,
                           .first = tr->first,
                           .last = tr->last,
                           .dropped = atomic_load(&tr->dropped),
                           .offset = tr->clock.offset,
                           .round_trip = tr->clock.round_trip};
    h.serves = t->rank == 0 && sharing_has_server(&t->config->sharing);
    memcpy(h.magic, TRACE_MAGIC, sizeof TRACE_MAGIC);
    snprintf(h.mode, sizeof h.mode, "%s", t->config->mode);
    snprintf(h.run_id, sizeof h.run_id, "%s", t->run_id);
    (void)gethostname(h.host, sizeof h.host - 1);
    return h;
}

static char *put_buckets(const struct trainer *t, char *at) {
    for (int b = 0; b < t->standing.ncuts; b++, at += sizeof(int64_t)) {
        int64_t bytes = (t->standing.cuts[b] - (b ? t->standing.cuts[b - 1] : 0)) * (int64_t)sizeof(float);
        memcpy(at, &bytes, sizeof bytes);
    }
    return at;
}

/* The events of both writers; how many, into h. */
static char *put_events(const struct trace *tr, char *at, struct trace_head *h, struct names *names) {
    for (int i = 0; i < TRACE_WRITERS; i++) {
        const struct writer *w = &tr->writers[i];
        int64_t n = atomic_load_explicit(&w->count, memory_order_acquire);
        for (int64_t k = 0; k < n; k++, at += sizeof(struct trace_record)) {
            const struct trace_record r = record_of(&w->events[k], names);
            memcpy(at, &r, sizeof r);
        }
        h->nevents += (uint32_t)n;
    }
    return at;
}

/* All of the file, into memory that has room for it; its bytes. */
static size_t fill(const struct trace *tr, char *file) {
    struct trace_head h = head_of(tr);
    struct names names = {0};
    char *at = put_buckets(tr->t, file + sizeof h);
    at = put_events(tr, at, &h, &names);
    for (int i = 0; i < names.count; i++) {
        size_t n = strlen(names.of[i]) + 1;
        memcpy(at, names.of[i], n);
        at += n;
    }
    h.names = names.bytes;
    memcpy(file, &h, sizeof h);
    size_t bytes = (size_t)(at - file);
    h.check = crc32c(0, file + TRACE_CHECKED, bytes - TRACE_CHECKED);
    memcpy(file, &h, sizeof h);
    return bytes;
}

static enum error write_in(const struct trace *tr, struct pool *pool) {
    const struct trainer *t = tr->t;
    const char *folder = pool_printf(pool, "%s/trace", t->job->run_dir),
               *path = pool_printf(pool, "%s/rank%d.bin", folder, t->rank);
    size_t room = sizeof(struct trace_head) + (size_t)t->standing.ncuts * sizeof(int64_t) + TRACE_NAMES_MOST;
    void *file;
    for (int i = 0; i < TRACE_WRITERS; i++) room += (size_t)tr->writers[i].room * sizeof(struct trace_record);
    if (!folder || !path) return ERR_MEMORY;
    TRY(file_make_folders(folder));
    TRY(memory_alloc(room, &file));
    enum error err = file_replace(path, file, fill(tr, file));
    memory_free(file);
    return err;
}

static void write_file(struct trace *tr) {
    struct pool *pool;
    long long dropped = atomic_load(&tr->dropped);
    tr->written = true;
    enum error err = pool_create(&pool);
    if (err == ERR_NONE) {
        err = write_in(tr, pool);
        pool_free(pool);
    }
    if (err != ERR_NONE) log_warn("no trace of this rank: %s", error_message());
    if (err == ERR_NONE && dropped)
        log_warn("the trace has no room for %lld events more\ntrace fewer steps: log.trace", dropped);
}

/* ---- the range ---- */

void trace_finish(struct trainer *t) {
    struct trace *tr = t->trace;
    if (!tr) return;
    bool was_on = atomic_exchange(&tr->on, false);
    if (was_on && !tr->written) write_file(tr);
}

enum error trace_step_begin(struct trainer *t) {
    struct trace *tr = t->trace;
    if (!tr) return ERR_NONE;
    int64_t step = t->at.step + 1;
    const struct mode_ops *mode = t->job->mode;
    if (tr->range == UNDER_WAY && step > tr->last) {
        trace_finish(t);
        tr->range = BEHIND;
        TRY(mode->watch(t->mode, NULL));
    } else if (tr->range == AHEAD && step >= tr->first) {
        TRY(mode->watch(t->mode, &tr->clock));
        timers_anchor(t);
        tr->range = UNDER_WAY;
        atomic_store(&tr->on, !tr->written);
    }
    atomic_store(&tr->step, step);
    if (atomic_load(&tr->on) && sees_layers(t)) graph_watch(t->graph, on_layer, tr);
    return ERR_NONE;
}

void trace_step_end(struct trainer *t, int64_t began) {
    if (!t->trace) return;
    trace_span(t->trace, TRACE_STEP, TRACE_COMPUTE, began, clock_ns());
    if (t->graph) graph_watch(t->graph, NULL, NULL);
}

int trace_conclude(struct trainer *t) {
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
