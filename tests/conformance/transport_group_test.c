/* Every collective, over every link, algorithm and order, for many world sizes, counts and types.
 * Integers must be exact; floats must have the bits of a plain evaluation of the documented order.
 */
#include "tests/harness/harness.h"

#include "tests/conformance/collectives.h"
#include "transport/link/link.h"

#ifdef ENGINE_SANITIZED
static const int worlds[] = {2, 3, 4, 5};
#else
static const int worlds[] = {1, 2, 3, 4, 5, 7, 8, 16};
#endif
enum { WORLDS = sizeof worlds / sizeof *worlds };

/* Over how many hosts ranks.h deals the ranks out. */
static int hosts_of(const char *link, int world) {
    return strcmp(link, "hosts") || world < 2 ? 1 : 2;
}

/* The first link runs everything; of the others each runs so much that every pair of link,
 * algorithm, order and world is met. */
static bool chosen(int link, int algo, int world) {
    return link == 0 || (algo + world) % 3 == link % 3;
}

/* Over all links that deal the ranks out to so many hosts, and all algorithms: they add alike. */
static void run_all(enum order order, int w, int hosts) {
    int links, algos, world = worlds[w];
    const struct link_ops *const *link = link_kinds(&links);
    const struct algo_ops *const *algo = algo_list(&algos);
    struct standing s = {order, world};
    struct expected *e = expected_make(&s);
    for (int l = 0; l < links; l++)
        for (int a = 0; a <= algos; a++) {
            const struct algo_ops *as = a < algos ? algo[a] : NULL; /* NULL: auto */
            bool even = (world & (world - 1)) == 0, alike = hosts == 1 || even;
            if (link[l]->row->launched || !chosen(l, a, w) || hosts_of(link[l]->row->name, world) != hosts) continue;
            if (as && as->native) continue;
            if (as && (!as->orders[order] || (as->hosts_alike && !alike) || (as->even && !even))) continue;
            run_ranks((struct ranks){.world = world,
                                     .link = link[l]->row->name,
                                     .algorithm = as ? as->name : "auto",
                                     .order = order,
                                     .fn = conform,
                                     .user = e},
                      NULL);
        }
    expected_free(e);
}

static void conformance(void **state) {
    (void)state;
    for (int w = 0; w < WORLDS; w++)
        for (enum order order = ORDER_TREE; order <= ORDER_RING; order++)
            for (int hosts = 1; hosts <= 2 && hosts <= worlds[w]; hosts++) run_all(order, w, hosts);
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
    check_ok(group_all_reduce(r->group, GROUP_INLINE, m->private ? own : buf, MOVED, DTYPE_F32, REDOP_SUM));
    group_get_stats(r->group, &m->out[r->index]);
    free(own);
}

/* All-reduce of K bytes: 2(W-1)/W K each way, but a star's centre (W-1) K and its others K; in a
 * tree of four 2 K, K, and K for the leaves. */
static void bytes_are_the_formulas(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int quarters[4]; /* of the buffer that each rank sends, and receives */
    } of[] = {{"direct", {6, 6, 6, 6}},       {"ring", {6, 6, 6, 6}},  {"halving_doubling", {6, 6, 6, 6}},
              {"hierarchical", {6, 6, 6, 6}}, {"star", {12, 4, 4, 4}}, {"tree", {8, 4, 8, 4}}};
    enum { ALGOS = sizeof of / sizeof *of };
    for (int k = 0; k < 2 * ALGOS; k++) {
        struct group_stats stats[4];
        struct moved m = {of[k % ALGOS].name, k >= ALGOS, stats};
        run_ranks((struct ranks){.world = 4,
                                 .link = "thread",
                                 .algorithm = m.algorithm,
                                 .order = algo_find(m.algorithm)->orders[ORDER_TREE] ? ORDER_TREE : ORDER_RING,
                                 .fn = move_all,
                                 .user = &m},
                  NULL);
        for (int r = 0; r < 4; r++) {
            int64_t want = of[k % ALGOS].quarters[r] * (int64_t)MOVED;
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
        check_ok(group_reduce(r->group, GROUP_INLINE, buf, n, DTYPE_F32, REDOP_SUM, 0));
        if (r->index == 0 && n == MOST) check(same(buf, want, n, DTYPE_F32), "case %d", i);
    }
    group_get_stats(r->group, &stats);
    if (r->index == 0) check(stats.received >= (int64_t)MOST * 4, "received");
    free(own);
}

