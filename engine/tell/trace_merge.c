/* trace.json, in the Trace Event Format: a process for each rank, a thread for each of its lanes.
 *
 *   X      spans; those of a thread contain each other, or are apart
 *   i      a bucket is ready
 *   s t f  one arrow a bucket: from where backward had finished it, through its call, to where the step has it
 *   C      bytes of the calls that are under way
 *
 * Each rank's items are made and put into order alone; the file takes the earliest of all ranks'. */
#include "engine/base/file.h"
#include "engine/tell/trace_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TID_PROCESS, TID_LANES }; /* lane l is thread TID_LANES + l */
struct item {
    int64_t ts;
    char phase; /* of the format: 'X', 'i', 's', 't', 'f', 'C' */
    int lane, bucket;
    int64_t number;                  /* of an arrow; bytes of a counter */
    const struct trace_event *event; /* X */
};
struct merge_list {
    struct item *items;
    int count, next;
};
struct trace_merging {
    const struct trace_rank *ranks;
    int n;
    FILE *out;
    int64_t zero, arrows;
    struct merge_list *lists;
    bool comma;
};

/* ---- one rank's items ---- */

/* At one time: spans before what points into them. */
static int order_of(char phase) {
    return phase == 'X' ? 0 : phase == 'C' ? 2 : 1;
}

static int merge_by_time(const void *a, const void *b) {
    const struct item *x = a, *y = b;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    int order = order_of(x->phase) - order_of(y->phase);
    if (order) return order;
    if (x->phase == 'X') return (x->event > y->event) - (x->event < y->event);
    return (x->number > y->number) - (x->number < y->number);
}

static void list_add(struct merge_list *l, struct item item) {
    l->items[l->count++] = item;
}

/* Inside of what ends there, and not before it begins. */
static int64_t last_moment(int64_t begin, int64_t end) {
    return end > begin ? end - 1 : begin;
}

static void add_arrow(struct trace_merging *m, struct merge_list *l, const struct trace_bucket *b) {
    int64_t id = ++m->arrows;
    int lane = b->beside ? TRACE_EXCHANGE : TRACE_COMPUTE;
    list_add(l, (struct item){.ts = b->ready, .phase = 'i', .bucket = b->bucket, .number = id});
    list_add(l, (struct item){.ts = b->ready, .phase = 's', .bucket = b->bucket, .number = id});
    list_add(l, (struct item){.ts = b->start, .phase = 't', .lane = lane, .bucket = b->bucket, .number = id});
    list_add(l, (struct item){.ts = last_moment(b->start, b->taken), .phase = 'f', .bucket = b->bucket, .number = id});
}

struct edge {
    int64_t ts, bytes; /* of a begin above zero */
};

