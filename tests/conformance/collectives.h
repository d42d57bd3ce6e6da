/* Every collective as one rank sees it, against a plain evaluation (sums.h): conform() is given a
 * rank in its group, whose ranks' user is what they expect. */
#pragma once
#include "tests/conformance/ranks.h"
#include "tests/conformance/sums.h"

#include <sys/mman.h>
#include <unistd.h>

/* ---- memory of the host, or of the rank's accelerator ---- */

static inline void give(struct rank *r, enum dtype t, void *buf, int rank, int64_t n) {
    if (!device_holds(r->device, buf))
        fill(t, buf, rank, n);
    else if (n)
        check_ok(device_write(r->device, buf, inputs[t][rank], (size_t)n * dtype_size(t)));
}

/* Every bit; but what a library has added in an order of its own as near as that comes. */
static inline bool near_enough(const struct rank *r, enum dtype t, const void *a, const void *b, int64_t n) {
    double eps = t == DTYPE_F32 ? 1e-6 : t == DTYPE_F64 ? 1e-14 : t == DTYPE_F16 ? 1e-3 : 8e-3;
    if (same(a, b, n, t)) return true;
    if (!r->of->loose || t > DTYPE_BF16) return false;
    for (int64_t i = 0; i < n; i++) {
        double x = input_get(t, a, i), y = input_get(t, b, i), most = fmax(fabs(x), fabs(y));
        if (!isfinite(x) || !isfinite(y)) continue; /* a product at the end of its range */
        if (fabs(x - y) > eps * r->of->world * (most > 2000 ? most : 2000)) return false;
    }
    return true;
}

static inline bool has(struct rank *r, const void *buf, const void *want, int64_t n, enum dtype t) {
    size_t bytes = (size_t)n * dtype_size(t);
    if (n == 0) return true;
    if (!device_holds(r->device, buf)) return near_enough(r, t, buf, want, n);
    void *copy = malloc(bytes);
    check_ok(device_read(r->device, copy, buf, bytes));
    bool good = near_enough(r, t, copy, want, n);
    free(copy);
    return good;
}

static inline bool keeps(struct rank *r, enum dtype t, const char *buf, int rank, int64_t lo, int64_t hi) {
    size_t at = (size_t)lo * dtype_size(t);
    return has(r, buf + at, inputs[t][rank] + at, hi - lo, t);
}

/* Where the call itself has failed there is nothing to wait for. */
static inline void finish(struct rank *r, struct work *w) {
    if (w) check_ok(work_wait(w));
}

/* few: memory that takes the other way, but is added by the same loops. */
static inline void sums(struct rank *r, char *buf, const struct expected *e, bool few) {
    EACH_SUM(c, t, op) {
        if (few && !tried(LARGE, t, op)) continue;
        give(r, t, buf, r->index, counts[c]);
        check_ok(group_all_reduce(r->group, GROUP_INLINE, buf, counts[c], t, op));
        check(has(r, buf, e->sum[c][t][op], counts[c], t), "all_reduce of %lld %s, op %d", (long long)counts[c],
              dtype_name(t), (int)op);
    }
}

static inline void reduces(struct rank *r, char *buf, const struct expected *e, int c, int root) {
    enum dtype t = DTYPE_F32;
    give(r, t, buf, r->index, counts[c]);
    check_ok(group_reduce(r->group, GROUP_INLINE, buf, counts[c], t, REDOP_SUM, root));
    if (r->index == root)
        check(has(r, buf, e->sum[c][t][REDOP_SUM], counts[c], t), "reduce of %lld to %d", (long long)counts[c], root);
    else
        check(keeps(r, t, buf, r->index, 0, counts[c]), "reduce of %lld to %d changed a peer's", (long long)counts[c],
              root);
}

/* Each to another root, by place and by pipe. */
static inline void reduces_of_all_types(struct rank *r, char *buf, const struct expected *e) {
    int c = 4, root = 0;
    EACH_SUM(k, t, op) {
        if (k != c) continue;
        give(r, t, buf, r->index, counts[c]);
        check_ok(group_reduce(r->group, GROUP_INLINE, buf, counts[c], t, op, root));
        if (r->index == root)
            check(has(r, buf, e->sum[c][t][op], counts[c], t), "reduce of %s, op %d, to %d", dtype_name(t), (int)op,
                  root);
        root = (root + 1) % r->of->world;
    }
}

