/* What one rank of 'engine bench comm' does: for each size, check one call with known values, then
 * time batches of calls. Every decision (how many calls) follows from times that all ranks share,
 * so all make the same calls.
 *
 * The values: rank r's element i is pattern[r][i mod P], P a prime, so that an element that lands
 * at the wrong place shows; they are so small that every type adds them exactly in any order. */
#include "cli/bench/bench.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "lab/numbers/statistics.h"

#include <string.h>

enum { PERIOD = 1009, BATCHES = 5, CALLS_MOST = 1000000, REDUCED = -1 };

struct bench_run {
    const struct bench_comm *o;
    struct group *group;
    int rank, size;
    int64_t count;
    int64_t *part;       /* (size + 1) */
    int64_t *from;       /* (size + 1), of all_to_all: where each rank's elements arrive */
    char *buf, *arrived; /* arrived: of all_to_all and send_recv alone */
    char *pattern;       /* two periods: this rank's and the reduced; and one more, for another's */
};

/* ---- the collectives ---- */

static const struct bench_collective collectives[] = {
    {"all_reduce", KIND_ALL_REDUCE, .adds = true, .rounds = 2, .but_own_part = true},
    {"reduce", KIND_REDUCE, .adds = true, .rounds = 1},
    {"broadcast", KIND_BROADCAST, .rounds = 1},
    {"reduce_scatter", KIND_REDUCE_SCATTER, .adds = true, .rounds = 1, .but_own_part = true},
    {"all_gather", KIND_ALL_GATHER, .rounds = 1, .but_own_part = true},
    {"scatter", KIND_SCATTER, .rounds = 1, .but_own_part = true},
    {"gather", KIND_GATHER, .rounds = 1, .but_own_part = true},
    {"all_to_all", KIND_ALL_TO_ALL, .rounds = 1, .but_own_part = true},
    {"send_recv", KIND_SEND, .rounds = 1},
};

const struct bench_collective *bench_collectives(int *count) {
    *count = (int)(sizeof collectives / sizeof *collectives);
    return collectives;
}

double bench_bus_factor(const struct bench_collective *c, int64_t ranks) {
    double n = (double)ranks;
    return c->rounds * (c->but_own_part ? (n - 1) / n : 1);
}

static int bench_left_of(const struct bench_run *b) {
    return (b->rank + b->size - 1) % b->size;
}

/* A message from rank r travels on lane r mod 2, so that a rank sends and receives at once. With an
 * odd number of ranks, rank 0's two messages are on one lane, one after the other. */
static enum error bench_send_recv(struct bench_run *b) {
    const struct bench_comm *o = b->o;
    enum lane out = b->rank & 1 ? LANE_COMM : LANE_INLINE;
    enum lane in = bench_left_of(b) & 1 ? LANE_COMM : LANE_INLINE;
    struct work *sent = NULL, *received = NULL;
    int right = (b->rank + 1) % b->size;
    if (b->size == 1) return ERR_NONE;
    if (in == LANE_COMM)
        TRY(group_recv(b->group, GROUP_ON(in, &received), b->arrived, b->count, o->type, bench_left_of(b)));
    TRY(group_send(b->group, GROUP_ON(out, &sent), b->buf, b->count, o->type, right));
    if (in == LANE_INLINE)
        TRY(group_recv(b->group, GROUP_ON(in, &received), b->arrived, b->count, o->type, bench_left_of(b)));
    TRY(work_wait(sent));
    return work_wait(received);
}

static enum error collective_run(struct bench_run *b) {
    struct group *g = b->group;
    const struct bench_comm *o = b->o;
    switch ((int)o->collective->kind) {
    case KIND_ALL_REDUCE:
        return group_all_reduce(g, GROUP_INLINE, b->buf, b->count, o->type, o->op);
    case KIND_REDUCE:
        return group_reduce(g, GROUP_INLINE, b->buf, b->count, o->type, o->op, 0);
    case KIND_BROADCAST:
        return group_broadcast(g, GROUP_INLINE, b->buf, b->count, o->type, 0);
    case KIND_REDUCE_SCATTER:
        return group_reduce_scatter(g, GROUP_INLINE, b->buf, b->part, o->type, o->op);
    case KIND_ALL_GATHER:
        return group_all_gather(g, GROUP_INLINE, b->buf, b->part, o->type);
    case KIND_SCATTER:
        return group_scatter(g, GROUP_INLINE, b->buf, b->part, o->type, 0);
    case KIND_GATHER:
        return group_gather(g, GROUP_INLINE, b->buf, b->part, o->type, 0);
    case KIND_ALL_TO_ALL:
        return group_all_to_all(g, GROUP_INLINE, b->buf, b->part, b->arrived, b->from, o->type);
    default:
        return bench_send_recv(b);
    }
}

