/* Cases of an all-reduce: values, bits of the order that it declares, both lanes, bytes, a rank that is late, one that
 * gives up, and memory that is left. What must come out is what order_sum makes of all inputs, the function that every
 * other algorithm agrees with bit for bit; where the order is the plug-in's own, what double precision says of them,
 * and one and the same on all ranks and again.
 *
 * A share is tried in the same way, but for its values: what becomes of weights is its own, as long as it is the same again,
 * and ranks that agree go on agreeing. */
#include "lab/check/check.h"

#include "engine/base/leaves.h"
#include "transport/algo/algo.h"
#include "transport/group.h"
#include "transport/launch/launch.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct trial { /* of each size of group */
    int64_t count;          /* below 0: so many for each rank, and one */
    enum dtype type;
    enum redop op;
    enum lane lane;
} trials[] = {
    {1, DTYPE_I64, REDOP_SUM, LANE_INLINE},     {2, DTYPE_F32, REDOP_SUM, LANE_INLINE},
    {3, DTYPE_F32, REDOP_SUM, LANE_COMM},       {-1, DTYPE_I64, REDOP_SUM, LANE_INLINE},
    {17, DTYPE_F32, REDOP_SUM, LANE_INLINE},    {-3, DTYPE_I32, REDOP_MAX, LANE_COMM},
    {1009, DTYPE_F32, REDOP_SUM, LANE_INLINE},  {1009, DTYPE_F64, REDOP_SUM, LANE_INLINE},
    {1009, DTYPE_BF16, REDOP_SUM, LANE_INLINE}, {1009, DTYPE_F32, REDOP_AVERAGE, LANE_INLINE},
    {4101, DTYPE_F32, REDOP_PROD, LANE_COMM},   {50021, DTYPE_F32, REDOP_SUM, LANE_COMM},
    {50021, DTYPE_U8, REDOP_XOR, LANE_INLINE},
};
enum { TRIALS = sizeof trials / sizeof *trials, WORLD_MOST = CHECK_SIZES };

struct world { /* what the ranks of a case share */
    const struct check *check;
    const struct algo_ops *algo;
    const struct plugin *meets; /* a share's; NULL: an algorithm's */
    bool own;                   /* adds in an order of its own */
    int size;
    enum order order;
    struct meeting *meeting;
    void (*fn)(struct world *w, struct group *g, int rank);
    void *seen[WORLD_MOST];                    /* each rank's last result */
    double away[WORLD_MOST], left[WORLD_MOST]; /* each rank's distance from the mean, before meetings and after them */
    pthread_barrier_t all;
};

static int64_t trial_length(const struct trial *t, int size) {
    return t->count > 0 ? t->count : -t->count * size + 1;
}

/* ---- ranks ---- */

static enum error world_rank_run(void *user, int rank) {
    struct world *w = user;
    struct group *g;
    const struct group_params p = {.rank = rank,
                                   .size = w->size,
                                   .link = "thread",
                                   .algorithm = w->meets ? "auto" : w->check->name,
                                   .order = w->order,
                                   .timeout = w->check->timeout,
                                   .meeting = w->meeting};
    if (group_open(&p, &g) != ERR_NONE) check_wrong("%s", error_message());
    w->fn(w, g, rank);
    group_close(g);
    return ERR_NONE;
}

static void world_run(void *user) {
    struct world *w = user;
    check_note("%d ranks", w->size);
    if (meeting_create(w->size, &w->meeting) || pthread_barrier_init(&w->all, NULL, (unsigned)w->size) ||
        launch_threads(w->size, world_rank_run, w))
        check_wrong("%d ranks: %s", w->size, error_message());
}

/* ---- values ---- */

