/* Random collectives, sizes, types, subgroups and delays, for as long as ENGINE_SOAK_SECONDS says
 * (a few seconds when it says nothing): every result is checked, and memory must not grow. Which
 * link takes its turn, and everything else, follows from the seed that is printed
 * (ENGINE_SOAK_SEED). */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "tests/conformance/ranks.h"

#include <malloc.h>

enum { WORLD = 8, MOST = 40000, FLIGHT = 6, SPLITS = 3, SETTLED = 40 };

struct plan {
    uint64_t seed;
    int64_t rounds;
};

/* splitmix64: one number for each (seed, a, b). */
static uint64_t mix(uint64_t seed, uint64_t a, uint64_t b) {
    uint64_t x = seed + a * 0x9e3779b97f4a7c15u + b * 0xd1b54a32d192ed03u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static int64_t value(uint64_t draw, int member, int64_t i) {
    return (int64_t)((draw + (uint64_t)member * 7919u + (uint64_t)i * 104729u) % 1000u);
}

struct soaker {
    struct rank *r;
    const struct plan *plan;
    struct group *of[1 + SPLITS]; /* the world and subgroups, which overlap */
    int64_t *buf[FLIGHT], *other;
};

/* ---- one call: what goes in, what must come out ---- */

struct draw {
    int group, kind, root, lane;
    int64_t count;
    uint64_t bits;
};

/* The same on all ranks, so that they call alike; not of this rank, so that sizes of its groups
 * play no part. */
static struct draw draw_call(const struct plan *p, int64_t round, int flight) {
    uint64_t x = mix(p->seed, (uint64_t)round, (uint64_t)flight);
    struct draw d = {.bits = x,
                     .group = (int)(x % (1 + SPLITS)),
                     .kind = (int)((x >> 8) % 7),
                     .lane = flight ? LANE_COMM : LANE_INLINE,
                     .count = (int64_t)((x >> 32) % MOST)};
    if ((x >> 20) % 4 == 0) d.count %= 9; /* small, or nothing */
    return d;
}

static void fill(const struct draw *d, int member, int64_t *buf, int64_t n) {
    for (int64_t i = 0; i < n; i++) buf[i] = value(d->bits, member, i);
}

static int64_t sum_at(const struct draw *d, int size, int64_t i) {
    int64_t sum = 0;
    for (int m = 0; m < size; m++) sum += value(d->bits, m, i);
    return sum;
}

static void cut(int64_t count, int size, int64_t part[MAX_WORLD + 1]) {
    for (int m = 0; m <= size; m++) part[m] = count * m / size;
}

static enum error call(struct soaker *s, const struct draw *d, int64_t *buf, struct work **out) {
    struct group *g = s->of[d->group];
    enum lane lane = (enum lane)d->lane;
    int size = group_size(g), root = (int)(d->bits >> 16) % size;
    int64_t part[MAX_WORLD + 1];
    root = root < 0 ? 0 : root;
    cut(d->count, size, part);
    fill(d, group_rank(g), buf, d->count);
    switch (d->kind) {
    case 0:
    case 1:
        return group_all_reduce(g, GROUP_ON(lane, out), buf, d->count, DTYPE_I64, REDOP_SUM);
    case 2:
        return group_broadcast(g, GROUP_ON(lane, out), buf, d->count, DTYPE_I64, root);
    case 3:
        return group_reduce_scatter(g, GROUP_ON(lane, out), buf, part, DTYPE_I64, REDOP_SUM);
    case 4:
        return group_all_gather(g, GROUP_ON(lane, out), buf, part, DTYPE_I64);
    case 5:
        return group_reduce(g, GROUP_ON(lane, out), buf, d->count, DTYPE_I64, REDOP_SUM, root);
    default:
        return group_gather(g, GROUP_ON(lane, out), buf, part, DTYPE_I64, root);
    }
}

/* Elements [lo, hi) that this rank must hold afterwards, and whose they are: a sum's, or a member's
 * (of parts: the part's owner's, member -2). */
static void check_result(struct soaker *s, const struct draw *d, const int64_t *buf) {
    struct rank *r = s->r;
    struct group *g = s->of[d->group];
    int size = group_size(g), me = group_rank(g), root = (int)(d->bits >> 16) % size;
    int64_t part[MAX_WORLD + 1], lo = 0, hi = d->count;
    root = root < 0 ? 0 : root;
    cut(d->count, size, part);
    bool sum = d->kind < 2 || d->kind == 3 || (d->kind == 5 && me == root);
    bool parts = d->kind == 4 || (d->kind == 6 && me == root);
    if (d->kind == 3) lo = part[me], hi = part[me + 1];
    for (int64_t i = lo, owner = 0; i < hi; i++) {
        while (parts && i >= part[owner + 1]) owner++;
        int member = parts ? (int)owner : d->kind == 2 ? root : me;
        int64_t want = sum ? sum_at(d, size, i) : value(d->bits, member, i);
        if (buf[i] == want) continue;
        check(false, "kind %d of %lld over %d ranks: element %lld is %lld, not %lld", d->kind, (long long)d->count,
              size, (long long)i, (long long)buf[i], (long long)want);
        return;
    }
}

static void all_to_all(struct soaker *s, int64_t round) {
    struct rank *r = s->r;
    struct group *g = s->of[round % (1 + SPLITS)];
    int size = group_size(g), me = group_rank(g);
    int64_t part[MAX_WORLD + 1], n = (int64_t)(mix(s->plan->seed, (uint64_t)round, 99) % 500);
    for (int m = 0; m <= size; m++) part[m] = n * m;
    for (int64_t i = 0; i < n * size; i++) s->buf[0][i] = me * 1000 + i / (n ? n : 1);
    check_ok(group_all_to_all(g, GROUP_INLINE, s->buf[0], part, s->other, part, DTYPE_I64));
    for (int64_t i = 0; i < n * size; i++)
        check(s->other[i] == i / n * 1000 + me, "all_to_all: %lld", (long long)s->other[i]);
}

/* ---- one rank ---- */

static void one_round(struct soaker *s, int64_t round) {
    struct rank *r = s->r;
    struct work *work[FLIGHT] = {0};
    struct draw d[FLIGHT];
    if (mix(s->plan->seed, (uint64_t)round, 1000u + (uint64_t)r->index) % 16 == 0)
        usleep((unsigned)(mix(s->plan->seed, (uint64_t)round, 2000u) % 3000));
    for (int f = FLIGHT - 1; f >= 0; f--) { /* the last, inline, runs beside the others */
        d[f] = draw_call(s->plan, round, f);
        check_ok(call(s, &d[f], s->buf[f], &work[f]));
    }
    for (int f = 0; f < FLIGHT; f++) {
        if (work[f]) check_ok(work_wait(work[f]));
        check_result(s, &d[f], s->buf[f]);
    }
    if (round % 7 == 0) all_to_all(s, round);
    if (round % 5 == 0) check_ok(group_barrier(s->of[round / 5 % (1 + SPLITS)]));
}

static void soak_rank(struct rank *r) {
    struct soaker s = {.r = r, .plan = r->of->user, .of = {r->group}};
    for (int f = 0; f < FLIGHT; f++) s.buf[f] = malloc(MOST * sizeof *s.buf[f]);
    s.other = malloc(MOST * sizeof *s.other);
    int colors[SPLITS] = {r->index / 2, r->index % 2, r->index / 4};
    for (int i = 0; i < SPLITS; i++) check_ok(group_split(r->group, colors[i], -r->index, &s.of[1 + i]));
    for (int64_t round = 0; round < s.plan->rounds && !*r->wrong; round++) one_round(&s, round);
    for (int i = 1; i <= SPLITS; i++) group_close(s.of[i]);
    for (int f = 0; f < FLIGHT; f++) free(s.buf[f]);
    free(s.other);
}

/* ---- the whole ---- */

/* What is in use: what malloc keeps for later is given back first. */
static double resident_mb(void) {
    malloc_trim(0);
    long pages = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    int n = fscanf(f, "%ld %ld", &pages, &resident);
    fclose(f);
    return n == 2 ? (double)resident * (double)sysconf(_SC_PAGESIZE) / 1e6 : 0;
}

static double number_of(const char *name, double standard) {
    const char *text = getenv(name);
    return text && *text ? atof(text) : standard;
}

static void soak(void **state) {
    (void)state;
    static const char *const links[] = {"thread", "shm", "tcp", "hosts"};
    double seconds = number_of("ENGINE_SOAK_SECONDS", 4), settled = 0;
    struct plan plan = {.seed = (uint64_t)number_of("ENGINE_SOAK_SEED", 1), .rounds = 25};
    int64_t start = clock_ns(), turns = 0;
    print_message("seed %llu, %.0f s\n", (unsigned long long)plan.seed, seconds);
    while (turns < 4 || clock_seconds(clock_ns() - start) < seconds) {
        run_ranks((struct ranks){.world = WORLD,
                                 .link = links[turns % 4],
                                 .algorithm = "auto",
                                 .timeout = 60,
                                 .fn = soak_rank,
                                 .user = &plan},
                  NULL);
        plan.seed++;
        if (++turns == SETTLED) settled = resident_mb();
    }
    double now = resident_mb();
    print_message("%lld turns of %lld rounds; memory %.1f MB after %d turns, %.1f MB at the end\n", (long long)turns,
                  (long long)plan.rounds, settled, SETTLED, now);
#ifndef ENGINE_SANITIZED
    if (settled > 0 && now > settled + 16) fail_msg("memory grew by %.1f MB", now - settled);
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(soak)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