static inline void broadcasts(struct rank *r, char *buf, int c, enum dtype t, int root) {
    give(r, t, buf, r->index, counts[c]);
    check_ok(group_broadcast(r->group, GROUP_INLINE, buf, counts[c], t, root));
    check(keeps(r, t, buf, root, 0, counts[c]), "broadcast of %lld %s from %d", (long long)counts[c], dtype_name(t),
          root);
}

/* Uneven parts, the second empty. */
static inline void cut(int64_t n, int world, int64_t *part) {
    for (int k = 0; k <= world; k++) part[k] = k == world ? n : n * k * k / (world * world);
    if (world > 2) part[2] = part[1];
}

static inline bool parts_are(struct rank *r, enum dtype t, const char *buf, const int64_t *part, bool others) {
    for (int k = 0; k < r->of->world; k++)
        if (!keeps(r, t, buf, others ? k : r->index, part[k], part[k + 1])) return false;
    return true;
}

static inline void parted(struct rank *r, char *buf, const struct expected *e, int c, enum dtype t, int root) {
    int64_t part[MAX_WORLD + 1], n = counts[c];
    int me = r->index;
    size_t size = dtype_size(t);
    cut(n, r->of->world, part);
    give(r, t, buf, me, n);
    check_ok(group_all_gather(r->group, GROUP_INLINE, buf, part, t));
    check(parts_are(r, t, buf, part, true), "all_gather of %lld", (long long)n);

    give(r, t, buf, me, n);
    check_ok(group_gather(r->group, GROUP_INLINE, buf, part, t, root));
    check(parts_are(r, t, buf, part, me == root), "gather of %lld to %d", (long long)n, root);

    give(r, t, buf, me, n);
    check_ok(group_scatter(r->group, GROUP_INLINE, buf, part, t, root));
    check(keeps(r, t, buf, root, part[me], part[me + 1]), "scatter of %lld", (long long)n);
    check(keeps(r, t, buf, me, 0, part[me]) && keeps(r, t, buf, me, part[me + 1], n),
          "scatter of %lld changed other parts", (long long)n);

    give(r, t, buf, me, n);
    check_ok(group_reduce_scatter(r->group, GROUP_INLINE, buf, part, t, REDOP_MAX));
    int64_t mine = part[me + 1] - part[me];
    size_t at = (size_t)part[me] * size;
    if (tried(c, t, REDOP_MAX))
        check(has(r, buf + at, e->sum[c][t][REDOP_MAX] + at, mine, t), "reduce_scatter of %lld", (long long)n);
    check(keeps(r, t, buf, me, 0, part[me]) && keeps(r, t, buf, me, part[me + 1], n),
          "reduce_scatter of %lld changed other parts", (long long)n);

    bool apart = !device_holds(r->device, buf); /* which not all ranks of a world have alike */
    char *into = malloc((size_t)mine * size + 1);
    give(r, t, buf, me, n);
    check_ok(group_reduce_scatter(r->group, (struct dispatch){.lane = LANE_INLINE, .own = apart ? into : NULL}, buf,
                                  part, t, REDOP_MAX));
    if (apart && tried(c, t, REDOP_MAX))
        check(has(r, into, e->sum[c][t][REDOP_MAX] + at, mine, t), "reduce_scatter of %lld into another buffer",
              (long long)n);
    if (apart)
        check(keeps(r, t, buf, me, 0, n), "reduce_scatter of %lld into another buffer changed the first", (long long)n);
    free(into);
}

/* Memory of n bytes whose first lies behind a page that nobody may touch, or whose last lies before one. */
struct island {
    char *map, *at;
    size_t bytes;
};

