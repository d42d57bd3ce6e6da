/* Where ranks stand when hosts are several: the order of addition, sums within hosts and between
 * them, who is refused, and which algorithm is chosen where. The hosts are told by a roster, the
 * ranks are threads of one process. */
#include "tests/harness/harness.h"

#include "tests/conformance/sums.h"
#include "transport/group.h"
#include "transport/launch/launch.h"

enum { RANKS = 64 };

/* ---- ranks on hosts that a roster tells of ---- */

static struct seat_of seats[RANKS];
static struct pool *pool;
static struct roster roster;

/* Rank r is on host[r % n]: blocks, deals and mixtures alike. */
static void roster_make(int size, const int *host, int n) {
    int locals[RANKS] = {0};
    roster = (struct roster){.size = size, .of = seats};
    for (int r = 0; r < size; r++) {
        int h = host[r % n];
        seats[r] = (struct seat_of){.host = h, .local = locals[h]++};
        if (h >= roster.hosts) roster.hosts = h + 1;
    }
}

static void blocks(int hosts, int locals) {
    int host[RANKS];
    for (int r = 0; r < hosts * locals; r++) host[r] = r / locals;
    roster_make(hosts * locals, host, hosts * locals);
}

static void places_are(enum order order, const int *rank) {
    struct places p;
    struct bands b;
    assert_ok(places_plan(&p, &b, &(struct placing){(struct tree){.order = order}, 0, roster.size, &roster}, pool));
    for (int i = 0; i < roster.size; i++) {
        assert_int_equal(b.all.rank[i], rank[i]);
        assert_int_equal(p.rank[i], rank[i]);
        assert_int_equal(p.place[rank[i]], i);
    }
}

static void hosts_are_subtrees(void **state) {
    (void)state;
    blocks(2, 2);
    places_are(ORDER_TREE, (int[]){0, 1, 2, 3});
    roster_make(4, (int[]){0, 1}, 2); /* dealt out */
    places_are(ORDER_TREE, (int[]){0, 2, 1, 3});
    places_are(ORDER_RING, (int[]){0, 1, 2, 3});
    roster_make(5, (int[]){0, 1, 1, 0, 1}, 5); /* unequal */
    places_are(ORDER_TREE, (int[]){0, 3, 1, 2, 4});
    blocks(2, 3);
    places_are(ORDER_TREE, (int[]){0, 1, 2, 3, 4, 5});
}

static int locals_of(int hosts, int locals, int leaves) {
    struct places p;
    struct bands b;
    blocks(hosts, locals);
    assert_ok(places_plan(&p, &b, &(struct placing){(struct tree){.leaves = leaves}, 0, roster.size, &roster}, pool));
    return p.locals;
}

/* Whether a host's ranks are one subtree is a matter of what they share out. */
static void some_hosts_are_no_subtrees(void **state) {
    (void)state;
    assert_int_equal(locals_of(2, 2, 0), 2);
    assert_int_equal(locals_of(2, 2, 16), 2);
    assert_int_equal(locals_of(3, 2, 0), 2);  /* hosts may be any number */
    assert_int_equal(locals_of(3, 2, 8), 2);  /* 2 each on the first host, then 1 */
    assert_int_equal(locals_of(3, 2, 16), 0); /* runs of 3, 3, 3, 3, 2, 2 */
    assert_int_equal(locals_of(3, 4, 16), 4); /* 2 each on the first host, then 1 */
    assert_int_equal(locals_of(2, 3, 0), 0);
    assert_int_equal(locals_of(1, 6, 8), 6);
    roster_make(4, (int[]){0, 0, 0, 1}, 4); /* unequal */
    struct places p;
    struct bands b;
    assert_ok(
        places_plan(&p, &b, &(struct placing){(struct tree){.order = ORDER_TREE}, 0, roster.size, &roster}, pool));
    assert_int_equal(p.locals, 0);
}

