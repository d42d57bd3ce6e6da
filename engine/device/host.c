/* The runtime of devices whose memory is the host's: a call returns when all it asks for has happened, so a lane is
 * always empty, and a mark is passed as soon as it is set. */
#include "engine/base/clock.h"
#include "engine/base/vector.h"
#include "engine/device/runtime.h"
#include "engine/device/threads.h"

#include <string.h>

/* ---- memory ---- */

static enum error host_alloc(struct device *d, size_t bytes, void **out) {
    (void)d;
    return memory_alloc(bytes, out);
}

/* A snapshot that is never taken costs nothing. */
static enum error host_alloc_sparse(struct device *d, size_t bytes, void **out) {
    (void)d;
    return memory_alloc_sparse(bytes, out);
}

static void host_free(struct device *d, void *p) {
    (void)d;
    memory_free(p);
}

static bool host_holds(const struct device *d, const void *p) {
    (void)d, (void)p;
    return false;
}

static enum error host_move(struct device *d, enum device_lane l, void *to, const void *from, size_t bytes) {
    (void)d, (void)l;
    memcpy(to, from, bytes);
    return ERR_NONE;
}

static enum error host_copy(struct device *d, enum device_lane l, void *to, struct device *peer, const void *from,
                            size_t bytes) {
    (void)d, (void)l, (void)peer;
    memmove(to, from, bytes);
    return ERR_NONE;
}

static enum error host_zero(struct device *d, enum device_lane l, void *p, size_t bytes) {
    (void)d, (void)l;
    memset(p, 0, bytes);
    return ERR_NONE;
}

/* ---- lanes ---- */

struct device_mark {
    int64_t at; /* when it was set and passed */
};

static enum error host_mark_create(struct device *d, struct device_mark **out) {
    (void)d;
    TRY_MEMORY(*out = memory_new(sizeof **out));
    return ERR_NONE;
}

static int64_t host_between(const struct device_mark *from, const struct device_mark *to) {
    return to->at - from->at;
}

static void host_mark_free(struct device_mark *m) {
    memory_free(m);
}

static enum error host_mark(struct device *d, enum device_lane l, struct device_mark *m) {
    (void)d, (void)l;
    m->at = clock_ns();
    return ERR_NONE;
}

static enum error host_follow(struct device *d, enum device_lane l, const struct device_mark *m) {
    (void)d, (void)l, (void)m;
    return ERR_NONE;
}

static bool host_passed(const struct device_mark *m) {
    (void)m;
    return true;
}

static enum error host_wait(struct device *d, enum device_lane l) {
    (void)d, (void)l;
    return ERR_NONE;
}

static enum error host_give_up(struct device *d, enum device_lane l, double seconds) {
    (void)d, (void)l;
    return FAIL(ERR_TIMEOUT, "the host has waited %.3g s for itself", seconds);
}

static void *host_stream(struct device *d, enum device_lane l) {
    (void)d, (void)l;
    return NULL;
}

/* ---- vectors ---- */

static float host_sum_at(const float *const *terms, int count, const uint8_t *adds, int64_t i) {
    float left[LEAVES_DEPTH] = {0};
    for (int t = 0, depth = 0; t < count; t++) {
        left[depth++] = terms[t][i];
        for (int n = adds ? adds[t] : t > 0; n > 0; n--, depth--) left[depth - 2] += left[depth - 1];
    }
    return left[0];
}

/* A rank that only serves has no device, and does all by itself. */
static struct threads *host_helpers(const struct device *d) {
    return d ? d->threads : NULL;
}

enum { GRAIN = 4096 }; /* floats that are worth a separate part */

struct addition {
    float *to;
    const float *from;
};
static void host_add_part(void *ctx, int64_t begin, int64_t end) {
    const struct addition *a = ctx;
    floats_add(a->to + begin, a->from + begin, end - begin);
}

/* A device's 'sum'. Helpers share it on the computing lane only, whose thread they serve. */
static enum error host_sum(struct device *d, enum device_lane l, float *to, const float *const *terms, int count,
                           const uint8_t *adds, int64_t n) {
    struct addition a = {to, terms[count - 1]};
    if (count == 2 && terms[0] == to && terms[1] != to)
        threads_share(l == LANE_COMPUTE ? host_helpers(d) : NULL, n, GRAIN, host_add_part, &a);
    else
        for (int64_t i = 0; i < n; i++) to[i] = host_sum_at(terms, count, adds, i);
    return ERR_NONE;
}