static void run_idle_root(int world, const float *want) {
    static const char *const names[] = {"direct", "star", "tree", "auto"};
    for (int a = 0; a < 4; a++)
        run_ranks(
            (struct ranks){
                .world = world, .link = "thread", .algorithm = names[a], .idle = 1, .fn = idle_root, .user = want},
            NULL);
}

static void a_root_that_only_adds(void **state) {
    static float want[MOST];
    (void)state;
    for (int64_t k = 0; k < MOST; k++) want[k] = (float)(k + 1) / 3; /* rank 1's alone */
    run_idle_root(2, want);
    for (int64_t k = 0; k < MOST; k++) { /* ranks 1, 2, 3 in tree order: (1 + 2) + 3 */
        want[k] += (float)(2 * (k + 1)) / 3;
        want[k] += (float)(3 * (k + 1)) / 3;
    }
    run_idle_root(4, want);
}

/* ---- ranks that share out more leaves than they are ---- */

static void leaves_over(const struct link_ops *link, const struct algo_ops *algo, int world) {
    struct ranks p = {.world = world, .link = link->row->name, .algorithm = algo ? algo->name : "auto"};
    run_leaves(p);
    for (p.idle = 1; p.idle < world && p.idle <= 2; p.idle++)
        if (hosts_of(p.link, world) == 1) run_leaves(p);
}

/* Every algorithm that adds several terms of a rank, and auto. */
static void leaves(void **state) {
    int links, algos;
    const struct link_ops *const *link = link_kinds(&links);
    const struct algo_ops *const *algo = algo_list(&algos);
    (void)state;
    for (int l = 0; l < links; l++)
        for (int a = 0; a <= algos && !link[l]->row->launched; a++)
            for (int w = 0; w < WORLDS; w++)
                if (a == algos || (algo[a]->several && chosen(l, a, w)))
                    leaves_over(link[l], a < algos ? algo[a] : NULL, worlds[w]);
}

/* Five ranks of sixteen leaves have nine subtrees, and the parts of the buffer are fifths. */
static void count_leaves(struct rank *r) {
    struct group_stats *out = (struct group_stats *)(uintptr_t)r->of->user;
    void *buf;
    check_ok(group_alloc(r->group, (size_t)MOVED * 2 * 4, &buf));
    if (*r->wrong) return;
    check_ok(group_all_reduce(r->group, (struct dispatch){.apart = MOVED}, buf, MOVED, DTYPE_F32, REDOP_SUM));
    group_get_stats(r->group, &out[r->index]);
}

static void bytes_of_leaves(void **state) {
    static const int subtrees_of[] = {1, 2, 2, 2, 2}; /* 4, 3, 3, 3, 3 leaves */
    (void)state;
    for (int l = 0; l < 2; l++) {
        struct group_stats stats[5];
        run_ranks((struct ranks){.world = 5,
                                 .leaves = 16,
                                 .link = l ? "tcp" : "thread",
                                 .algorithm = "direct",
                                 .fn = count_leaves,
                                 .user = stats},
                  NULL);
        for (int r = 0; r < 5; r++) {
            const int64_t fifth = MOVED * 4 / 5;
            assert_int_equal(stats[r].sent, fifth * (4 * subtrees_of[r] + 4));
            assert_int_equal(stats[r].received, fifth * (9 - subtrees_of[r] + 4));
        }
    }
}

/* An algorithm that adds one term of each rank. */
static void refuse_leaves(struct rank *r) {
    struct group_params p = rank_params(r->of, r->index);
    struct group *g;
    p.leaves = 8, p.algorithm = "tree";
    check(group_open(&p, &g) == ERR_CONFIG, "%s", error_message());
    check(strstr(error_message(), "algorithm tree: 3 ranks share a tree of 8 leaves"), "%s", error_message());
    p.leaves = 4, p.algorithm = "halving_doubling";
    check(group_open(&p, &g) == ERR_CONFIG, "%s", error_message());
    check(strstr(error_hint(), "a power of two of ranks"), "%s", error_hint());
}

static void leaves_that_are_refused(void **state) {
    (void)state;
    run_ranks((struct ranks){.world = 3, .link = "thread", .algorithm = "direct", .fn = refuse_leaves}, NULL);
}

/* ---- messages that never meet ---- */

struct never {
    int64_t count;
    enum lane receives;
    const char *words;
};