/* Runs and their subtrees, by hand. */
static void runs_of_leaves(void **state) {
    static const struct {
        int leaves, ranks, terms;
        const char *subtrees; /* where each begins, rank by rank */
    } of[] = {{8, 1, 1, "0"},
              {8, 2, 2, "0|4"},
              {8, 3, 5, "0 2|3 4|6"},
              {8, 5, 5, "0|2|4|6|7"},
              {8, 6, 6, "0|2|4|5|6|7"},
              {8, 7, 7, "0|2|3|4|5|6|7"},
              {16, 3, 7, "0 4|6 8 10|11 12"},
              {16, 5, 9, "0|4 6|7 8|10 12|13 14"}};
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char text[64] = "";
        struct places p;
        struct bands b;
        assert_ok(
            places_plan(&p, &b, &(struct placing){(struct tree){.leaves = of[i].leaves}, 0, of[i].ranks, NULL}, pool));
        for (int k = 0; k < b.pieces.n; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d",
                     k == 0                   ? ""
                     : b.pieces.piece[k] == 0 ? "|"
                                              : " ",
                     b.pieces.leaf[k]);
        assert_string_equal(text, of[i].subtrees);
        assert_int_equal(p.terms, of[i].terms);
    }
}

/* ---- sums ---- */

/* A message that is staged, one slice, a slice for each. */
enum { SIZES = 3, LONGEST = 20011 };
static const int64_t sizes[SIZES] = {37, 5003, LONGEST};

struct run {
    const char *algorithm;
    bool private; /* memory that neighbours do not reach */
    struct meeting *meeting;
    float *want[SIZES];
};

static enum error sum_one(void *user, int rank) {
    const struct run *run = user;
    struct group *g;
    void *shared;
    float *own = malloc(LONGEST * sizeof *own);
    struct group_params p = {.rank = rank,
                             .size = roster.size,
                             .link = "thread",
                             .algorithm = run->algorithm,
                             .timeout = 60,
                             .meeting = run->meeting,
                             .roster = &roster};
    enum error err = group_open(&p, &g);
    if (!err) err = group_alloc(g, LONGEST * sizeof(float), &shared);
    for (int i = 0; i < SIZES && !err; i++) {
        float *v = run->private ? own : shared;
        memcpy(v, inputs[DTYPE_F32][rank % WORLD_MOST], (size_t)sizes[i] * sizeof *v);
        err = group_all_reduce(g, GROUP_INLINE, v, sizes[i], DTYPE_F32, REDOP_AVERAGE);
        if (!err && memcmp(v, run->want[i], (size_t)sizes[i] * sizeof *v) != 0)
            err = FAIL(ERR_RESULT, "rank %d: a sum of %lld is wrong", rank, (long long)sizes[i]);
    }
    if (!err && group_position(g) % (roster.size / roster.hosts) != seats[rank].local)
        err = FAIL(ERR_RESULT, "rank %d stands at %d", rank, group_position(g));
    group_close(g);
    free(own);
    return err;
}

/* ORDER_TREE over the hosts' own sums, each of which is one over its ranks. */
static void expect(int64_t n, float *out) {
    int hosts = roster.hosts, locals = roster.size / hosts;
    for (int64_t i = 0; i < n; i++) {
        float v[RANKS] = {0};
        for (int h = 0; h < hosts; h++) {
            float w[RANKS];
            for (int r = 0, l = 0; r < roster.size; r++)
                if (seats[r].host == h) w[l++] = ((const float *)(void *)inputs[DTYPE_F32][r % WORLD_MOST])[i];
            for (int apart = 1; apart < locals; apart *= 2)
                for (int l = 0; l < locals; l += 2 * apart) w[l] += w[l + apart];
            v[h] = w[0];
        }
        for (int apart = 1; apart < hosts; apart *= 2)
            for (int h = 0; h + apart < hosts; h += 2 * apart) v[h] += v[h + apart];
        out[i] = v[0] / (float)roster.size;
    }
}

static void all_algorithms_agree(void) {
    static const char *const names[] = {"hierarchical", "direct", "halving_doubling", "tree", "star", "auto"};
    struct run run;
    for (int i = 0; i < SIZES; i++) {
        run.want[i] = malloc((size_t)sizes[i] * sizeof(float));
        expect(sizes[i], run.want[i]);
    }
    for (int i = 0; i < 12; i++) {
        run.algorithm = names[i / 2];
        if (i / 2 == 2 && roster.size & (roster.size - 1)) continue;
        run.private = i % 2;
        assert_ok(meeting_create(roster.size, &run.meeting));
        assert_ok(launch_threads(roster.size, sum_one, &run));
        meeting_free(run.meeting);
    }
    for (int i = 0; i < SIZES; i++) free(run.want[i]);
}

static void sums_within_hosts_first(void **state) {
    (void)state;
    blocks(2, 2);
    all_algorithms_agree();
    blocks(3, 2);
    all_algorithms_agree();
    blocks(5, 1);
    all_algorithms_agree();
    roster_make(8, (int[]){0, 1, 1, 0}, 4);
    all_algorithms_agree();
}