/* Whose elements a part holds afterwards. */
static int bench_source_of(const struct bench_run *b, int part) {
    bool root = b->rank == 0, own = part == b->rank;
    switch ((int)b->o->collective->kind) {
    case KIND_ALL_REDUCE:
        return REDUCED;
    case KIND_REDUCE:
        return root ? REDUCED : b->rank;
    case KIND_BROADCAST:
        return 0;
    case KIND_REDUCE_SCATTER:
        return own ? REDUCED : b->rank;
    case KIND_ALL_GATHER:
    case KIND_ALL_TO_ALL:
        return part;
    case KIND_SCATTER:
        return own ? 0 : b->rank;
    case KIND_GATHER:
        return root ? part : b->rank;
    default:
        return bench_left_of(b);
    }
}

/* ---- known values ---- */

/* Sums stay below 256, as no more than 64 ranks give anything to one; products below 2^7. */
static double bench_test_value(const struct bench_run *b, int rank, int64_t i) {
    enum redop op = b->o->op;
    uint64_t h = (uint64_t)(i * RANKS_MOST + rank + 1) * 0x9e3779b97f4a7c15u;
    if (op == REDOP_PROD) return rank < 6 ? (double)(1 + (h >> 63)) : 1;
    bool adds = op == REDOP_SUM || op == REDOP_AVERAGE;
    return adds && (i + rank) % ((b->size + 63) / 64) ? 0 : (double)(h >> 62);
}