static inline struct island island_map(struct rank *r, size_t n, bool first) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (n + page - 1) / page * page, all = inner + 2 * page;
    char *map = mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(map != MAP_FAILED && mprotect(map + page, inner, PROT_READ | PROT_WRITE) == 0, "no memory for an island");
    return (struct island){map, map + page + (first ? 0 : inner - n), all};
}

/* Ranks that are not root have nothing but their own part. */
static inline void parted_alone(struct rank *r, char *buf, int c, enum dtype t, int root) {
    int64_t part[MAX_WORLD + 1];
    int me = r->index;
    cut(counts[c], r->of->world, part);
    size_t at = (size_t)part[me] * dtype_size(t), bytes = (size_t)(part[me + 1] - part[me]) * dtype_size(t);
    bool alone = !device_holds(r->device, buf);
    struct island own = island_map(r, bytes, me % 2);
    const struct dispatch how = {.lane = LANE_INLINE, .own = alone ? own.at : NULL};
    give(r, t, buf, me, counts[c]);
    if (bytes) memcpy(own.at, inputs[t][me] + at, bytes);
    check_ok(group_gather(r->group, how, alone && me != root ? NULL : buf, part, t, root));
    if (me == root) check(parts_are(r, t, buf, part, true), "gather of islands, %lld", (long long)counts[c]);

    give(r, t, buf, me, counts[c]);
    if (bytes) memset(own.at, 0x77, bytes);
    check_ok(group_scatter(r->group, how, alone && me != root ? NULL : buf, part, t, root));
    if (alone) check(has(r, own.at, inputs[t][root] + at, part[me + 1] - part[me], t), "scatter to islands");
    munmap(own.map, own.bytes);
}

/* Rank a sends b (7 a + 3 b) % 11 elements, which begin in its own input where those to b - 1 end.
 * Some parts are empty. */
static inline int64_t parcel(int a, int b) {
    return (7 * a + 3 * b) % 11 * (a == b ? 1 : 37);
}

static inline void exchanges(struct rank *r, char *send, char *recv, enum lane lane) {
    int64_t to[MAX_WORLD + 1] = {0}, from[MAX_WORLD + 1] = {0};
    int w = r->of->world, me = r->index;
    struct work *work = NULL;
    enum dtype t = lane == LANE_COMM ? DTYPE_I64 : DTYPE_BF16;
    for (int k = 0; k < w; k++) {
        to[k + 1] = to[k] + parcel(me, k);
        from[k + 1] = from[k] + parcel(k, me);
    }
    give(r, t, send, me, to[w]);
    check_ok(group_all_to_all(r->group, GROUP_ON(lane, &work), send, to, recv, from, t));
    finish(r, work);
    for (int k = 0; k < w; k++) {
        int64_t at = 0;
        for (int b = 0; b < me; b++) at += parcel(k, b);
        check(
            has(r, recv + (size_t)from[k] * dtype_size(t), inputs[t][k] + (size_t)at * dtype_size(t), parcel(k, me), t),
            "all_to_all from %d", k);
    }
}

/* To the right, from the left; odd ranks receive first, since a large send waits for its receiver.
 */
static inline void pairs(struct rank *r, char *buf, int64_t n, enum lane lane) {
    int world = r->of->world, right = (r->index + 1) % world, left = (r->index + world - 1) % world;
    struct work *first = NULL, *second = NULL;
    char *to = buf + (size_t)n * 4;
    if (world == 1) return;
    give(r, DTYPE_I32, buf, r->index, n);
    if (r->index % 2) {
        check_ok(group_recv(r->group, GROUP_ON(lane, &first), to, n, DTYPE_I32, left));
        check_ok(group_send(r->group, GROUP_ON(lane, &second), buf, n, DTYPE_I32, right));
    } else {
        check_ok(group_send(r->group, GROUP_ON(lane, &first), buf, n, DTYPE_I32, right));
        check_ok(group_recv(r->group, GROUP_ON(lane, &second), to, n, DTYPE_I32, left));
    }
    finish(r, second);
    finish(r, first);
    check(keeps(r, DTYPE_I32, to, left, 0, n), "send and recv of %lld", (long long)n);
}

/* Several in flight on the communication lane while the caller goes on with its own, waited for in
 * any order. */
