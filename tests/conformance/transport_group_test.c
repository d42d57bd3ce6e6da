/* Every collective, over every link, algorithm and order, for many world sizes, counts and types.
 * Integers must be exact; floats must have the bits of a plain evaluation of the documented order.
 */
#include "tests/harness/harness.h"

#include "tests/conformance/ranks.h"
#include "transport/algo/algo.h"
#include "transport/link/link.h"

#ifdef ENGINE_SANITIZED /* ten times slower */
static const int worlds[] = {2, 3, 5};
enum { MOST = 20011 };
#else
static const int worlds[] = {1, 2, 3, 4, 5, 7, 8};
enum { MOST = 100003 };
#endif
static const int64_t counts[] = {0, 1, 2, 3, 17, 1000, 4096 + 5, MOST};
enum { WORLDS = sizeof worlds / sizeof *worlds, COUNTS = 8, LARGE = 7 };

/* ---- what each rank puts in, and what must come out ---- */

static double value(enum dtype t, int rank, int64_t i) {
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u * 65537u;
    h ^= h >> 15;
    switch (t) {
    case DTYPE_F32:
    case DTYPE_F64: /* of many magnitudes, so that every order rounds otherwise */
        return ((double)(h % 2001) - 1000.0) * (h % 3 ? 1e-3 : 1.7);
    case DTYPE_U8:
        return h % 256;
    default:
        return (double)(h % 2001) - 1000.0;
    }
}

static void put(enum dtype t, void *buf, int64_t i, double v) {
    switch (t) {
    case DTYPE_F32:
        ((float *)buf)[i] = (float)v;
        break;
    case DTYPE_F64:
        ((double *)buf)[i] = v;
        break;
    case DTYPE_I32:
        ((int32_t *)buf)[i] = (int32_t)v;
        break;
    case DTYPE_I64:
        ((int64_t *)buf)[i] = (int64_t)v;
        break;
    default:
        ((uint8_t *)buf)[i] = (uint8_t)v;
    }
}

/* Made once: what each rank holds at first. */
static char *inputs[DTYPES][MAX_WORLD];

static void inputs_make(void) {
    for (enum dtype t = 0; t < DTYPES; t++)
        for (int r = 0; r < MAX_WORLD; r++) {
            inputs[t][r] = calloc(MOST, dtype_size(t));
            for (int64_t i = 0; i < MOST; i++) put(t, inputs[t][r], i, value(t, r, i));
        }
}

static void inputs_free(void) {
    for (enum dtype t = 0; t < DTYPES; t++)
        for (int r = 0; r < MAX_WORLD; r++) free(inputs[t][r]);
}

static void fill(enum dtype t, void *buf, int rank, int64_t n) {
    memcpy(buf, inputs[t][rank], (size_t)n * dtype_size(t));
}

#define APPLY(a, b)                                                                                \
    (op == REDOP_SUM    ? (a) + (b)                                                                \
     : op == REDOP_PROD ? (a) * (b)                                                                \
     : op == REDOP_MIN  ? ((a) < (b) ? (a) : (b))                                                  \
                        : ((a) > (b) ? (a) : (b)))
/* One addition in the type's own arithmetic; integers wrap. */
#define PAIR(type, wide) (*(type *)a = (type)APPLY((wide) * (type *)a, (wide) * (const type *)b))
static void pair(enum dtype t, enum redop op, void *a, const void *b) {
    bool order = op == REDOP_MIN || op == REDOP_MAX; /* compares, so needs the sign */
    switch (t) {
    case DTYPE_F32:
        PAIR(float, float);
        break;
    case DTYPE_F64:
        PAIR(double, double);
        break;
    case DTYPE_I32:
        order ? PAIR(int32_t, int32_t) : PAIR(int32_t, uint32_t);
        break;
    case DTYPE_I64:
        order ? PAIR(int64_t, int64_t) : PAIR(int64_t, uint64_t);
        break;
    default:
        PAIR(uint8_t, uint32_t);
    }
}

/* The documented orders, one element at a time. */
static void serial(enum order order, int world, enum dtype t, enum redop op, int64_t n, int64_t i,
                   void *out) {
    _Alignas(8) char v[MAX_WORLD][8];
    size_t size = dtype_size(t);
    for (int r = 0; r < world; r++) memcpy(v[r], inputs[t][r] + (size_t)i * size, size);
    int chunk = 0;
    while (order == ORDER_RING && i >= (chunk + 1) * n / world) chunk++;
    for (int k = 1; order == ORDER_RING && k < world; k++)
        pair(t, op, v[chunk], v[(chunk + k) % world]);
    for (int m = world, h; order == ORDER_TREE && m > 1; m = h) {
        h = (m + 1) / 2;
        for (int r = 0; r + h < m; r++) pair(t, op, v[r], v[r + h]);
    }
    memcpy(out, v[chunk], size);
}