static void trial_fill_input(const struct trial *t, void *to, int rank, int64_t n) {
    static const uint8_t shift[DTYPES] = {[DTYPE_BF16] = 16};
    for (int64_t i = 0; i < n; i++) {
        float x = check_value(rank, i);
        uint32_t u;
        memcpy(&u, &x, sizeof u);
        switch (t->type) {
        case DTYPE_F32:
            ((float *)to)[i] = x;
            break;
        case DTYPE_F64:
            ((double *)to)[i] = (double)x * 1.0000001;
            break;
        case DTYPE_BF16:
            ((uint16_t *)to)[i] = (uint16_t)(u >> shift[DTYPE_BF16]);
            break;
        case DTYPE_I64:
            ((int64_t *)to)[i] = (int64_t)u;
            break;
        case DTYPE_I32:
            ((int32_t *)to)[i] = (int32_t)(u % 5003);
            break;
        default:
            ((uint8_t *)to)[i] = (uint8_t)(u >> 9);
        }
    }
}

static double trial_value(enum dtype t, const void *x, int64_t i) {
    uint32_t u;
    float f;
    switch (t) {
    case DTYPE_F32:
        return (double)((const float *)x)[i];
    case DTYPE_F64:
        return ((const double *)x)[i];
    case DTYPE_BF16:
        u = (uint32_t)((const uint16_t *)x)[i] << 16;
        memcpy(&f, &u, sizeof f);
        return (double)f;
    case DTYPE_I64:
        return (double)((const int64_t *)x)[i];
    case DTYPE_I32:
        return ((const int32_t *)x)[i];
    default:
        return ((const uint8_t *)x)[i];
    }
}

static void trial_sum(const struct world *w, const struct trial *t, int64_t n, char *out) {
    int leaf[WORLD_MOST];
    uint8_t adds[WORLD_MOST];
    const char *in[WORLD_MOST];
    struct sum s = {.order = w->order, .type = t->type, .op = t->op, .ranks = w->size, .count = n, .terms = w->size};
    for (int r = 0; r < w->size; r++) {
        char *x = calloc((size_t)n, dtype_size(t->type));
        if (!x) check_wrong("no memory");
        trial_fill_input(t, x, r, n);
        in[r] = x, leaf[r] = r;
    }
    leaves_adds(leaf, w->size, adds);
    s.adds = adds;
    order_sum(&s, 0, n, in, &out, 1);
    for (int r = 0; r < w->size; r++) free((void *)(uintptr_t)in[r]);
}

/* Of sums in another order: near what this one gives. */
static bool trial_is_near(const struct trial *t, double a, double b, int size) {
    double eps = t->type == DTYPE_F32 ? 1e-6 : t->type == DTYPE_F64 ? 1e-14 : t->type == DTYPE_BF16 ? 8e-3 : 0;
    double scale = t->op == REDOP_PROD ? fabs(b) : 1.7e3;
    return a == b || fabs(a - b) <= eps * size * (scale > fabs(b) ? scale : fabs(b));
}

static void result_check(const struct world *w, const struct trial *t, int rank, const char *got, const char *want,
                         int64_t n) {
    size_t each = dtype_size(t->type);
    if (!memcmp(got, want, (size_t)n * each)) return;
    for (int64_t i = 0; i < n; i++) {
        double a = trial_value(t->type, got, i), b = trial_value(t->type, want, i);
        if (!memcmp(got + (size_t)i * each, want + (size_t)i * each, each)) continue;
        if (w->own && trial_is_near(t, a, b, w->size)) continue;
        bool order = trial_is_near(t, a, b, w->size);
        check_wrong("%d ranks, %lld elements of %s, %s: element %lld is %.9g on rank %d, and should be %.9g%s", w->size,
                    (long long)n, dtype_name(t->type), redop_name(t->op), (long long)i, a, rank, b,
                    !order                   ? ""
                    : w->order == ORDER_RING ? " (added in another order than the ring's)"
                                             : " (added in another order than the tree's)");
    }
}

/* meeting: its number, of a share. */
static enum error world_begin(const struct world *w, struct group *g, const struct trial *t, void *buf, int64_t n,
                              int64_t meeting) {
    struct work *work = NULL;
    struct dispatch how = GROUP_ON(t->lane, t->lane == LANE_COMM ? &work : NULL);
    struct mixing mixing = {.by = w->meets, .meeting = meeting};
    if (w->meets) mixing.room = guarded_alloc((size_t)n * sizeof *mixing.room, "the room");
    enum error err = w->meets ? group_mix(g, how, &mixing, buf, n) : group_all_reduce(g, how, buf, n, t->type, t->op);
    if (err == ERR_NONE && work) err = work_wait(work);
    if (w->meets) guarded_check(mixing.room, "the room");
    guarded_free(mixing.room);
    return err;
}