static void sixty_four_ranks(void **state) {
    (void)state;
    blocks(4, 16);
    all_algorithms_agree();
}

/* ---- refusals ---- */

static struct group_params params_for(const char *algorithm) {
    return (struct group_params){
        .size = roster.size, .link = "thread", .algorithm = algorithm, .timeout = 1, .roster = &roster};
}

static void unequal_hosts_are_refused(void **state) {
    struct group *g;
    struct group_params p;
    (void)state;
    blocks(2, 3);
    p = params_for("hierarchical");
    assert_int_equal(group_open(&p, &g), ERR_CONFIG);
    assert_non_null(strstr(error_message(), "hierarchical: 6 ranks on 2 hosts"));
    assert_non_null(strstr(error_hint(), "power of two"));
    blocks(2, 2);
    p = params_for("hierarchical");
    p.order = ORDER_RING;
    assert_int_equal(group_open(&p, &g), ERR_CONFIG);
}

/* A roster comes from other hosts. */
static void rosters_that_lie_are_refused(void **state) {
    struct group *g;
    (void)state;
    for (int i = 0; i < 6; i++) {
        blocks(2, 2);
        struct group_params p = params_for("direct");
        if (i == 0) p.size = 3;
        if (i == 1) roster.hosts = 0;
        if (i == 2) roster.hosts = 5;
        if (i == 3) seats[3].host = 2;
        if (i == 4) seats[1].local = -1;
        if (i == 5) seats[3].local = 1 << 20;
        assert_int_equal(group_open(&p, &g), ERR_BUG);
    }
}

/* ---- what is cheapest ---- */

static const char *cheapest(int hosts, int locals, bool near, enum order order, size_t bytes) {
    struct places p;
    struct bands b;
    blocks(hosts, locals);
    assert_ok(places_plan(&p, &b, &(struct placing){(struct tree){.order = order}, 0, roster.size, &roster}, pool));
    struct terrain t = {
        .places = &p, .near = near, .alpha = 45e-6, .beta = 1 / 1.2e9, .gamma = 1 / 8e9, .part_bytes = 256 << 10};
    return algo_cheapest(&t, order, KIND_ALL_REDUCE, false, bytes)->name;
}

static void cheapest_by_formula(void **state) {
    (void)state;
    assert_string_equal(cheapest(1, 4, false, ORDER_TREE, 100), "star");
    assert_string_equal(cheapest(1, 4, false, ORDER_TREE, 1 << 20), "halving_doubling");
    assert_string_equal(cheapest(1, 5, false, ORDER_TREE, 1 << 24), "direct");
    assert_string_equal(cheapest(1, 4, false, ORDER_RING, 1 << 24), "ring");
    assert_string_equal(cheapest(2, 4, true, ORDER_TREE, 1 << 24), "hierarchical");
    assert_string_equal(cheapest(2, 3, true, ORDER_TREE, 100), "star");
}

static void choices_in_words(void **state) {
    char text[CHOICES_MAX];
    struct places p;
    struct bands b;
    (void)state;
    blocks(1, 4);
    assert_ok(places_plan(&p, &b, &(struct placing){(struct tree){.order = ORDER_TREE}, 0, 4, NULL}, pool));
    struct terrain t = {.places = &p, .alpha = 45e-6, .beta = 1 / 1.2e9, .gamma = 1 / 8e9, .part_bytes = 256 << 10};
    algo_choices(&t, ORDER_TREE, false, text);
    assert_string_equal(text, "star up to 16.0 KB, halving_doubling above: alpha 45 us, 1.2 GB/s");
}

static int make(void **state) {
    (void)state;
    inputs_make();
    return (int)pool_create(&pool);
}

static int unmake(void **state) {
    (void)state;
    inputs_free();
    pool_free(pool);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_are_subtrees),
        cmocka_unit_test(some_hosts_are_no_subtrees),
        cmocka_unit_test(runs_of_leaves),
        cmocka_unit_test(sums_within_hosts_first),
        cmocka_unit_test(sixty_four_ranks),
        cmocka_unit_test(unequal_hosts_are_refused),
        cmocka_unit_test(rosters_that_lie_are_refused),
        cmocka_unit_test(cheapest_by_formula),
        cmocka_unit_test(choices_in_words),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