static void expect(enum order order, int world, enum dtype t, enum redop op, int64_t n, char *out) {
    size_t size = dtype_size(t);
    for (int64_t i = 0; i < n; i++) serial(order, world, t, op, n, i, out + (size_t)i * size);
}

/* Expected sums of one world and order, shared by all links and algorithms: [count][type][op]. */
struct expected {
    char *sum[COUNTS][DTYPES][REDOPS];
};

/* Two counts are tried with all operations, the others with one a type. */
static bool tried(int count, enum dtype t, enum redop op) {
    static const enum redop one[DTYPES] = {REDOP_SUM, REDOP_PROD, REDOP_SUM, REDOP_MIN, REDOP_MAX};
    return counts[count] == 17 || counts[count] == 4096 + 5 || op == one[t];
}

#define EACH_SUM(c, t, op)                                                                         \
    for (int c = 0; c < COUNTS; c++)                                                               \
        for (enum dtype t = 0; t < DTYPES; t++)                                                    \
            for (enum redop op = 0; op < REDOPS; op++)                                             \
                if (tried(c, t, op))

static struct expected *expected_make(enum order order, int world) {
    struct expected *e = calloc(1, sizeof *e);
    assert_non_null(e);
    EACH_SUM(c, t, op) {
        e->sum[c][t][op] = malloc((size_t)counts[c] * 8 + 8);
        expect(order, world, t, op, counts[c], e->sum[c][t][op]);
    }
    return e;
}

static void expected_free(struct expected *e) {
    EACH_SUM(c, t, op) free(e->sum[c][t][op]);
    free(e);
}

/* ---- the collectives, as one rank sees them ---- */

static bool same(const void *a, const void *b, int64_t n, enum dtype t) {
    return n == 0 || memcmp(a, b, (size_t)n * dtype_size(t)) == 0;
}

/* buf still holds, or has got, what 'rank' put into [lo, hi). */
static bool untouched(enum dtype t, const char *buf, int rank, int64_t lo, int64_t hi) {
    size_t at = (size_t)lo * dtype_size(t);
    return same(buf + at, inputs[t][rank] + at, hi - lo, t);
}

/* few: memory that takes the other way, but is added by the same loops. */
static void sums(struct rank *r, char *buf, const struct expected *e, bool few) {
    EACH_SUM(c, t, op) {
        if (few && !tried(LARGE, t, op)) continue;
        fill(t, buf, r->index, counts[c]);
        check_ok(group_all_reduce(r->group, LANE_INLINE, buf, counts[c], t, op, NULL));
        check(same(buf, e->sum[c][t][op], counts[c], t), "all_reduce of %lld %s, op %d",
              (long long)counts[c], dtype_name(t), (int)op);
    }
}

static void reduces(struct rank *r, char *buf, const struct expected *e, int c, int root) {
    enum dtype t = DTYPE_F32;
    fill(t, buf, r->index, counts[c]);
    check_ok(group_reduce(r->group, LANE_INLINE, buf, counts[c], t, REDOP_SUM, root, NULL));
    if (r->index == root)
        check(same(buf, e->sum[c][t][REDOP_SUM], counts[c], t), "reduce of %lld to %d",
              (long long)counts[c], root);
    else
        check(untouched(t, buf, r->index, 0, counts[c]), "reduce of %lld to %d changed a peer's",
              (long long)counts[c], root);
}

static void broadcasts(struct rank *r, char *buf, int c, enum dtype t, int root) {
    fill(t, buf, r->index, counts[c]);
    check_ok(group_broadcast(r->group, LANE_INLINE, buf, counts[c], t, root, NULL));
    check(untouched(t, buf, root, 0, counts[c]), "broadcast of %lld %s from %d",
          (long long)counts[c], dtype_name(t), root);
}

/* Uneven parts, the second empty. */
static void cut(int64_t n, int world, int64_t *part) {
    for (int k = 0; k <= world; k++) part[k] = k == world ? n : n * k * k / (world * world);
    if (world > 2) part[2] = part[1];
}

