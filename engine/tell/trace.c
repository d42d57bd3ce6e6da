/* Recording what a rank does. Each writer has a buffer of its own, and a reader believes its count: an event is
 * whole before it is counted. The communication lane is run by its thread or, at times, by the rank's, but never by
 * both at once. */
#include "engine/tell/trace_file.h"

#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"

#include <stdatomic.h>
#include <string.h>

struct trace_writer {
    struct trace_event *events;
    int64_t room;
    _Atomic int64_t count;
};
struct trace {
    _Atomic bool on;
    _Atomic int64_t step, dropped;
    int64_t layer_began; /* where the last one ended, if nothing has come between; 0: the clock has to tell */
    struct trace_writer writers[TRACE_WRITERS];
};

/* ---- recording ---- */

static void trace_record_event(struct trace *tr, const struct trace_event *e) {
    if (!atomic_load_explicit(&tr->on, memory_order_relaxed)) return;
    static const int writers[TRACE_LANES] = {[TRACE_EXCHANGE] = 1, [TRACE_AHEAD] = 2};
    struct trace_writer *w = &tr->writers[e->kind == TRACE_CALL ? writers[e->lane] : 0];
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
    trace_record_event(tr, e);
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
    trace_record_event(tr, &e);
    tr->layer_began = leave ? 0 : now;
}

void trace_layer(struct trace *tr, const char *name, bool backward) {
    if (!name) {
        if (!tr->layer_began) tr->layer_began = clock_ns();
        return;
    }
    int64_t now = clock_ns();
    const struct trace_event e = {
        .begin = tr->layer_began, .end = now, .name = name, .bucket = -1, .kind = TRACE_LAYER, .backward = backward};
    trace_record_event(tr, &e);
    tr->layer_began = now;
}

void trace_step(struct trace *tr, int64_t step) {
    atomic_store(&tr->step, step);
}

bool trace_turn(struct trace *tr, bool on) {
    return atomic_exchange(&tr->on, on);
}

bool trace_is_on(const struct trace *tr) {
    return atomic_load(&tr->on);
}

int64_t trace_dropped(const struct trace *tr) {
    return atomic_load(&tr->dropped);
}

/* ---- memory ---- */

/* Written to now, so that no step has to wait for a page. */
static enum error open_writer(struct trace_writer *w, int64_t steps, int64_t each) {
    w->room = steps < TRACE_EVENTS_MOST / each ? steps * each : TRACE_EVENTS_MOST;
    size_t bytes = (size_t)w->room * sizeof *w->events;
    TRY_MEMORY(w->events = memory_new(bytes));
    memset(w->events, 0xff, bytes);
    return ERR_NONE;
}

enum error trace_create(int64_t steps, const int64_t events[TRACE_WRITERS], struct trace **out) {
    TRY_MEMORY(*out = memory_new(sizeof **out));
    for (int i = 0; i < TRACE_WRITERS && steps; i++) TRY(open_writer(&(*out)->writers[i], steps, events[i]));
    return ERR_NONE;
}

void trace_free(struct trace *tr) {
    if (!tr) return;
    for (int i = 0; i < TRACE_WRITERS; i++) memory_free(tr->writers[i].events);
    memory_free(tr);
}

/* ---- writing ---- */

enum { NAMES = 1024, OF_CALLS = 64, BYTES_OF_CALLS = 4096 };
struct names {
    const char *of[NAMES];
    int count;
    uint32_t bytes;
};

static int names_find(const struct names *n, const char *name) {
    for (int i = 0; i < n->count; i++)
        if (n->of[i] == name) return i;
    return -1;
}

static int names_add(struct names *n, const char *name) {
    n->of[n->count] = name;
    n->bytes += (uint32_t)strlen(name) + 1;
    return n->count++;
}

/* Layers, of which a network may have any number, leave room for the calls and for "other". */
static int name_index(struct names *n, const char *name, bool layer) {
    static const char other[] = "other";
    if (!name) return -1;
    int at = names_find(n, name), most = NAMES - 1 - (layer ? OF_CALLS : 0);
    size_t bytes = n->bytes + strlen(name) + 1 + sizeof other + (layer ? BYTES_OF_CALLS : 0);
    if (at >= 0) return at;
    if (n->count < most && bytes <= TRACE_NAMES_MOST) return names_add(n, name);
    at = names_find(n, other);
    return at >= 0 ? at : names_add(n, other);
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

static struct trace_head head_of(const struct trace *tr, const struct trace_rank *r) {
    struct trace_head h = {.rank = r->rank,
                           .size = r->size,
                           .worker = r->worker,
                           .serves = r->serves,
                           .accel = r->accel,
                           .nbuckets = (uint32_t)r->nbuckets,
                           .first = r->first,
                           .last = r->last,
                           .dropped = trace_dropped(tr),
                           .offset = r->clock.offset,
                           .round_trip = r->clock.round_trip};
    memcpy(h.magic, TRACE_MAGIC, sizeof TRACE_MAGIC);
    memcpy(h.mode, r->mode, sizeof h.mode);
    memcpy(h.host, r->host, sizeof h.host);
    memcpy(h.run_id, r->run_id, sizeof h.run_id);
    return h;
}

/* The events of both writers; how many, into h. */
static char *put_events(const struct trace *tr, char *at, struct trace_head *h, struct names *names) {
    for (int i = 0; i < TRACE_WRITERS; i++) {
        const struct trace_writer *w = &tr->writers[i];
        int64_t n = atomic_load_explicit(&w->count, memory_order_acquire);
        for (int64_t k = 0; k < n; k++, at += sizeof(struct trace_record)) {
            const struct trace_record r = record_of(&w->events[k], names);
            memcpy(at, &r, sizeof r);
        }
        h->nevents += (uint32_t)n;
    }
    return at;
}

/* Fills memory that has room for it with the whole file; gives its bytes. */
static size_t file_fill(const struct trace *tr, const struct trace_rank *r, char *file) {
    struct trace_head h = head_of(tr, r);
    struct names names = {0};
    size_t buckets = (size_t)r->nbuckets * sizeof *r->bucket;
    if (buckets) memcpy(file + sizeof h, r->bucket, buckets);
    char *at = put_events(tr, file + sizeof h + buckets, &h, &names);
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

enum error trace_write(const struct trace *tr, const struct trace_rank *r, const char *path) {
    size_t room = sizeof(struct trace_head) + (size_t)r->nbuckets * sizeof *r->bucket + TRACE_NAMES_MOST;
    void *file;
    for (int i = 0; i < TRACE_WRITERS; i++) room += (size_t)tr->writers[i].room * sizeof(struct trace_record);
    TRY(memory_alloc_sparse(room, &file)); /* a rank has little time for this when another has died */
    enum error err = file_replace(path, file, file_fill(tr, r, file));
    memory_free(file);
    return err;
}