static inline void both_lanes(struct rank *r, char *buf, const struct expected *e) {
    enum { FLIGHTS = 6, N = 4 }; /* counts[N] elements each */
    static const int order[FLIGHTS] = {3, 0, 5, 1, 2, 4};
    const char *want = e->sum[N][DTYPE_F32][REDOP_SUM];
    struct work *w[FLIGHTS] = {NULL};
    char *slice[FLIGHTS + 1];
    for (int i = 0; i <= FLIGHTS; i++) give(r, DTYPE_F32, slice[i] = buf + (size_t)i * 4096, r->index, counts[N]);
    for (int i = 0; i < FLIGHTS; i++)
        check_ok(group_all_reduce(r->group, GROUP_COMM(&w[i]), slice[i], counts[N], DTYPE_F32, REDOP_SUM));
    check_ok(group_all_reduce(r->group, GROUP_INLINE, slice[FLIGHTS], counts[N], DTYPE_F32, REDOP_SUM));
    check_ok(group_barrier(r->group));
    for (int i = 0; i < FLIGHTS; i++) finish(r, w[order[i]]);
    for (int i = 0; i <= FLIGHTS; i++) check(has(r, slice[i], want, counts[N], DTYPE_F32), "flight %d", i);
}

/* Large ones on both lanes at once, which must not mix. */
static inline void both_lanes_large(struct rank *r, char *a, char *b, const struct expected *e) {
    struct work *w = NULL;
    give(r, DTYPE_F32, a, r->index, MOST);
    give(r, DTYPE_I32, b, r->index, MOST);
    check_ok(group_all_reduce(r->group, GROUP_COMM(&w), a, MOST, DTYPE_F32, REDOP_SUM));
    check_ok(group_all_reduce(r->group, GROUP_INLINE, b, MOST, DTYPE_I32, REDOP_SUM));
    finish(r, w);
    check(has(r, a, e->sum[LARGE][DTYPE_F32][REDOP_SUM], MOST, DTYPE_F32), "comm lane");
    check(has(r, b, e->sum[LARGE][DTYPE_I32][REDOP_SUM], MOST, DTYPE_I32), "inline lane");
}

static inline void everything(struct rank *r, char *buf, char *other, bool few) {
    const struct expected *e = r->of->user;
    int last = r->of->world - 1;
    sums(r, buf, e, few);
    for (int c = 0; c < COUNTS; c++) {
        int root = c % 2 ? 0 : last;
        reduces(r, buf, e, c, root);
        broadcasts(r, buf, c, c % 3 ? DTYPE_F64 : DTYPE_U8, last / 2);
        parted(r, buf, e, c, c % 3 ? DTYPE_U8 : DTYPE_I64, root);
        parted_alone(r, buf, c, c % 3 ? DTYPE_U8 : DTYPE_I64, root);
        pairs(r, buf, counts[c], c % 2 ? LANE_COMM : LANE_INLINE);
    }
    if (!few) reduces_of_all_types(r, buf, e);
    exchanges(r, buf, other, LANE_INLINE);
    exchanges(r, buf, other, LANE_COMM);
    both_lanes(r, buf, e);
    both_lanes_large(r, buf, other, e);
}

/* What rank r puts in at i: a NaN at every place from one rank, but for some places from none and from two. */
static inline double with_nan(enum dtype t, int world, int rank, int64_t i) {
    bool nan = (i + rank) % (world + 1) == 0 || (i % 7 == 3 && rank == 0);
    return nan ? (double)NAN : input_value(t, rank, i);
}

/* A NaN comes through sums, minima and maxima; without one the least and the largest are exact. */
static inline void nans(struct rank *r, char *buf, int64_t n, enum dtype t, enum redop op) {
    int world = r->of->world, bad = 0;
    for (int64_t i = 0; i < n; i++) input_put(t, buf, i, with_nan(t, world, r->index, i));
    check_ok(group_all_reduce(r->group, GROUP_INLINE, buf, n, t, op));
    for (int64_t i = 0; i < n; i++) {
        _Alignas(8) char want[8], other[8];
        bool nan = false;
        for (int k = 0; k < world; k++) {
            double v = with_nan(t, world, k, i);
            nan = nan || isnan(v);
            input_put(t, k ? other : want, 0, v);
            if (k) pair(t, op, want, other);
        }
        double got = input_get(t, buf, i);
        bad += nan ? !isnan(got) : op != REDOP_SUM && got != input_get(t, want, 0);
    }
    check(bad == 0, "%d of %lld %s with NaNs are wrong, op %d", bad, (long long)n, dtype_name(t), (int)op);
}