static bool parts_are(struct rank *r, enum dtype t, const char *buf, const int64_t *part,
                      bool others) {
    for (int k = 0; k < r->of->world; k++)
        if (!untouched(t, buf, others ? k : r->index, part[k], part[k + 1])) return false;
    return true;
}

static void parted(struct rank *r, char *buf, const struct expected *e, int c, enum dtype t,
                   int root) {
    int64_t part[MAX_WORLD + 1], n = counts[c];
    int me = r->index;
    size_t size = dtype_size(t);
    cut(n, r->of->world, part);
    fill(t, buf, me, n);
    check_ok(group_all_gather(r->group, LANE_INLINE, buf, part, t, NULL));
    check(parts_are(r, t, buf, part, true), "all_gather of %lld", (long long)n);

    fill(t, buf, me, n);
    check_ok(group_gather(r->group, LANE_INLINE, buf, part, t, root, NULL));
    check(parts_are(r, t, buf, part, me == root), "gather of %lld to %d", (long long)n, root);

    fill(t, buf, me, n);
    check_ok(group_scatter(r->group, LANE_INLINE, buf, part, t, root, NULL));
    check(untouched(t, buf, root, part[me], part[me + 1]), "scatter of %lld", (long long)n);
    check(untouched(t, buf, me, 0, part[me]) && untouched(t, buf, me, part[me + 1], n),
          "scatter of %lld changed other parts", (long long)n);

    fill(t, buf, me, n);
    check_ok(group_reduce_scatter(r->group, LANE_INLINE, buf, part, t, REDOP_MAX, NULL));
    int64_t mine = part[me + 1] - part[me];
    size_t at = (size_t)part[me] * size;
    if (tried(c, t, REDOP_MAX))
        check(same(buf + at, e->sum[c][t][REDOP_MAX] + at, mine, t), "reduce_scatter of %lld",
              (long long)n);
    check(untouched(t, buf, me, 0, part[me]) && untouched(t, buf, me, part[me + 1], n),
          "reduce_scatter of %lld changed other parts", (long long)n);
}

/* To the right, from the left; odd ranks receive first, since a large send waits for its receiver.
 */
static void pairs(struct rank *r, char *buf, int64_t n, enum lane lane) {
    int world = r->of->world, right = (r->index + 1) % world, left = (r->index + world - 1) % world;
    struct work *first, *second;
    char *to = buf + (size_t)n * 4;
    if (world == 1) return;
    fill(DTYPE_I32, buf, r->index, n);
    if (r->index % 2) {
        check_ok(group_recv(r->group, lane, to, n, DTYPE_I32, left, &first));
        check_ok(group_send(r->group, lane, buf, n, DTYPE_I32, right, &second));
    } else {
        check_ok(group_send(r->group, lane, buf, n, DTYPE_I32, right, &first));
        check_ok(group_recv(r->group, lane, to, n, DTYPE_I32, left, &second));
    }
    check_ok(work_wait(second));
    check_ok(work_wait(first));
    check(untouched(DTYPE_I32, to, left, 0, n), "send and recv of %lld", (long long)n);
}

/* Several in flight on the communication lane while the caller goes on with its own, waited for in
 * any order. */
static void both_lanes(struct rank *r, char *buf, const struct expected *e) {
    enum { FLIGHTS = 6, N = 4 }; /* counts[N] elements each */
    static const int order[FLIGHTS] = {3, 0, 5, 1, 2, 4};
    const char *want = e->sum[N][DTYPE_F32][REDOP_SUM];
    struct work *w[FLIGHTS];
    char *slice[FLIGHTS + 1];
    for (int i = 0; i <= FLIGHTS; i++)
        fill(DTYPE_F32, slice[i] = buf + (size_t)i * 4096, r->index, counts[N]);
    for (int i = 0; i < FLIGHTS; i++)
        check_ok(group_all_reduce(r->group, LANE_COMM, slice[i], counts[N], DTYPE_F32, REDOP_SUM,
                                  &w[i]));
    check_ok(group_all_reduce(r->group, LANE_INLINE, slice[FLIGHTS], counts[N], DTYPE_F32,
                              REDOP_SUM, NULL));
    check_ok(group_barrier(r->group));
    for (int i = 0; i < FLIGHTS; i++) check_ok(work_wait(w[order[i]]));
    for (int i = 0; i <= FLIGHTS; i++)
        check(same(slice[i], want, counts[N], DTYPE_F32), "flight %d", i);
}