static void world_call(const struct world *w, struct group *g, const struct trial *t, void *buf, int64_t n) {
    check_note("%d ranks, %lld elements of %s, %s", w->size, (long long)n, dtype_name(t->type), redop_name(t->op));
    enum error err = world_begin(w, g, t, buf, n, 0);
    if (err)
        check_wrong("%d ranks, %lld elements of %s: %s", w->size, (long long)n, dtype_name(t->type), error_message());
}

/* A result of this order, which the first rank has. */
static void world_compare_ranks(struct world *w, const struct trial *t, int rank, char *buf, int64_t n) {
    w->seen[rank] = buf;
    pthread_barrier_wait(&w->all);
    if (memcmp(buf, w->seen[0], (size_t)n * dtype_size(t->type)) != 0)
        check_wrong("%d ranks, %lld elements of %s: ranks 0 and %d have other sums", w->size, (long long)n,
                    dtype_name(t->type), rank);
    pthread_barrier_wait(&w->all);
}

static void world_check_values(struct world *w, struct group *g, int rank) {
    for (int i = 0; i < TRIALS; i++) {
        const struct trial *t = &trials[i];
        int64_t n = trial_length(t, w->size);
        size_t bytes = (size_t)n * dtype_size(t->type);
        char *buf = guarded_alloc(bytes, "the buffer"), *want = malloc(bytes), *again = malloc(bytes);
        if (!want || !again) check_wrong("no memory");
        trial_fill_input(t, buf, rank, n);
        trial_sum(w, t, n, want);
        world_call(w, g, t, buf, n);
        guarded_check(buf, "the buffer");
        result_check(w, t, rank, buf, want, n);
        world_compare_ranks(w, t, rank, buf, n);
        memcpy(again, buf, bytes);
        trial_fill_input(t, buf, rank, n);
        world_call(w, g, t, buf, n);
        if (memcmp(again, buf, bytes) != 0)
            check_wrong("%d ranks, %lld elements of %s: the same call again gives other bits", w->size, (long long)n,
                        dtype_name(t->type));
        guarded_free(buf);
        free(want);
        free(again);
    }
}

/* Several at once, which are waited for in another order. */
static void world_check_flights(struct world *w, struct group *g, int rank) {
    enum { FLIGHTS = 5, N = 613 };
    static const int turn[FLIGHTS] = {3, 0, 4, 1, 2};
    const struct trial t = {.type = DTYPE_F32, .op = REDOP_SUM};
    float *x[FLIGHTS], want[N];
    struct work *work[FLIGHTS];
    check_note("%d ranks, %d calls at once", w->size, (int)FLIGHTS);
    trial_sum(w, &t, N, (char *)want);
    for (int i = 0; i < FLIGHTS; i++) {
        x[i] = guarded_alloc(sizeof want, "the buffer");
        trial_fill_input(&t, x[i], rank, N);
        if (group_all_reduce(g, GROUP_COMM(&work[i]), x[i], N, t.type, t.op)) check_wrong("%s", error_message());
    }
    for (int i = 0; i < FLIGHTS; i++) {
        if (work_wait(work[turn[i]])) check_wrong("%d calls at once: %s", (int)FLIGHTS, error_message());
        result_check(w, &t, rank, (char *)x[turn[i]], (char *)want, N);
    }
}

/* ---- bytes ---- */

/* What a rank has sent and received is held to its plan by each call. Here: what all send, all receive. */
static void world_check_bytes(struct world *w, struct group *g, int rank) {
    static _Atomic int64_t sent, received;
    enum { N = 60000 };
    struct group_stats before, after;
    const struct trial t = {.type = DTYPE_F32, .op = REDOP_SUM};
    float *x = calloc(N, sizeof *x);
    group_get_stats(g, &before);
    world_call(w, g, &t, x, N);
    group_get_stats(g, &after);
    sent += after.sent - before.sent;
    received += after.received - before.received;
    pthread_barrier_wait(&w->all);
    if (rank == 0 && sent != received)
        check_wrong("%d ranks send %lld bytes of a buffer of %d and receive %lld", w->size, (long long)sent,
                    (int)(N * sizeof *x), (long long)received);
    free(x);
}