/* At one time: begins first, so that the sum is never below zero. */
static int by_edge(const void *a, const void *b) {
    const struct edge *x = a, *y = b;
    if (x->ts != y->ts) return x->ts < y->ts ? -1 : 1;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static enum error add_counter(struct merge_list *l, const struct trace_rank *r, struct pool *pool) {
    int n = 0;
    int64_t sum = 0;
    struct edge *edges = pool_alloc(pool, (2 * (size_t)r->nevents + 1) * sizeof *edges);
    if (!edges) return ERR_MEMORY;
    for (int i = 0; i < r->nevents; i++) {
        const struct trace_event *e = &r->events[i];
        if (e->kind != TRACE_CALL || e->bytes == 0) continue;
        edges[n++] = (struct edge){e->begin, e->bytes};
        edges[n++] = (struct edge){e->end, -e->bytes};
    }
    qsort(edges, (size_t)n, sizeof *edges, by_edge);
    for (int i = 0; i < n; i++) {
        sum += edges[i].bytes;
        if (i + 1 < n && edges[i + 1].ts == edges[i].ts) continue;
        list_add(l, (struct item){.ts = edges[i].ts, .phase = 'C', .number = sum});
    }
    return ERR_NONE;
}

static enum error make_list(struct trace_merging *m, const struct trace_rank *r, struct pool *pool,
                            struct merge_list *l) {
    struct trace_bucket *buckets;
    int nbuckets;
    TRY(trace_buckets(r, pool, &buckets, &nbuckets));
    size_t most = 3 * (size_t)r->nevents + 4 * (size_t)nbuckets + 1;
    TRY_MEMORY(l->items = pool_alloc(pool, most * sizeof *l->items));
    for (int i = 0; i < r->nevents; i++) {
        const struct trace_event *e = &r->events[i];
        if (e->kind != TRACE_READY)
            list_add(l, (struct item){.ts = e->begin, .phase = 'X', .lane = e->lane, .event = e});
    }
    for (int i = 0; i < nbuckets; i++) add_arrow(m, l, &buckets[i]);
    TRY(add_counter(l, r, pool));
    qsort(l->items, (size_t)l->count, sizeof *l->items, merge_by_time);
    return ERR_NONE;
}

/* ---- as text ---- */

/* Up to where every event has the same: {"name":"...","ph":"X","pid":0,"tid":1,"ts":12.345 */
static void event_begin(struct trace_merging *m, const char *name, char phase, int pid, int tid, int64_t ts) {
    fprintf(m->out, "%s{\"name\":\"%s\",\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%" PRId64 ".%03d",
            m->comma ? ",\n" : "", name, phase, pid, tid, ts / 1000, (int)(ts % 1000));
    m->comma = true;
}

static void event_name(const struct trace_event *e, char *out, size_t size) {
    static const char *const names[TRACE_KINDS] = {[TRACE_STEP] = "step",
                                                   [TRACE_EVALUATION] = "evaluation",
                                                   [TRACE_CHECKPOINT] = "checkpoint",
                                                   [TRACE_STALL] = "waiting for stage"};
    char bucket[40] = "";
    if (e->bucket >= 0)
        snprintf(bucket, sizeof bucket, "%s %d", e->weights ? " weights of bucket" : " bucket", e->bucket);
    if (e->kind == TRACE_STEP)
        snprintf(out, size, "step %" PRId64, e->step);
    else if (e->name)
        snprintf(out, size, "%s%.100s%s", e->kind == TRACE_WAIT ? "wait for " : "", e->name, bucket);
    else
        snprintf(out, size, "%s",
                 (int)e->kind < PHASES ? phase_names[e->kind].traced
                 : names[e->kind]      ? names[e->kind]
                                       : "?");
}

static const char *category_of(const struct trace_event *e) {
    return e->kind == TRACE_CALL                             ? "collective"
           : e->kind == TRACE_WAIT || e->kind == TRACE_STALL ? "wait"
           : e->kind == TRACE_LAYER                          ? "layer"
           : e->kind == TRACE_STEP                           ? "step"
                                                             : "phase";
}

static void write_span(struct trace_merging *m, int pid, const struct trace_event *e) {
    char name[192];
    int64_t took = e->end - e->begin;
    event_name(e, name, sizeof name);
    event_begin(m, name, 'X', pid, TID_LANES + e->lane, e->begin - m->zero);
    fprintf(m->out, ",\"dur\":%" PRId64 ".%03d,\"cat\":\"%s\",\"args\":{\"step\":%" PRId64, took / 1000,
            (int)(took % 1000), category_of(e), e->step);
    if (e->kind == TRACE_LAYER) fprintf(m->out, ",\"pass\":\"%s\"", e->backward ? "backward" : "forward");
    if (e->kind == TRACE_CALL || e->kind == TRACE_WAIT) fprintf(m->out, ",\"bytes\":%" PRId64, e->bytes);
    if (e->bucket >= 0)
        fprintf(m->out, ",\"bucket\":%d,\"carries\":\"%s\"", e->bucket, e->weights ? "weights" : "gradients");
    fprintf(m->out, "}}");
}

static void write_item(struct trace_merging *m, int pid, const struct item *i) {
    char name[64];
    if (i->phase == 'X') {
        write_span(m, pid, i->event);
        return;
    }
    if (i->phase == 'C') {
        event_begin(m, "bytes in flight", 'C', pid, TID_PROCESS, i->ts - m->zero);
        fprintf(m->out, ",\"args\":{\"bytes\":%" PRId64 "}}", i->number);
        return;
    }
    snprintf(name, sizeof name, "bucket %d%s", i->bucket, i->phase == 'i' ? " ready" : "");
    event_begin(m, name, i->phase, pid, TID_LANES + i->lane, i->ts - m->zero);
    if (i->phase == 'i')
        fprintf(m->out, ",\"s\":\"t\",\"cat\":\"bucket\"}");
    else
        fprintf(m->out, ",\"cat\":\"bucket\",\"id\":%" PRId64 "%s}", i->number, i->phase == 'f' ? ",\"bp\":\"e\"" : "");
}

/* ---- what the rows are called ---- */

static void name_write(struct trace_merging *m, const char *what, int pid, int tid, const char *name) {
    event_begin(m, what, 'M', pid, tid, 0);
    fprintf(m->out, ",\"args\":{\"name\":\"%s\"}}", name);
}

static void write_rank(struct trace_merging *m, const struct trace_rank *r) {
    static const char *const lanes[] = {"compute", "communication", "accelerator", "weights ahead"};
    char name[160], device[32] = "";
    bool used[TRACE_LANES] = {true};
    if (r->worker >= 0) snprintf(device, sizeof device, ", device %d", r->worker);
    snprintf(name, sizeof name, "rank %d%s%s, %s", r->rank, device, r->serves ? ", server" : "", r->host);
    name_write(m, "process_name", r->rank, TID_PROCESS, name);
    event_begin(m, "process_sort_index", 'M', r->rank, TID_PROCESS, 0);
    fprintf(m->out, ",\"args\":{\"sort_index\":%d}}", r->rank);
    for (int i = 0; i < r->nevents; i++) used[r->events[i].lane] = true;
    for (int lane = 0; lane < TRACE_LANES; lane++)
        if (used[lane]) name_write(m, "thread_name", r->rank, TID_LANES + lane, lanes[lane]);
}

static void write_about(struct trace_merging *m) {
    const struct trace_rank *a = m->ranks;
    int64_t dropped = 0;
    for (int i = 0; i < m->n; i++) dropped += m->ranks[i].dropped;
    fprintf(m->out,
            "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"format\":1,\"mode\":\"%s\","
            "\"ranks\":%d,\"present\":%d,\"first_step\":%" PRId64 ",\"last_step\":%" PRId64
            ",\"events_without_room\":%" PRId64 ",\"clocks\":[",
            a->mode, a->size, m->n, a->first, a->last, dropped);
    for (int i = 0; i < m->n; i++)
        fprintf(m->out, "%s{\"rank\":%d,\"offset_ns\":%" PRId64 ",\"round_trip_ns\":%" PRId64 "}", i ? "," : "",
                m->ranks[i].rank, m->ranks[i].clock.offset, m->ranks[i].clock.round_trip);
    fprintf(m->out, "]},\n\"traceEvents\":[\n");
}

/* ---- all ranks ---- */

/* The rank whose next item is the earliest; -1: there are no more. */
static int lists_earliest(const struct trace_merging *m) {
    int best = -1;
    for (int i = 0; i < m->n; i++) {
        const struct merge_list *l = &m->lists[i];
        if (l->next == l->count) continue;
        if (best < 0 || l->items[l->next].ts < m->lists[best].items[m->lists[best].next].ts) best = i;
    }
    return best;
}

static void merging_write(struct trace_merging *m) {
    write_about(m);
    for (int i = 0; i < m->n; i++) write_rank(m, &m->ranks[i]);
    for (int i; (i = lists_earliest(m)) >= 0;) write_item(m, m->ranks[i].rank, &m->lists[i].items[m->lists[i].next++]);
    fprintf(m->out, "\n]}\n");
}

enum error trace_merge(const struct trace_rank *ranks, int n, struct pool *pool, const char *path) {
    struct trace_merging m = {.ranks = ranks, .n = n, .zero = INT64_MAX};
    TRY_MEMORY(m.lists = pool_alloc(pool, (size_t)n * sizeof *m.lists));
    for (int i = 0; i < n; i++) {
        TRY(make_list(&m, &ranks[i], pool, &m.lists[i]));
        if (m.lists[i].count && m.lists[i].items[0].ts < m.zero) m.zero = m.lists[i].items[0].ts;
    }
    struct file_text text;
    TRY(file_text_open(&text));
    m.out = text.out;
    merging_write(&m);
    return file_text_save(&text, ERR_NONE, path);
}