/* Two ranks that send to each other at once, inline, before or beside their receives. */
static void send_at_once(struct rank *r) {
    const struct never *m = r->of->user;
    size_t bytes = (size_t)m->count * sizeof(int32_t);
    int32_t *mine = calloc(1, bytes), *theirs = calloc(1, bytes);
    struct work *w = NULL;
    bool beside = m->receives == LANE_COMM;
    int peer = r->index ^ 1;
    enum error err =
        beside ? group_recv(r->group, GROUP_COMM(&w), theirs, m->count, DTYPE_I32, peer) : group_barrier(r->group);
    if (!err) err = group_send(r->group, GROUP_INLINE, mine, m->count, DTYPE_I32, peer);
    if (!err && !beside) err = group_recv(r->group, GROUP_INLINE, theirs, m->count, DTYPE_I32, peer);
    enum error later = w ? work_wait(w) : ERR_NONE;
    rank_result(r, err ? err : later);
    check(r->err == ERR_TIMEOUT && strstr(r->message, m->words), "error %d: %s", (int)r->err, r->message);
    free(mine);
    free(theirs);
}

/* Pairs of four ranks, each of which would wait for ever if it sent first. */
static void swap_at_once(struct rank *r) {
    static const int64_t lengths[] = {0, 1, 1000, 1 << 20};
    int peer = r->index ^ 1;
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
        for (int lane = LANE_INLINE; lane <= LANE_COMM; lane++) {
            int64_t n = lengths[k];
            int32_t *mine = calloc((size_t)n + 1, sizeof *mine), *theirs = calloc((size_t)n + 1, sizeof *theirs);
            struct work *w = NULL;
            for (int64_t i = 0; i < n; i++) mine[i] = (int32_t)(1000003 * i + r->index);
            theirs[n] = 77;
            enum error err = group_swap(r->group, GROUP_ON(lane, lane ? &w : NULL), mine, theirs, n, DTYPE_I32, peer);
            if (!err && w) err = work_wait(w);
            check(!err, "%s", error_message());
            for (int64_t i = 0; i < n; i++)
                check(theirs[i] == mine[i] - r->index + peer, "element %lld of %lld", (long long)i, (long long)n);
            check(theirs[n] == 77, "what lies after %lld elements", (long long)n);
            free(mine);
            free(theirs);
        }
}

static void peers_swap(void **state) {
    int links;
    const struct link_ops *const *link = link_kinds(&links);
    (void)state;
    for (int l = 0; l < links; l++)
        if (!link[l]->row->launched)
            run_ranks((struct ranks){.world = 4, .link = link[l]->row->name, .fn = swap_at_once}, NULL);
}

/* A receive takes what is sent on its own lane, and a send of much may wait for its receive: such calls end at the
 * deadline, with words that name the lane. */
static void messages_that_never_meet(void **state) {
    static const struct never all[] = {{1, LANE_COMM, "on the communication lane (4 B) within 1 s"},
                                       {1 << 20, LANE_COMM, "(4.0 MB) within 1 s"},
                                       {1 << 20, LANE_INLINE, "send to rank"}};
    int links;
    const struct link_ops *const *link = link_kinds(&links);
    (void)state;
    for (int l = 0; l < links; l++)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            const char *name = link[l]->row->name;
            bool kept = all[i].receives == LANE_INLINE && strcmp(name, "thread") && strcmp(name, "shm");
            if (!link[l]->row->launched && !kept) /* what a socket holds depends on the system */
                run_ranks((struct ranks){.world = 2, .link = name, .fn = send_at_once, .user = &all[i], .timeout = 1},
                          NULL);
        }
}

/* ---- processes ---- */

static int process_rank(int rank, int world) {
    struct meeting *m;
    struct standing s = {ORDER_TREE, world};
    struct expected *e = expected_make(&s);
    struct ranks p = {.world = world, .link = "shm", .algorithm = "direct", .fn = conform, .user = e};
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
        check_ok(group_all_reduce(r->group, GROUP_INLINE, buf, 100000, DTYPE_F32, REDOP_SUM));
        check_ok(group_all_reduce(r->group, GROUP_COMM(&w), buf, 100, DTYPE_F32, REDOP_SUM));
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
        cmocka_unit_test(leaves),
        cmocka_unit_test(bytes_of_leaves),
        cmocka_unit_test(leaves_that_are_refused),
        cmocka_unit_test(peers_swap),
        cmocka_unit_test(messages_that_never_meet),
        cmocka_unit_test(processes),
        cmocka_unit_test(conformance),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    inputs_free();
    return failed;
}