static inline void all_nans(struct rank *r, char *buf) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16};
    for (int t = 0; t < 4; t++)
        for (enum redop op = REDOP_SUM; op <= REDOP_MAX; op++)
            for (int c = 0; c < COUNTS && op != REDOP_PROD; c++)
                if (counts[c] == 17 || counts[c] == 4096 + 5) nans(r, buf, counts[c], types[t], op);
}

/* With memory that peers can read, with memory that they cannot, and with one of each. */
static inline void conform(struct rank *r) {
    enum { BYTES = MOST * 8 + 64 };
    void *shared, *shared2, *own = malloc(BYTES), *own2 = malloc(BYTES);
    check_ok(group_alloc(r->group, BYTES, &shared));
    check_ok(group_alloc(r->group, BYTES, &shared2));
    if (*r->wrong) return;
    everything(r, shared, shared2, false);
    everything(r, own, own2, true);
    all_nans(r, shared);
    all_nans(r, own);
    bool odd = r->index % 2;
    check_ok(group_all_reduce(r->group, GROUP_INLINE, odd ? own : shared, 0, DTYPE_F32, REDOP_SUM));
    both_lanes_large(r, odd ? own : shared, odd ? shared2 : own2, r->of->user);
    free(own);
    free(own2);
}

/* Memory of the accelerators, of the hosts, and where that may be, of both. */
static inline void conform_carried(struct rank *r) {
    enum { BYTES = MOST * 8 + 64 };
    void *there, *there2, *own = malloc(BYTES), *own2 = malloc(BYTES);
    const char *why, *carrier = group_carrier(r->group, &why);
    check_ok(group_alloc(r->group, BYTES, &there));
    check_ok(group_alloc(r->group, BYTES, &there2));
    check(strcmp(carrier, r->of->expect) == 0, "carrier %s (%s)", carrier, why);
    if (*r->wrong) return;
    check(device_holds(r->device, there) == (r->device != NULL), "whose memory it is");
    everything(r, there, there2, false);
    everything(r, own, own2, true);
    bool odd = r->index % 2;
    if (!strcmp(carrier, "staged")) both_lanes_large(r, odd ? own : there, odd ? there2 : own2, r->of->user);
    free(own);
    free(own2);
}

/* ---- ranks that share out more leaves than they are ---- */

enum { LEAVES = 16 };

/* This rank's subtrees side by side, 'apart' elements each: leaf v is what rank v would put in. */
static inline int subtrees(struct rank *r, char *buf, int64_t n, int64_t apart) {
    int givers = r->of->world - r->of->idle, me = group_position(r->group) - r->of->idle, k = 0;
    if (me < 0) return 0;
    int at = leaves_cut(LEAVES, givers, me), end = leaves_cut(LEAVES, givers, me + 1);
    float *sum = malloc((size_t)n * sizeof *sum * LEAVES);
    for (int size = 1; at < end; at += size, size = 1, k++) {
        while (at % (2 * size) == 0 && at + 2 * size <= end) size *= 2;
        for (int v = 0; v < size; v++) memcpy(sum + v * n, inputs[DTYPE_F32][at + v], (size_t)n * sizeof *sum);
        for (int far = 1; far < size; far *= 2)
            for (int v = 0; v < size; v += 2 * far)
                for (int64_t i = 0; i < n; i++) sum[v * n + i] += sum[(v + far) * n + i];
        char *to = buf + (size_t)(k * apart) * sizeof *sum;
        if (!device_holds(r->device, to))
            memcpy(to, sum, (size_t)n * sizeof *sum);
        else if (n)
            check_ok(device_write(r->device, to, sum, (size_t)n * sizeof *sum));
    }
    free(sum);
    return k;
}

