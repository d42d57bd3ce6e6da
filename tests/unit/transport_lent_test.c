/* Buffers that peers cannot reach go through memory that the link lends: with the same bits as those
 * that they can, for every collective and both orders, and with two waits for each window. */
#include "tests/harness/harness.h"

#include "tests/conformance/ranks.h"
#include "transport/core.h"

#include <stdatomic.h>

enum { WINDOWS = 3 };

/* ---- a link that counts ---- */

static struct link_ops counted[MAX_WORLD]; /* of each rank */
static const struct link_ops *_Atomic plain_ops;
static _Atomic int waits, exchanges;

static enum error count_meet(struct link *l, int lane, const struct call *c, void *mine, void **at) {
    atomic_fetch_add(&waits, 1);
    return plain_ops->meet(l, lane, c, mine, at);
}

static enum error count_sync(struct link *l, int lane) {
    atomic_fetch_add(&waits, 1);
    return plain_ops->sync(l, lane);
}

static enum error count_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                 const struct incoming *in) {
    atomic_fetch_add(&exchanges, 1);
    return plain_ops->exchange(l, lane, label, out, in);
}

static void count_from_now(struct rank *r) {
    check_ok(group_barrier(r->group));
    struct link_ops *mine = &counted[r->index];
    plain_ops = r->group->link->ops; /* of all ranks the same */
    *mine = *plain_ops;
    mine->meet = count_meet;
    mine->sync = count_sync;
    mine->exchange = count_exchange;
    if (r->index == 0) waits = exchanges = 0;
    check_ok(group_barrier(r->group));
    r->group->link->ops = mine;
}

/* ---- the collectives ---- */

static int64_t elements(const struct rank *r) {
    return (int64_t)(r->group->link->lent_bytes / sizeof(float)) * (WINDOWS - 1) + 1001;
}

static float given(int rank, int64_t i) {
    return (float)((i * 7 + rank * 13) % 1009) / 3 - (float)rank;
}

static enum error call(struct rank *r, int kind, float *buf, int64_t n, int64_t *part) {
    struct group *g = r->group;
    int root = r->of->world - 1;
    switch (kind) {
    case KIND_ALL_REDUCE:
        return group_all_reduce(g, GROUP_INLINE, buf, n, DTYPE_F32, 0);
    case KIND_REDUCE:
        return group_reduce(g, GROUP_INLINE, buf, n, DTYPE_F32, 0, root);
    case KIND_BROADCAST:
        return group_broadcast(g, GROUP_INLINE, buf, n, DTYPE_F32, root);
    case KIND_REDUCE_SCATTER:
        return group_reduce_scatter(g, GROUP_INLINE, buf, part, DTYPE_F32, 0);
    case KIND_ALL_GATHER:
        return group_all_gather(g, GROUP_INLINE, buf, part, DTYPE_F32);
    case KIND_SCATTER:
        return group_scatter(g, GROUP_INLINE, buf, part, DTYPE_F32, root);
    default:
        return group_gather(g, GROUP_INLINE, buf, part, DTYPE_F32, root);
    }
}

/* Parts of unequal sizes, of which one is empty, that begin and end within windows. */
static void cut(const struct rank *r, int64_t n, int64_t *part) {
    int world = r->of->world;
    for (int i = 0; i <= world; i++) part[i] = 5 + (n - 5) * i * i / (world * world);
    if (world > 2) part[1] = part[0];
}

/* Whose buffers peers can reach: every other rank's, or nobody's, where of a gather or scatter only root has more than
 * its own part. */
enum near { SOME, NONE, ALONE, NEARS };

static enum error call_alone(struct rank *r, int kind, float *buf, int64_t *part) {
    int root = r->of->world - 1;
    float *all = r->index == root ? buf : NULL;
    const struct dispatch how = {.lane = LANE_INLINE, .own = buf + part[r->index]};
    return kind == KIND_GATHER ? group_gather(r->group, how, all, part, DTYPE_F32, root)
                               : group_scatter(r->group, how, all, part, DTYPE_F32, root);
}

static void compare(struct rank *r, int kind, enum near near, float *in_place, float *private) {
    int64_t n = elements(r), part[MAX_WORLD + 1];
    bool mine = near == SOME && r->index % 2 == 0;
    void *reached = NULL;
    if (near == SOME) check_ok(group_alloc(r->group, (size_t)n * sizeof(float), &reached));
    float *buf = mine ? reached : private;
    if (!buf) return;
    cut(r, n, part);
    for (int64_t i = 0; i < n; i++) in_place[i] = buf[i] = given(r->index, i);
    check_ok(call(r, kind, in_place, n, part));
    check_ok(near == ALONE ? call_alone(r, kind, buf, part) : call(r, kind, buf, n, part));
    check(!memcmp(in_place, buf, (size_t)n * sizeof(float)), "kind %d, near %d: other bits", kind, (int)near);
}

static void all_kinds(struct rank *r) {
    size_t bytes = (size_t)elements(r) * sizeof(float);
    float *private = malloc(bytes);
    void *in_place = NULL;
    check_ok(group_alloc(r->group, bytes, &in_place));
    if (!private || !in_place) return;
    for (int kind = 0; kind < KIND_ALL_TO_ALL; kind++)
        for (enum near near = SOME; near < NEARS; near++)
            if (near != ALONE || kind == KIND_GATHER || kind == KIND_SCATTER) compare(r, kind, near, in_place, private);
    free(private);
}

static void the_same_bits(void **state) {
    (void)state;
    static const char *const links[] = {"shm", "thread"};
    static const int worlds[] = {2, 5, 9};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++)
            for (enum order order = ORDER_TREE; order <= ORDER_RING; order++)
                run_ranks((struct ranks){.world = worlds[k], .link = links[i], .order = order, .fn = all_kinds}, NULL);
}

/* Against loops of its own, with numbers that any order adds alike. */
static void sums(struct rank *r) {
    int64_t n = elements(r) * 2;
    int32_t *buf = malloc((size_t)n * sizeof *buf);
    int world = r->of->world, wrong = 0;
    if (!buf) return;
    for (int64_t i = 0; i < n; i++) buf[i] = (int32_t)(i * (r->index + 1));
    check_ok(group_all_reduce(r->group, GROUP_INLINE, buf, n, DTYPE_I32, REDOP_SUM));
    for (int64_t i = 0; i < n; i++) wrong += buf[i] != (int32_t)(i * (world * (world + 1) / 2));
    check(!wrong, "%d of %lld sums", wrong, (long long)n);
    free(buf);
}

static void the_right_sums(void **state) {
    (void)state;
    run_ranks((struct ranks){.world = 3, .link = "shm", .fn = sums}, NULL);
}

static void two_waits_a_window(struct rank *r) {
    int64_t n = elements(r);
    float *private = calloc((size_t)n, sizeof *private);
    if (!private) return;
    count_from_now(r);
    check_ok(call(r, KIND_ALL_REDUCE, private, n, NULL));
    r->group->link->ops = plain_ops;
    check_ok(group_barrier(r->group));
    int world = r->of->world;
    check(waits == 2 * WINDOWS * world && exchanges == 0, "%d waits, %d exchanges of %d ranks", (int)waits,
          (int)exchanges, world);
    free(private);
}

static void few_waits(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++)
        run_ranks((struct ranks){.world = world, .link = "shm", .fn = two_waits_a_window}, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_bits), cmocka_unit_test(the_right_sums),
                                       cmocka_unit_test(few_waits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