/* Large ones on both lanes at once, which must not mix. */
static void both_lanes_large(struct rank *r, char *a, char *b, const struct expected *e) {
    struct work *w;
    fill(DTYPE_F32, a, r->index, MOST);
    fill(DTYPE_I32, b, r->index, MOST);
    check_ok(group_all_reduce(r->group, LANE_COMM, a, MOST, DTYPE_F32, REDOP_SUM, &w));
    check_ok(group_all_reduce(r->group, LANE_INLINE, b, MOST, DTYPE_I32, REDOP_SUM, NULL));
    check_ok(work_wait(w));
    check(same(a, e->sum[LARGE][DTYPE_F32][REDOP_SUM], MOST, DTYPE_F32), "comm lane");
    check(same(b, e->sum[LARGE][DTYPE_I32][REDOP_SUM], MOST, DTYPE_I32), "inline lane");
}

static void everything(struct rank *r, char *buf, char *other, bool few) {
    const struct expected *e = r->of->user;
    int last = r->of->world - 1;
    sums(r, buf, e, few);
    for (int c = 0; c < COUNTS; c++) {
        int root = c % 2 ? 0 : last;
        reduces(r, buf, e, c, root);
        broadcasts(r, buf, c, c % 3 ? DTYPE_F64 : DTYPE_U8, last / 2);
        parted(r, buf, e, c, c % 3 ? DTYPE_U8 : DTYPE_I64, root);
        pairs(r, buf, counts[c], c % 2 ? LANE_COMM : LANE_INLINE);
    }
    both_lanes(r, buf, e);
    both_lanes_large(r, buf, other, e);
}

/* With memory that peers can read, with memory that they cannot, and with one of each. */
static void conform(struct rank *r) {
    enum { BYTES = MOST * 8 + 64 };
    void *shared, *shared2, *own = malloc(BYTES), *own2 = malloc(BYTES);
    check_ok(group_alloc(r->group, BYTES, &shared));
    check_ok(group_alloc(r->group, BYTES, &shared2));
    if (*r->wrong) return;
    everything(r, shared, shared2, false);
    everything(r, own, own2, true);
    bool odd = r->index % 2;
    check_ok(
        group_all_reduce(r->group, LANE_INLINE, odd ? own : shared, 0, DTYPE_F32, REDOP_SUM, NULL));
    both_lanes_large(r, odd ? own : shared, odd ? shared2 : own2, r->of->user);
    free(own);
    free(own2);
}

static void run_all(const char *link, const char *algorithm) {
    const struct algo_ops *a = algo_find(algorithm);
    for (enum order order = ORDER_TREE; order <= ORDER_RING; order++) {
        for (int i = 0; i < WORLDS && a->orders[order]; i++) {
            struct expected *e = expected_make(order, worlds[i]);
            run_ranks((struct ranks){.world = worlds[i],
                                     .link = link,
                                     .algorithm = algorithm,
                                     .order = order,
                                     .fn = conform,
                                     .user = e},
                      NULL);
            expected_free(e);
        }
    }
}

static void conformance(void **state) {
    int links, algos;
    const struct link_ops *const *link = link_kinds(&links);
    const struct algo_ops *const *algo = algo_list(&algos);
    (void)state;
    for (int l = 0; l < links; l++)
        for (int a = 0; a < algos; a++) run_all(link[l]->name, algo[a]->name);
}

/* ---- bytes ---- */

enum { MOVED = 64000 };
struct moved {
    const char *algorithm;
    bool private;
    struct group_stats *out; /* of each rank */
};

static void move_all(struct rank *r) {
    const struct moved *m = r->of->user;
    void *buf, *own = calloc(MOVED, 4);
    check_ok(group_alloc(r->group, MOVED * 4, &buf));
    if (*r->wrong) return;
    check_ok(group_all_reduce(r->group, LANE_INLINE, m->private ? own : buf, MOVED, DTYPE_F32,
                              REDOP_SUM, NULL));
    group_get_stats(r->group, &m->out[r->index]);
    free(own);
}

/* All-reduce of K bytes: 2(W-1)/W K each way, but a star's centre (W-1) K and its others K. */
static void bytes_are_the_formulas(void **state) {
    (void)state;
    for (int k = 0; k < 6; k++) {
        static const char *const names[] = {"direct", "ring", "star"};
        struct group_stats stats[4];
        struct moved m = {names[k % 3], k >= 3, stats};
        run_ranks((struct ranks){.world = 4,
                                 .link = "thread",
                                 .algorithm = m.algorithm,
                                 .order = ORDER_RING,
                                 .fn = move_all,
                                 .user = &m},
                  NULL);
        for (int r = 0; r < 4; r++) {
            int64_t want = k % 3 < 2 ? 2 * 3 * MOVED : r ? 4 * MOVED : 12 * MOVED;
            assert_int_equal(stats[r].sent, want);
            assert_int_equal(stats[r].received, want);
            assert_int_equal(stats[r].collectives, 1);
        }
    }
}