/* ---- meetings ---- */

static void meeting_call(const struct world *w, struct group *g, float *x, int64_t n, int64_t meeting) {
    static const struct trial inline_f32 = {.type = DTYPE_F32};
    check_note("%d ranks, %lld weights, meeting %lld", w->size, (long long)n, (long long)meeting);
    if (world_begin(w, g, &inline_f32, x, n, meeting))
        check_wrong("%d ranks, %lld weights, meeting %lld: %s", w->size, (long long)n, (long long)meeting,
                    error_message());
    guarded_check(x, "the buffer");
}

/* Weights of all ranks alike, but for what rounding does to them. */
static void meeting_check_agreement(const struct world *w, struct group *g, int64_t n, int64_t meeting) {
    float *x = guarded_alloc((size_t)n * sizeof *x, "the buffer");
    for (int64_t i = 0; i < n; i++) x[i] = check_value(0, i);
    meeting_call(w, g, x, n, meeting);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i] - check_value(0, i)) <= 1e-5f * fabsf(check_value(0, i))))
            check_wrong("%d ranks, meeting %lld: all ranks have %.9g as weight %lld, and a rank goes on with %.9g",
                        w->size, (long long)meeting, (double)check_value(0, i), (long long)i, (double)x[i]);
    guarded_free(x);
}

static void world_check_meetings(struct world *w, struct group *g, int rank) {
    static const int64_t counts[] = {1, 2, 17, 1009, 50021};
    for (int64_t meeting = 0; meeting < 5; meeting++) {
        int64_t n = counts[meeting];
        float *x = guarded_alloc((size_t)n * sizeof *x, "the buffer"), *again = malloc((size_t)n * sizeof *again);
        if (!again) check_wrong("no memory");
        for (int turn = 0; turn < 2; turn++) {
            for (int64_t i = 0; i < n; i++) x[i] = check_value(rank, i);
            meeting_call(w, g, x, n, meeting);
            if (turn && memcmp(x, again, (size_t)n * sizeof *x) != 0)
                check_wrong("%d ranks, %lld weights: meeting %lld again gives other bits on rank %d", w->size,
                            (long long)n, (long long)meeting, rank);
            memcpy(again, x, (size_t)n * sizeof *x);
        }
        guarded_free(x);
        free(again);
        meeting_check_agreement(w, g, n, meeting);
    }
}

/* The largest distance of a weight of x from the mean of all ranks' first weights. */
static double mixing_distance(const struct world *w, const float *x, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        double mean = 0;
        for (int r = 0; r < w->size; r++) mean += (double)check_value(r, i) / w->size;
        if (fabs((double)x[i] - mean) > most) most = fabs((double)x[i] - mean);
    }
    return most;
}

/* How well a graph mixes: what is left of the ranks' differences from the mean, which no meeting may move, either. */
static void world_measure_mixing(struct world *w, struct group *g, int rank) {
    enum { WEIGHTS = 64 };
    float *x = guarded_alloc(WEIGHTS * sizeof *x, "the buffer");
    for (int64_t i = 0; i < WEIGHTS; i++) x[i] = check_value(rank, i);
    w->away[rank] = mixing_distance(w, x, WEIGHTS);
    for (int64_t meeting = 0; meeting < SHARE_MEETINGS; meeting++) meeting_call(w, g, x, WEIGHTS, meeting);
    w->left[rank] = mixing_distance(w, x, WEIGHTS);
    pthread_barrier_wait(&w->all);
    double first = 0, last = 0;
    for (int r = 0; r < w->size; r++) first = fmax(first, w->away[r]), last = fmax(last, w->left[r]);
    if (rank == 0) check_measured(last / first);
    pthread_barrier_wait(&w->all);
}

/* ---- others ---- */

/* Long enough that the others wait, however long they may wait at most. */
static void world_come_late(const struct world *w) {
    usleep((useconds_t)(fmin(w->check->timeout * 0.2, 0.4) * 1e6));
}

