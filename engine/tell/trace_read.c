/* Reading what ranks have recorded. A file may be cut, changed, or never have been a trace: nothing in it is used
 * before it has been looked at. */
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/limits.h"
#include "engine/tell/trace_file.h"

#include <stdlib.h>
#include <string.h>

/* So that differences of times are numbers; and sums, since all events of a rank together have no more. */
#define TIME_MOST ((int64_t)1 << 60)
#define SUM_MOST ((int64_t)1 << 58) /* nine years */
#define BYTES_MOST ((int64_t)1 << 50)
enum { FILE_MOST = 64 << 20 };
_Static_assert(sizeof(struct trace_head) + TRACE_BUCKETS_MOST * 8 + TRACE_NAMES_MOST +
                       (size_t)TRACE_WRITERS * TRACE_EVENTS_MOST * sizeof(struct trace_record) <
                   FILE_MOST,
               "what is written can be read");

/* ---- one file ---- */

static bool number_is_within(int64_t v, int64_t low, int64_t high) {
    return v >= low && v <= high;
}

static bool head_is_sound(const struct trace_head *h) {
    return h->rank >= 0 && h->rank < h->size && h->size <= RANKS_MOST && h->worker >= -1 && h->worker < h->size &&
           h->nevents <= TRACE_WRITERS * TRACE_EVENTS_MOST && h->nbuckets <= TRACE_BUCKETS_MOST &&
           h->names <= TRACE_NAMES_MOST && h->first >= 1 && h->last >= h->first && h->dropped >= 0 &&
           number_is_within(h->offset, -TIME_MOST, TIME_MOST) && number_is_within(h->round_trip, 0, TIME_MOST);
}

static size_t bytes_of(const struct trace_head *h) {
    return sizeof *h + h->nbuckets * sizeof(int64_t) + h->nevents * sizeof(struct trace_record) + h->names;
}

static enum error check_head(const char *path, const char *file, size_t n, struct trace_head *h) {
    static const char magic[sizeof h->magic] = TRACE_MAGIC;
    if (n < sizeof *h || memcmp(file, magic, sizeof magic))
        return FAIL(ERR_DATA, "'%s' is not a rank's trace, or is cut", path);
    memcpy(h, file, sizeof *h);
    if (h->check != crc32c(0, file + TRACE_CHECKED, n - TRACE_CHECKED))
        return FAIL(ERR_DATA, "'%s' is damaged, or cut: its checksum is another", path);
    if (!head_is_sound(h))
        return FAIL(ERR_DATA,
                    "'%s': the header has rank %d of %d and steps %lld to %lld, or sizes and clocks that no trace has",
                    path, h->rank, h->size, (long long)h->first, (long long)h->last);
    if (bytes_of(h) != n) return FAIL(ERR_DATA, "'%s' has %zu bytes, but its header says %zu", path, n, bytes_of(h));
    return ERR_NONE;
}