/* ---- a server that only adds ---- */

/* The sum of ranks 1.. as if they were a group of their own, whatever the memory. */
static void idle_root(struct rank *r) {
    const char *want = r->of->user; /* of ranks 1.. */
    void *shared, *own = malloc(MOST * 4);
    struct group_stats stats;
    check_ok(group_alloc(r->group, MOST * 4, &shared));
    if (*r->wrong) return;
    for (int i = 0; i < 4; i++) {
        char *buf = i % 2 ? own : shared;
        int64_t n = i < 2 ? MOST : 10;
        for (int64_t k = 0; k < n; k++) ((float *)(void *)buf)[k] = (float)(r->index * (k + 1)) / 3;
        check_ok(group_reduce(r->group, LANE_INLINE, buf, n, DTYPE_F32, REDOP_SUM, 0, NULL));
        if (r->index == 0 && n == MOST) check(same(buf, want, n, DTYPE_F32), "case %d", i);
    }
    group_get_stats(r->group, &stats);
    if (r->index == 0) check(stats.received >= (int64_t)(r->of->world - 1) * MOST * 4, "received");
    free(own);
}

static void a_root_that_only_adds(void **state) {
    static float want[MOST];
    static const char *const names[] = {"direct", "star"};
    (void)state;
    for (int64_t k = 0; k < MOST; k++) { /* ranks 1, 2, 3 in tree order: (1 + 3) + 2 */
        want[k] = (float)(k + 1) / 3 + (float)(3 * (k + 1)) / 3;
        want[k] += (float)(2 * (k + 1)) / 3;
    }
    for (int a = 0; a < 2; a++)
        run_ranks((struct ranks){.world = 4,
                                 .link = "thread",
                                 .algorithm = names[a],
                                 .idle = 1,
                                 .fn = idle_root,
                                 .user = want},
                  NULL);
}

/* ---- processes ---- */

static int process_rank(int rank, int world) {
    struct meeting *m;
    struct expected *e = expected_make(ORDER_TREE, world);
    struct ranks p = {
        .world = world, .link = "shm", .algorithm = "direct", .fn = conform, .user = e};
    struct rank r = {.of = &p, .index = rank};
    if (meeting_join(RANK_FD, world, &m) != ERR_NONE) return 1;
    rank_run(&r, m);
    meeting_free(m);
    expected_free(e);
    if (*r.wrong) fprintf(stderr, "%s\n", r.wrong);
    return *r.wrong ? 1 : 0;
}

static void processes(void **state) {
    struct meeting *m;
    pid_t pid[3];
    (void)state;
    assert_ok(meeting_create_shared(3, &m));
    for (int i = 0; i < 3; i++) pid[i] = spawn_rank(m, i, 3, "conform");
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    meeting_free(m);
}

/* ---- nothing is allocated ---- */

static void steady(struct rank *r) {
    void *buf;
    struct work *w;
    check_ok(group_alloc(r->group, 400000, &buf));
    for (int i = 0; i < 20; i++) {
        if (i == 10 && r->index == 0) count_allocations_begin();
        check_ok(group_all_reduce(r->group, LANE_INLINE, buf, 100000, DTYPE_F32, REDOP_SUM, NULL));
        check_ok(group_all_reduce(r->group, LANE_COMM, buf, 100, DTYPE_F32, REDOP_SUM, &w));
        check_ok(work_wait(w));
    }
    check_ok(group_barrier(r->group));
    if (r->index == 0) check(count_allocations_end() == 0, "a step allocates");
    check_ok(group_barrier(r->group));
}

static void a_call_allocates_nothing(void **state) {
    (void)state;
    run_ranks((struct ranks){.world = 2, .link = "thread", .fn = steady}, NULL);
}

int main(int argc, char **argv) {
    inputs_make();
    if (argc == 5 && !strcmp(argv[1], "--rank")) return process_rank(atoi(argv[2]), atoi(argv[3]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_the_formulas),
        cmocka_unit_test(a_call_allocates_nothing),
        cmocka_unit_test(a_root_that_only_adds),
        cmocka_unit_test(processes),
        cmocka_unit_test(conformance),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    inputs_free();
    return failed;
}