static double bench_values_combine(enum redop op, double a, double b) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    switch ((int)op) {
    case REDOP_AND:
        return (double)(x & y);
    case REDOP_OR:
        return (double)(x | y);
    case REDOP_XOR:
        return (double)(x ^ y);
    case REDOP_PROD:
        return a * b;
    case REDOP_MIN:
        return a < b ? a : b;
    case REDOP_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

/* The upper bits of an f32, rounded to nearest even; 'drop' go. */
static uint16_t bench_bits_rounded(uint32_t bits, int drop) {
    return (uint16_t)((bits + (1u << (drop - 1)) - 1 + (bits >> drop & 1)) >> drop);
}

/* No value here is so small or large that its exponent does not fit an f16. */
static void bench_test_value_store(enum dtype t, char *to, double v) {
    const float f32 = (float)v;
    uint32_t bits;
    memcpy(&bits, &f32, sizeof bits);
    const uint16_t bf16 = bench_bits_rounded(bits, 16), f16 = v > 0 ? bench_bits_rounded(bits - (112u << 23), 13) : 0;
    const int32_t i32 = (int32_t)v;
    const int64_t i64 = (int64_t)v;
    const uint8_t u8 = (uint8_t)v;
    const void *const as[DTYPES] = {[DTYPE_F32] = &f32, [DTYPE_F64] = &v,   [DTYPE_F16] = &f16, [DTYPE_BF16] = &bf16,
                                    [DTYPE_I32] = &i32, [DTYPE_I64] = &i64, [DTYPE_U8] = &u8};
    memcpy(to, as[t], dtype_size(t));
}

static char *pattern_at(const struct bench_run *b, int64_t i) {
    return b->pattern + (size_t)i * dtype_size(b->o->type);
}

/* Another rank's is made where that of the one asked for before was. */
static char *pattern_of(const struct bench_run *b, int source) {
    if (source == b->rank) return pattern_at(b, 0);
    if (source == REDUCED) return pattern_at(b, PERIOD);
    for (int i = 0; i < PERIOD; i++)
        bench_test_value_store(b->o->type, pattern_at(b, 2 * PERIOD + i), bench_test_value(b, source, i));
    return pattern_at(b, 2 * PERIOD);
}

static void make_patterns(struct bench_run *b) {
    for (int i = 0; i < PERIOD; i++) {
        double all = bench_test_value(b, 0, i);
        for (int r = 1; r < b->size; r++) all = bench_values_combine(b->o->op, all, bench_test_value(b, r, i));
        if (b->o->op == REDOP_AVERAGE) all /= b->size;
        bench_test_value_store(b->o->type, pattern_at(b, i), bench_test_value(b, b->rank, i));
        bench_test_value_store(b->o->type, pattern_at(b, PERIOD + i), all);
    }
}

static void buffer_fill(const struct bench_run *b) {
    size_t width = dtype_size(b->o->type);
    for (int64_t i = 0; i < b->count; i += PERIOD) {
        int64_t n = b->count - i < PERIOD ? b->count - i : PERIOD;
        memcpy(b->buf + (size_t)i * width, pattern_of(b, b->rank), (size_t)n * width);
    }
}

static int64_t bench_wrong_of_period(const char *got, const char *expected, int64_t n, size_t width) {
    int64_t wrong = 0;
    if (!memcmp(got, expected, (size_t)n * width)) return 0;
    for (int64_t i = 0; i < n; i++) wrong += memcmp(got + (size_t)i * width, expected + (size_t)i * width, width) != 0;
    return wrong;
}

/* Elements of those that part 'part' brought that are not what they should be. In all_to_all it is
 * this rank's part of another's buffer, in the others the same part of it. */
static int64_t bench_wrong_of_part(const struct bench_run *b, int part) {
    bool moved = b->o->collective->kind == KIND_ALL_TO_ALL;
    size_t width = dtype_size(b->o->type);
    const char *expected = pattern_of(b, bench_source_of(b, part));
    const char *got = b->arrived ? b->arrived : b->buf;
    int64_t i = b->part[moved ? b->rank : part], end = b->part[(moved ? b->rank : part) + 1];
    got += (size_t)(moved ? b->from[part] : i) * width;
    int64_t wrong = 0;
    for (int64_t n; i < end; i += n, got += (size_t)n * width) {
        n = PERIOD - i % PERIOD < end - i ? PERIOD - i % PERIOD : end - i;
        wrong += bench_wrong_of_period(got, expected + (size_t)(i % PERIOD) * width, n, width);
    }
    return wrong;
}

static enum error bench_values_check(struct bench_run *b, int64_t *wrong) {
    buffer_fill(b);
    TRY(collective_run(b));
    *wrong = 0;
    bool sent_to_self = b->o->collective->kind == KIND_SEND && b->size == 1;
    for (int p = 0; p < b->size && !sent_to_self; p++) *wrong += bench_wrong_of_part(b, p);
    return group_all_reduce(b->group, GROUP_INLINE, wrong, 1, DTYPE_I64, REDOP_SUM);
}

/* ---- time ---- */

/* Times a number of calls: *seconds are the slowest rank's. */
static enum error bench_time_calls(struct bench_run *b, int64_t calls, double *seconds) {
    TRY(group_barrier(b->group));
    int64_t start = clock_ns();
    for (int64_t i = 0; i < calls; i++) TRY(collective_run(b));
    *seconds = clock_seconds(clock_ns() - start);
    return group_all_reduce(b->group, GROUP_INLINE, seconds, 1, DTYPE_F64, REDOP_MAX);
}

/* Calls a batch, so that all batches take about the time asked for. Tried out with ever more calls: where ranks wait for
 * a core, one call says nothing about many. */
static enum error bench_choose_calls(struct bench_run *b, int64_t *calls) {
    double took, batch = b->o->seconds / BATCHES;
    TRY(bench_time_calls(b, 1, &took));
    *calls = (b->o->calls + BATCHES - 1) / BATCHES;
    for (int64_t n = 1; !*calls; n *= 2) {
        TRY(bench_time_calls(b, n, &took));
        if (took >= batch / 2 || n >= CALLS_MOST) *calls = n;
    }
    return ERR_NONE;
}

static enum error measure_size(struct bench_run *b, struct bench_row *row) {
    double times[BATCHES];
    int64_t calls;
    TRY(bench_values_check(b, &row->wrong));
    TRY(bench_choose_calls(b, &calls));
    for (int i = 0; i < BATCHES; i++) TRY(bench_time_calls(b, calls, &times[i]));
    row->seconds = statistics_median(times, BATCHES) / (double)calls;
    return ERR_NONE;
}

/* ---- all ---- */

/* Writes the name of the algorithm into a row: "plain" for a collective that the algorithm does not implement, the name of
 * its file for a plug-in. */
static void bench_name_algorithm(const struct bench_run *b, const struct bench_series *s, struct bench_row *row) {
    const char *why, *name = s->algorithm;
    const struct algo_ops *algo = algo_find(name);
    if (b->o->collective->kind == KIND_ALL_REDUCE)
        name = group_choice(b->group, (size_t)row->bytes, &why);
    else if (algo && (b->o->collective->kind >= COLLECTIVES || !algo->run[b->o->collective->kind]))
        name = "plain";
    snprintf(row->algorithm, sizeof row->algorithm, "%s", file_last_part(name));
    for (char *at = row->algorithm; (at = strpbrk(at, " \t\n"));) *at = '_'; /* a row is a line of words */
}

static enum error measure_sizes(struct bench_run *b, struct bench_series *s) {
    const struct bench_comm *o = b->o;
    int64_t width = (int64_t)dtype_size(o->type);
    for (int64_t bytes = o->from; s->rows < BENCH_SIZES; bytes *= o->factor) {
        struct bench_row *row = &s->row[s->rows++];
        b->count = bytes / width > 0 ? bytes / width : 1;
        *row = (struct bench_row){.count = b->count, .bytes = b->count * width};
        for (int r = 0; r <= b->size; r++) b->part[r] = order_chunk(b->count, b->size, r);
        int64_t own = b->part[b->rank + 1] - b->part[b->rank];
        for (int r = 0; r <= b->size; r++) b->from[r] = r * own;
        bench_name_algorithm(b, s, row);
        TRY(measure_size(b, row));
        if (bytes > o->to / o->factor) break;
    }
    return ERR_NONE;
}

static bool has_two_buffers(const struct bench_comm *o) {
    return o->collective->kind == KIND_SEND || o->collective->kind == KIND_ALL_TO_ALL;
}

/* The parts that arrive in all_to_all may have an element more each than those that leave. */
static size_t buffer_bytes(const struct bench_comm *o) {
    return (size_t)o->to + (size_t)o->ranks * dtype_size(o->type);
}

double bench_memory(const struct bench_comm *o) {
    return (double)buffer_bytes(o) * (has_two_buffers(o) ? 2 : 1);
}

static enum error open_run(struct bench_run *b, const struct group_params *p, const struct bench_series *s) {
    const struct bench_comm *o = b->o;
    struct group_params params = *p;
    void *memory;
    params.link = o->link->row->name;
    params.algorithm = s->algorithm;
    params.order = s->order;
    params.timeout = 60;
    params.emulate = o->emulate;
    params.secure = o->secure;
    TRY(group_open(&params, &b->group));
    TRY(group_alloc(b->group, buffer_bytes(o), &memory));
    b->buf = memory;
    if (has_two_buffers(o)) {
        TRY(group_alloc(b->group, buffer_bytes(o), &memory));
        b->arrived = memory;
    }
    TRY_MEMORY(b->pattern = memory_new(3 * PERIOD * dtype_size(o->type)));
    TRY_MEMORY(b->part = memory_new(2 * (size_t)(b->size + 1) * sizeof *b->part));
    b->from = b->part + b->size + 1;
    make_patterns(b);
    return ERR_NONE;
}

enum error bench_measure(const struct bench_comm *o, const struct group_params *p, struct bench_series *s) {
    struct bench_run b = {.o = o, .rank = p->rank, .size = p->size};
    enum error err = open_run(&b, p, s);
    if (!err) err = measure_sizes(&b, s);
    memory_free(b.pattern);
    memory_free(b.part);
    group_close(b.group);
    return err;
}