/* Text of a file, as terminals and JSON bear it. */
static char *plain_text(const char *text, size_t most, struct pool *pool) {
    char *copy = pool_strndup(pool, text, strnlen(text, most));
    for (char *c = copy; c && *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\') *c = '?';
    return copy;
}

static enum error read_names(const char *text, size_t n, struct pool *pool, const char ***out, int *count) {
    *count = 0;
    TRY_MEMORY(*out = pool_alloc(pool, (n + 1) * sizeof **out));
    for (size_t i = 0; i < n; i += strnlen(text + i, n - i) + 1) {
        const char *copy = plain_text(text + i, n - i, pool);
        if (!copy) return ERR_MEMORY;
        (*out)[(*count)++] = copy;
    }
    return ERR_NONE;
}

static bool record_is_sound(const struct trace_record *r, const struct trace_head *h, int names) {
    return r->kind < TRACE_KINDS && r->lane < TRACE_LANES && number_is_within(r->begin, 0, TIME_MOST) &&
           number_is_within(r->end, r->begin, TIME_MOST) && number_is_within(r->step, 0, INT64_MAX) &&
           number_is_within(r->bytes, 0, BYTES_MOST) && number_is_within(r->name, -1, names - 1) &&
           number_is_within(r->bucket, -1, (int64_t)h->nbuckets - 1) &&
           (r->name >= 0 || (r->kind != TRACE_LAYER && r->kind != TRACE_CALL && r->kind != TRACE_WAIT));
}

/* Whatever is added up of them later: some of these. */
static enum error check_sums(const char *path, const struct trace_rank *r) {
    int64_t took = 0, bytes = 0;
    for (int i = 0; i < r->nevents; i++) {
        took += r->events[i].end - r->events[i].begin;
        bytes += r->events[i].bytes;
        if (took > SUM_MOST || bytes > SUM_MOST)
            return FAIL(ERR_DATA, "'%s': its %d events take too long, or carry too much", path, r->nevents);
    }
    return ERR_NONE;
}

/* What begins at the same time: the longer first, since it contains the other. */
static int trace_by_time(const void *a, const void *b) {
    const struct trace_event *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end > y->end ? -1 : 1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static enum error read_events(const char *path, const char *file, const struct trace_head *h, struct pool *pool,
                              struct trace_rank *out) {
    const char **names, *at = file + sizeof *h + h->nbuckets * sizeof(int64_t);
    int nnames;
    TRY(read_names(at + h->nevents * sizeof(struct trace_record), h->names, pool, &names, &nnames));
    out->nevents = (int)h->nevents;
    TRY_MEMORY(out->events = pool_alloc(pool, (h->nevents + 1) * sizeof *out->events));
    for (int i = 0; i < out->nevents; i++) {
        struct trace_record r;
        memcpy(&r, at + (size_t)i * sizeof r, sizeof r);
        if (!record_is_sound(&r, h, nnames))
            return FAIL(ERR_DATA, "'%s': event %d of %d has a time, step, name, bucket or kind that no trace has", path,
                        i, out->nevents);
        out->events[i] = (struct trace_event){.begin = r.begin + h->offset,
                                              .end = r.end + h->offset,
                                              .step = r.step,
                                              .bytes = r.bytes,
                                              .name = r.name >= 0 ? names[r.name] : NULL,
                                              .bucket = r.bucket,
                                              .kind = r.kind,
                                              .lane = r.lane,
                                              .backward = r.backward != 0,
                                              .weights = r.weights != 0};
    }
    qsort(out->events, (size_t)out->nevents, sizeof *out->events, trace_by_time);
    return check_sums(path, out);
}

static enum error read_buckets(const char *path, const char *file, const struct trace_head *h, struct pool *pool,
                               struct trace_rank *out) {
    int64_t all = 0;
    out->nbuckets = (int)h->nbuckets;
    TRY_MEMORY(out->bucket = pool_alloc(pool, (h->nbuckets + 1) * sizeof *out->bucket));
    memcpy(out->bucket, file + sizeof *h, h->nbuckets * sizeof *out->bucket);
    for (int b = 0; b < out->nbuckets; b++) {
        if (!number_is_within(out->bucket[b], 0, BYTES_MOST - all))
            return FAIL(ERR_DATA, "'%s': bucket %d of %d has %lld bytes, which no bucket has", path, b, out->nbuckets,
                        (long long)out->bucket[b]);
        all += out->bucket[b];
    }
    return ERR_NONE;
}

enum error trace_read(const char *path, struct pool *pool, struct trace_rank *out) {
    char *file;
    size_t n;
    struct trace_head h;
    TRY(file_read(path, FILE_MOST, pool, &file, &n));
    TRY(check_head(path, file, n, &h));
    *out = (struct trace_rank){.rank = h.rank,
                               .size = h.size,
                               .worker = h.worker,
                               .serves = h.serves != 0,
                               .accel = h.accel != 0,
                               .first = h.first,
                               .last = h.last,
                               .dropped = h.dropped,
                               .clock = {h.offset, h.round_trip}};
    const char *mode = plain_text(h.mode, sizeof h.mode - 1, pool), *host = plain_text(h.host, sizeof h.host - 1, pool),
               *run_id = plain_text(h.run_id, sizeof h.run_id - 1, pool);
    if (!mode || !host || !run_id) return ERR_MEMORY;
    memcpy(out->mode, mode, strlen(mode));
    memcpy(out->host, host, strlen(host));
    memcpy(out->run_id, run_id, strlen(run_id));
    TRY(read_buckets(path, file, &h, pool, out));
    return read_events(path, file, &h, pool, out);
}

/* ---- all of a run ---- */

static enum error check_same(const char *path, const struct trace_rank *a, const struct trace_rank *r, int rank) {
    if (r->rank != rank) return FAIL(ERR_DATA, "'%s' is the trace of rank %d", path, r->rank);
    if (r->size == a->size && r->first == a->first && r->last == a->last && !strcmp(r->mode, a->mode) &&
        !strcmp(r->run_id, a->run_id))
        return ERR_NONE;
    return FAIL(ERR_DATA,
                "'%s' is of another run than rank %d's: %s, %d ranks, steps %lld to %lld, run '%s'; "
                "there %s, %d, %lld to %lld, '%s'",
                path, a->rank, r->mode, r->size, (long long)r->first, (long long)r->last, r->run_id, a->mode, a->size,
                (long long)a->first, (long long)a->last, a->run_id);
}

enum error trace_read_all(const char *run_dir, struct pool *pool, struct trace_rank **out, int *n) {
    struct trace_rank *ranks = NULL, first;
    *n = 0;
    for (int r = 0; r < (ranks ? first.size : RANKS_MOST); r++) {
        const char *path = pool_printf(pool, "%s/trace/rank%d.bin", run_dir, r);
        if (!path) return ERR_MEMORY;
        if (!file_exists(path)) continue;
        if (!ranks) {
            TRY(trace_read(path, pool, &first));
            TRY_MEMORY(ranks = pool_alloc(pool, (size_t)first.size * sizeof *ranks));
        }
        TRY(trace_read(path, pool, &ranks[*n]));
        TRY(check_same(path, ranks, &ranks[*n], r));
        ++*n;
    }
    *out = ranks;
    return ERR_NONE;
}

/* ---- buckets ---- */

struct mark { /* of a bucket in a step */
    int64_t step;
    int bucket, order;
    const struct trace_event *event;
};
enum { MARK_READY, MARK_CALL, MARK_WAIT };

static int trace_by_bucket(const void *a, const void *b) {
    const struct mark *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->bucket != y->bucket) return x->bucket < y->bucket ? -1 : 1;
    if (x->order != y->order) return x->order < y->order ? -1 : 1;
    return (x->event > y->event) - (x->event < y->event); /* by time */
}

/* Buckets are ready one after another: each at the first time that as much as its end is. */
static void mark_ready(const struct trace_rank *r, struct mark *marks, int *n) {
    int64_t step = -1, end = 0;
    int next = 0;
    for (int i = 0; i < r->nevents; i++) {
        const struct trace_event *e = &r->events[i];
        if (e->kind != TRACE_READY) continue;
        if (e->step != step) step = e->step, next = 0, end = r->nbuckets ? r->bucket[0] : 0;
        while (next < r->nbuckets && end <= e->bytes) {
            marks[(*n)++] = (struct mark){step, next, MARK_READY, e};
            if (++next < r->nbuckets) end += r->bucket[next];
        }
    }
}

/* Every step's first event of readiness marks its buckets anew. */
static int64_t marks_most(const struct trace_rank *r) {
    int64_t steps = 0, step = -1;
    for (int i = 0; i < r->nevents; i++)
        if (r->events[i].kind == TRACE_READY && r->events[i].step != step) step = r->events[i].step, steps++;
    return steps * r->nbuckets + r->nevents + 1;
}

/* The marks of one bucket in one step, [from, to). */
static bool marks_join(const struct trace_rank *r, const struct mark *from, const struct mark *to,
                       struct trace_bucket *out) {
    const struct trace_event *last = NULL;
    if (from->order != MARK_READY) return false;
    *out = (struct trace_bucket){.step = from->step,
                                 .bucket = from->bucket,
                                 .bytes = r->bucket[from->bucket],
                                 .ready = from->event->begin,
                                 .start = -1};
    for (const struct mark *m = from + 1; m < to; m++) {
        const struct trace_event *e = m->event;
        bool inlined = m->order == MARK_CALL && e->lane == TRACE_COMPUTE;
        if (m->order == MARK_CALL && !last) out->start = e->begin;
        if (m->order == MARK_CALL) last = e, out->done = e->end, out->beside = !inlined;
        if (m->order == MARK_WAIT || inlined) out->taken = e->end, out->waited += e->end - e->begin;
    }
    return last && out->ready <= out->start && out->taken >= out->done;
}

enum error trace_buckets(const struct trace_rank *r, struct pool *pool, struct trace_bucket **out, int *n) {
    int64_t most = marks_most(r);
    int count = 0;
    *n = 0;
    *out = NULL;
    if (most > 1 << 23) return FAIL(ERR_DATA, "too many buckets in too many steps");
    struct mark *marks = pool_alloc(pool, (size_t)most * sizeof *marks);
    *out = pool_alloc(pool, (size_t)most * sizeof **out);
    if (!marks || !*out) return ERR_MEMORY;
    mark_ready(r, marks, &count);
    for (int i = 0; i < r->nevents; i++) {
        const struct trace_event *e = &r->events[i];
        if ((e->kind != TRACE_CALL && e->kind != TRACE_WAIT) || e->bucket < 0 || e->weights) continue;
        marks[count++] = (struct mark){e->step, e->bucket, e->kind == TRACE_CALL ? MARK_CALL : MARK_WAIT, e};
    }
    qsort(marks, (size_t)count, sizeof *marks, trace_by_bucket);
    for (int from = 0, to = 0; from < count; from = to) {
        while (to < count && marks[to].step == marks[from].step && marks[to].bucket == marks[from].bucket) to++;
        *n += marks_join(r, marks + from, marks + to, &(*out)[*n]);
    }
    return ERR_NONE;
}