/* Activations are f32, whatever the precision of products. */
static size_t host_unit(enum precision p) {
    (void)p;
    return sizeof(float);
}

static enum error host_lower(struct device *d, enum device_lane l, void *to, const float *from, int64_t n,
                             enum precision p) {
    (void)p;
    return host_copy(d, l, to, d, from, (size_t)n * sizeof *from);
}

static enum error host_raise(struct device *d, enum device_lane l, float *to, const void *from, int64_t n,
                             enum precision p) {
    (void)p;
    return host_copy(d, l, to, d, from, (size_t)n * sizeof *to);
}

static enum error host_add(struct device *d, void *to, const void *from, int64_t n, enum precision p) {
    struct addition a = {to, from};
    (void)p;
    threads_share(host_helpers(d), n, GRAIN, host_add_part, &a);
    return ERR_NONE;
}

static enum error host_partials(struct device *d, const float *g, int64_t begin, int64_t end, double *partial) {
    (void)d;
    squares_partials(g, begin, end, partial);
    return ERR_NONE;
}

static enum error host_head(struct device *d, float *header, const double *sums, float scale, float samples,
                            bool stop) {
    (void)d;
    memset(header, 0, HEADER_FLOATS * sizeof *header);
    header[HEADER_LOSS] = (float)(sums[0] * (double)scale);
    header[HEADER_CORRECT] = (float)sums[1];
    header[HEADER_SAMPLES] = samples;
    header[HEADER_STOP] = stop;
    return ERR_NONE;
}

/* ---- the optimizer ---- */

static enum error host_measure(struct device *d, const struct rule *r, const struct rule_span *spans, int count,
                               double *squares) {
    (void)d;
    for (int i = 0; i < count; i++) rule_measure(r, &spans[i], squares + (int64_t)i * RULE_NORMS);
    return ERR_NONE;
}

struct update {
    const struct rule *rule;
    const struct rule_span *spans;
    int count;
};

/* Elements [begin, end) of the spans, one span after another. */
static void update_part(void *ctx, int64_t begin, int64_t end) {
    const struct update *u = ctx;
    int64_t at = 0;
    for (int i = 0; i < u->count && at < end; at += u->spans[i].n, i++) {
        struct rule_span s = u->spans[i];
        int64_t from = begin > at ? begin - at : 0, to = end - at < s.n ? end - at : s.n;
        if (from >= to) continue;
        s.w += from, s.g += from, s.n = to - from;
        for (int k = 0; k < RULE_SLOTS; k++)
            if (s.slot[k]) s.slot[k] += from;
        rule_step(u->rule, &s);
    }
}

static void host_share(void *by, int64_t n, void (*part)(void *ctx, int64_t begin, int64_t end), void *ctx) {
    threads_share(by, n, 1, part, ctx);
}

/* Matrices that are worked on as a whole, one after the other; then each thread updates one piece. */
static enum error host_update(struct device *d, const struct rule *r, const struct rule_span *spans, int count) {
    struct update u = {r, spans, count};
    struct rule_work work = {r->scratch, host_share, host_helpers(d)};
    int64_t n = 0;
    for (int i = 0; i < count && r->whole; i++)
        if (spans[i].rows) r->whole(r->number[spans[i].kind], &spans[i], &work);
    for (int i = 0; i < count; i++) n += spans[i].n;
    threads_share(host_helpers(d), n, GRAIN, update_part, &u);
    return ERR_NONE;
}

const struct device_runtime host_runtime = {
    .alignment = ALIGNMENT,
    .alloc = host_alloc,
    .free = host_free,
    .holds = host_holds,
    .host_alloc = host_alloc_sparse,
    .host_free = host_free,
    .write = host_move,
    .read = host_move,
    .copy = host_copy,
    .zero = host_zero,
    .mark_create = host_mark_create,
    .timer_create = host_mark_create,
    .between = host_between,
    .mark_free = host_mark_free,
    .mark = host_mark,
    .follow = host_follow,
    .passed = host_passed,
    .wait = host_wait,
    .give_up = host_give_up,
    .stream = host_stream,
    .sum = host_sum,
    .lower = host_lower,
    .raise = host_raise,
    .add = host_add,
    .partials = host_partials,
    .head = host_head,
    .measure = host_measure,
    .update = host_update,
    .unit = host_unit,
};