/* Ranks that give nothing have all parts, each its own: the others give to them, and receive from them. */
static inline void serve_parts(struct rank *r, struct dispatch how, char *buf, const char *want, int64_t n) {
    int64_t part[MAX_WORLD + 1];
    int idle = r->of->idle, me = r->index;
    for (int p = 0; p <= r->of->world; p++) part[p] = p < idle ? n * p / idle : n;
    check_ok(group_reduce_scatter(r->group, how, buf, part, DTYPE_F32, REDOP_SUM));
    finish(r, *how.work);
    int64_t lo = part[me], own = part[me + 1] - lo;
    check(has(r, buf + (size_t)lo * 4, want + (size_t)lo * 4, own, DTYPE_F32), "parts of %lld", (long long)n);
    how.givers = true;
    how.apart = 0;
    check_ok(group_all_gather(r->group, how, buf, part, DTYPE_F32));
    finish(r, *how.work);
    if (me >= idle) check(has(r, buf, want, n, DTYPE_F32), "all parts of %lld", (long long)n);
}

static inline void sum_leaves(struct rank *r, char *buf, const struct expected *e, int c, int64_t apart) {
    int64_t n = counts[c], part[MAX_WORLD + 1];
    int world = r->of->world, root = c % world;
    const char *want = e->sum[c][DTYPE_F32][REDOP_SUM];
    struct dispatch how = {.lane = c % 2 ? LANE_COMM : LANE_INLINE, .apart = apart};
    struct work *w = NULL;
    how.work = &w;
    subtrees(r, buf, n, apart);
    if (!r->of->idle) {
        check_ok(group_all_reduce(r->group, how, buf, n, DTYPE_F32, REDOP_SUM));
        finish(r, w);
        check(has(r, buf, want, n, DTYPE_F32), "all_reduce of %lld over leaves", (long long)n);
        subtrees(r, buf, n, apart);
        for (int p = 0; p <= world; p++) part[p] = n * p * p / (world * world);
        check_ok(group_reduce_scatter(r->group, how, buf, part, DTYPE_F32, REDOP_SUM));
        finish(r, w);
        int64_t lo = part[r->index], own = part[r->index + 1] - lo;
        check(has(r, buf + (size_t)lo * 4, want + (size_t)lo * 4, own, DTYPE_F32), "reduce_scatter of %lld over leaves",
              (long long)n);
        subtrees(r, buf, n, apart);
    }
    if (r->of->idle) {
        root = 0;
        serve_parts(r, how, buf, want, n);
        subtrees(r, buf, n, apart);
    }
    check_ok(group_reduce(r->group, how, buf, n, DTYPE_F32, REDOP_SUM, root));
    finish(r, w);
    if (r->index == root) check(has(r, buf, want, n, DTYPE_F32), "reduce of %lld over leaves", (long long)n);
}

/* Sums of what ranks hold of LEAVES leaves, in memory that peers reach and in memory that they do not; user: the expected
 * ones of as many ranks. */
static inline void conform_leaves(struct rank *r) {
    enum { APART = MOST + 11, SUBTREES = 4 };
    size_t bytes = (size_t)APART * SUBTREES * sizeof(float);
    void *shared, *own = malloc(bytes);
    check_ok(group_alloc(r->group, bytes, &shared));
    for (int c = 0; c < COUNTS && !*r->wrong; c++) {
        if (!tried(c, DTYPE_F32, REDOP_SUM)) continue;
        sum_leaves(r, shared, r->of->user, c, APART);
        if (!*r->wrong && !r->of->devices) sum_leaves(r, own, r->of->user, c, counts[c] + 3);
    }
    free(own);
}

static inline void run_leaves(struct ranks p) {
    const struct standing all = {ORDER_TREE, LEAVES};
    struct expected *e = expected_make(&all);
    p.leaves = LEAVES;
    p.fn = conform_leaves;
    p.user = e;
    run_ranks(p, NULL);
    expected_free(e);
}