static void world_check_late(struct world *w, struct group *g, int rank) {
    const struct trial t = {.type = DTYPE_F32, .op = REDOP_SUM};
    float x[100], want[100];
    trial_sum(w, &t, 100, (char *)want);
    trial_fill_input(&t, x, rank, 100);
    if (rank == w->size - 1) world_come_late(w);
    world_call(w, g, &t, x, 100);
    if (!w->meets) result_check(w, &t, rank, (char *)x, (char *)want, 100);
}

/* One rank gives up where the others are within a call: that call fails on each of them. */
static void world_check_gives_up(struct world *w, struct group *g, int rank) {
    float x[1000] = {0};
    check_note("%d ranks, of which the last gives up during a call", w->size);
    if (rank == w->size - 1) {
        world_come_late(w);
        group_abort(g, "given up on purpose");
        return;
    }
    const struct trial t = {.type = DTYPE_F32, .op = REDOP_SUM};
    if (world_begin(w, g, &t, x, 1000, 0) == ERR_NONE)
        check_wrong("%d ranks: the last gave up during a call, and rank %d went on as if it were done", w->size, rank);
}

static void world_check_leaks(struct world *w, struct group *g, int rank) {
    enum { CALLS = 64 };
    const struct trial t = {.type = DTYPE_F32, .op = REDOP_SUM};
    static float x[WORLD_MOST][512];
    size_t before = 0;
    for (int i = 0; i < 2 * CALLS; i++) {
        world_call(w, g, &t, x[rank], 512);
        pthread_barrier_wait(&w->all);
        if (i == CALLS - 1) before = check_heap();
        pthread_barrier_wait(&w->all);
    }
    size_t after = check_heap();
    pthread_barrier_wait(&w->all);
    if (rank == 0 && after >= before + CALLS * sizeof(void *))
        check_wrong("%d calls of %d ranks have left %zu bytes allocated, about %zu a call of a rank", (int)CALLS,
                    w->size, after - before, (after - before) / CALLS / (size_t)w->size);
}

/* ---- all of them ---- */

static bool world_case(struct check *c, struct world w, int size, const char *what,
                       void (*fn)(struct world *w, struct group *g, int rank)) {
    char name[80];
    w.size = size, w.fn = fn;
    snprintf(name, sizeof name, "%s, %d rank%s", what, size, size == 1 ? "" : "s");
    if (w.algo && w.algo->even && !is_power_of_two(size)) return true;
    return check_case(c, name, world_run, &w);
}

static void world_cases(struct check *c, struct world w) {
    world_case(c, w, 4, "bytes", world_check_bytes);
    world_case(c, w, 4, "a rank that is late", world_check_late);
    world_case(c, w, 4, "a rank that gives up", world_check_gives_up);
    world_case(c, w, 2, "memory", world_check_leaks);
}

void check_algorithm(struct check *c) {
    struct world w = {.check = c};
    if (algo_named(c->name, NULL, &w.algo) != ERR_NONE) {
        c->wrong++;
        return;
    }
    w.order = w.algo->orders[ORDER_TREE] && !(w.algo->mark && w.algo->orders[ORDER_RING]) ? ORDER_TREE : ORDER_RING;
    w.own = w.algo->mark && w.algo->orders[ORDER_TREE] && w.algo->orders[ORDER_RING];
    bool good = true;
    for (int size = 1; size <= c->sizes && good; size++)
        good = world_case(c, w, size, "values, bits, lanes", world_check_values);
    if (!good) return; /* the others would say the same again */
    world_case(c, w, 4, "several at once", world_check_flights);
    world_cases(c, w);
}

void check_share(struct check *c, const struct plugin *p) {
    const struct world w = {.check = c, .meets = p};
    bool good = true;
    for (int size = 2; size <= c->sizes && good; size++)
        good = world_case(c, w, size, "meetings, bits, agreement", world_check_meetings);
    if (!good) return;
    world_cases(c, w);
    if (world_case(c, w, SHARE_RANKS, "mixing", world_measure_mixing)) c->left = c->measured;
}
