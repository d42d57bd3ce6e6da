/* Calls of buffers on accelerators, over those carriers that need no GPU: the accelerator is one
 * over the host's memory. tests/gpu has the same with GPUs. */
#include "tests/harness/harness.h"

#include "tests/conformance/collectives.h"
#include "tests/harness/host_accel.h"

static const int worlds[] = {1, 2, 3, 4, 7};
enum { WORLDS = sizeof worlds / sizeof *worlds };

static void run_one(const struct ranks *like, enum order order, int world) {
    struct standing s = {order, world};
    struct expected *e = expected_make(&s);
    struct ranks p = *like;
    p.world = world;
    p.order = order;
    p.fn = conform_carried;
    p.user = e;
    p.devices = &host_accel;
    if (world == 1) p.expect = "staged";
    run_ranks(p, NULL);
    expected_free(e);
}

static void run_all(const struct ranks *like) {
    for (int w = 0; w < WORLDS; w++)
        for (enum order order = ORDER_TREE; order <= ORDER_RING; order++)
            if (worlds[w] > like->hosted) run_one(like, order, worlds[w]);
}

static void peers(void **state) {
    (void)state;
    run_all(&(struct ranks){.link = "thread", .carrier = "peer", .expect = "peer", .units = 16});
}

static void peers_on_one_unit(void **state) {
    (void)state;
    run_all(&(struct ranks){.link = "thread", .carrier = "auto", .expect = "peer", .units = 2});
}

static void staged(void **state) {
    (void)state;
    run_all(&(struct ranks){.link = "thread", .carrier = "staged", .expect = "staged"});
    run_one(&(struct ranks){.link = "tcp", .carrier = "staged", .expect = "staged"}, ORDER_TREE, 3);
    run_one(&(struct ranks){.link = "shm", .carrier = "staged", .expect = "staged"}, ORDER_RING, 3);
}

/* A rank without an accelerator, as a server of dp is. */
static void mixed(void **state) {
    (void)state;
    run_all(&(struct ranks){.link = "thread", .carrier = "auto", .expect = "staged", .hosted = 1});
}

static void emulated_links(void **state) {
    (void)state;
    run_one(&(struct ranks){.link = "thread", .carrier = "auto", .expect = "staged", .emulate = {.bandwidth = 1e9}},
            ORDER_TREE, 2);
}

static void leaves(void **state) {
    static const struct ranks of[] = {{.link = "thread", .carrier = "peer", .expect = "peer", .units = 16},
                                      {.link = "thread", .carrier = "auto", .expect = "peer", .units = 2},
                                      {.link = "thread", .carrier = "staged", .expect = "staged"},
                                      {.link = "tcp", .carrier = "staged", .expect = "staged"}};
    (void)state;
    for (int i = 0; i < 4; i++)
        for (int w = 1; w < WORLDS; w++) {
            struct ranks p = of[i];
            p.world = worlds[w];
            p.devices = &host_accel;
            run_leaves(p);
        }
    run_leaves((struct ranks){.world = 4,
                              .idle = 1,
                              .link = "thread",
                              .carrier = "auto",
                              .expect = "staged",
                              .hosted = 1,
                              .devices = &host_accel});
}

/* Each of the others copies its part from the root, and the rest from each other. */
static void broadcast_long(struct rank *r) {
    enum { N = 100003 };
    const int world = r->of->world, root = 1;
    struct group_stats before, after;
    void *buf;
    check_ok(group_alloc(r->group, N * sizeof(float), &buf));
    float *x = buf;
    for (int i = 0; i < N; i++) x[i] = (float)(r->index == root ? i % 1013 : -1);
    group_get_stats(r->group, &before);
    check_ok(group_broadcast(r->group, GROUP_INLINE, buf, N, DTYPE_F32, root));
    group_get_stats(r->group, &after);
    for (int i = 0; i < N; i++) check(x[i] == (float)(i % 1013), "element %d is %g", i, (double)x[i]);
    int64_t sent = after.sent - before.sent, received = after.received - before.received, all = N * sizeof(float);
    int64_t most = (all / (world - 1) + 2 * ALIGNMENT) * (world - 2);
    check(received == (r->index == root ? 0 : all), "%lld bytes came", (long long)received);
    if (r->index == root)
        check(sent == all, "%lld bytes left the root", (long long)sent);
    else
        check(sent > 0 && sent <= most, "%lld bytes left rank %d", (long long)sent, r->index);
}

static void long_broadcasts_leave_the_root_once(void **state) {
    (void)state;
    for (int world = 3; world <= 7; world += 2)
        run_ranks((struct ranks){.world = world,
                                 .link = "thread",
                                 .carrier = "peer",
                                 .units = 16,
                                 .devices = &host_accel,
                                 .fn = broadcast_long},
                  NULL);
}

int main(void) {
    inputs_make();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers),
        cmocka_unit_test(peers_on_one_unit),
        cmocka_unit_test(staged),
        cmocka_unit_test(mixed),
        cmocka_unit_test(emulated_links),
        cmocka_unit_test(leaves),
        cmocka_unit_test(long_broadcasts_leave_the_root_once),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    inputs_free();
    return failed;
}
