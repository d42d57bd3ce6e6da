/* Nodes meet, and meet again without those that were lost. Here they are threads, each with a store of its own. */
#include "engine/base/clock.h"
#include "tests/harness/ports.h"
#include "tests/harness/timing.h"
#include "transport/launch/launch.h"
#include "transport/launch/nodes.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 3, EACH = 2 };

/* What becomes of a node after the first round. */
enum fate { LEAVES, RETURNS, SILENT, LOSES_ONE, LOSES_ALL, WELL };
struct scene {
    enum fate of[NODES];
    int least;
    bool restarts;
    char master[64];
    atomic_int done;
    /* results */
    enum error err[NODES];
    char said[NODES][300];
    struct nodes_round round[NODES];
    struct nodes_loss loss[NODES];
    int lost[NODES][NODES * EACH]; /* what they name */
    double seconds;                /* that node 0 took */
};

static enum error meet_again(struct scene *s, int i, struct nodes *n, int first) {
    struct nodes_loss *loss = &s->loss[i];
    *loss = (struct nodes_loss){.locals = EACH, .restarts = s->restarts};
    loss->lost = s->lost[i];
    if (s->of[i] == LOSES_ONE) loss->locals = 1, s->lost[i][loss->nlost++] = first + 1;
    if (s->of[i] == LOSES_ALL)
        for (loss->locals = 0; loss->nlost < EACH;) s->lost[i][loss->nlost] = first + loss->nlost, loss->nlost++;
    int64_t start = clock_ns();
    s->err[i] = nodes_meet(n, loss, &s->round[i]);
    assert_true(loss->nlost <= NODES * EACH);
    if (!s->err[i] && loss->nlost) memmove(s->lost[i], loss->lost, (size_t)loss->nlost * sizeof(int));
    loss->lost = s->lost[i];
    if (i == 0) s->seconds = clock_seconds(clock_ns() - start);
    if (s->err[i]) snprintf(s->said[i], sizeof s->said[i], "%s", error_message());
    return ERR_NONE;
}

/* Until all are there again, as runs do at their checkpoints. */
static enum error join(struct scene *s, int i, struct nodes *n) {
    for (int k = 0; k < 1000 && s->round[i].world < NODES * EACH; k++) {
        struct nodes_loss none = {.locals = EACH, .joins = true};
        TRY(nodes_meet(n, &none, &s->round[i]));
        assert_int_equal(s->round[i].began, NODES * EACH);
        usleep(5000);
    }
    return ERR_NONE;
}

/* The same command, while the others meet without it. */
static enum error come_back(struct scene *s, int i, const struct nodes_params *p, struct nodes **n) {
    nodes_close(*n);
    TRY(nodes_open(p, n));
    TRY(nodes_meet(*n, NULL, &s->round[i]));
    assert_int_equal(s->round[i].began, NODES * EACH); /* as node 0 says */
    return ERR_NONE;
}

static bool somebody_returns(const struct scene *s) {
    bool found = false;
    for (int i = 0; i < NODES; i++) found = found || s->of[i] == RETURNS;
    return found;
}

static enum error live(struct scene *s, int i, struct nodes *n) {
    struct nodes_round first;
    TRY(nodes_meet(n, NULL, &first));
    assert_int_equal(first.world, NODES * EACH);
    assert_int_equal(first.first, i * EACH);
    assert_int_equal(first.locals, EACH);
    assert_false(first.partial || first.fewer || first.whole);
    if (s->of[i] == LEAVES || s->of[i] == RETURNS) return ERR_NONE;
    if (s->of[i] != SILENT) TRY(meet_again(s, i, n, first.first));
    if (s->of[i] != SILENT) return somebody_returns(s) ? join(s, i, n) : ERR_NONE;
    usleep(1500000); /* its connection stays, and it says nothing for longer than others wait */
    return ERR_NONE;
}

static enum error node(void *user, int i) {
    struct scene *s = user;
    const struct nodes_params p = {.index = i,
                                   .nodes_max = NODES,
                                   .locals = EACH,
                                   .master = s->master,
                                   .token = "of-the-test-0123456789",
                                   .again = true,
                                   .timeout = 20,
                                   .least = s->least,
                                   .patience = 1};
    struct nodes *n;
    TRY(nodes_open(&p, &n));
    enum error err = live(s, i, n);
    if (s->of[i] == LEAVES) nodes_close(n);
    if (s->of[i] == RETURNS && err == ERR_NONE) err = come_back(s, i, &p, &n);
    s->done++;
    while (!s->err[i] && s->done < NODES) usleep(2000); /* as node 0 does, whose run goes on */
    if (s->of[i] != LEAVES) nodes_close(n);
    return err;
}

static void play(struct scene *s) {
    snprintf(s->master, sizeof s->master, "127.0.0.1:%d", port_free());
    assert_ok(launch_threads(NODES, node, s));
}

static void goes_on(const struct scene *s, int i, int first, int locals, int world) {
    if (s->err[i]) fail_msg("node %d: %s", i, s->said[i]);
    assert_int_equal(s->round[i].first, first);
    assert_int_equal(s->round[i].locals, locals);
    assert_int_equal(s->round[i].world, world);
}

static void lost_ranks(const struct scene *s, int n, int first) {
    assert_int_equal(s->loss[0].nlost, n);
    for (int i = 0; i < n; i++) assert_int_equal(s->loss[0].lost[i], first + i);
}

/* ---- what they come to ---- */

static void one_rank_fewer(void **state) {
    (void)state;
    struct scene s = {{WELL, LOSES_ONE, WELL}, .least = 5};
    play(&s);
    goes_on(&s, 0, 0, 2, 5);
    goes_on(&s, 1, 2, 1, 5);
    goes_on(&s, 2, 3, 2, 5);
    lost_ranks(&s, 1, 3);
    for (int i = 0; i < NODES; i++) assert_true(s.round[i].partial && !s.round[i].fewer && !s.round[i].whole);
}

static void a_node_leaves(void **state) {
    (void)state;
    static const enum fate fates[] = {LEAVES, SILENT, LOSES_ALL};
    for (int i = 0; i < 3; i++) {
        struct scene s = {{WELL, fates[i], WELL}, .least = 4};
        play(&s);
        goes_on(&s, 0, 0, 2, 4);
        goes_on(&s, 2, 2, 2, 4);
        lost_ranks(&s, 2, 2);
        assert_true(s.round[2].fewer && !s.round[2].partial);
        assert_true(s.seconds < timing_limit(10)); /* and not the time of a meeting */
    }
}

static void a_node_without_a_device_is_told(void **state) {
    (void)state;
    struct scene s = {{WELL, WELL, LOSES_ALL}, .least = 1};
    play(&s);
    goes_on(&s, 1, 2, 2, 4);
    assert_int_equal(s.err[2], ERR_PEER);
    assert_string_equal(s.said[2], "the run continues without node 2, of which no device is left");
}

static void too_few(void **state) {
    (void)state;
    struct scene s = {{WELL, WELL, LOSES_ONE}, .least = 6};
    play(&s);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(s.err[i], ERR_PEER);
        assert_string_equal(s.said[i], "5 devices are left, and the run needs 6 to go on (run.elastic.min)");
    }
}

static void node_0_needs_a_device(void **state) {
    (void)state;
    struct scene s = {{LOSES_ALL, WELL, WELL}, .least = 1};
    play(&s);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(s.err[i], ERR_PEER);
        assert_non_null(strstr(s.said[i], "node 0, which keeps the checkpoints and the store, has no device left"));
    }
}

/* What is not known to be lost cannot be left out. */
static void nobody_is_lost(void **state) {
    (void)state;
    struct scene s = {{WELL, WELL, WELL}, .least = 1};
    play(&s);
    for (int i = 0; i < NODES; i++) assert_int_equal(s.err[i], ERR_PEER);
    assert_non_null(strstr(s.said[1], "no device is known to be lost"));
}

static void all_may_start_again(void **state) {
    (void)state;
    struct scene s = {{WELL, LOSES_ALL, LOSES_ONE}, .least = 6, .restarts = true};
    play(&s);
    for (int i = 0; i < NODES; i++) goes_on(&s, i, i * EACH, EACH, NODES * EACH);
    for (int i = 0; i < NODES; i++) assert_true(s.round[i].whole);
    lost_ranks(&s, 0, 0);
}

static void a_node_comes_back(void **state) {
    (void)state;
    struct scene s = {{WELL, RETURNS, WELL}, .least = 4};
    play(&s);
    lost_ranks(&s, 2, 2);
    for (int i = 0; i < NODES; i++) goes_on(&s, i, i * EACH, EACH, NODES * EACH);
}

/* ---- a number of nodes that is not fixed ---- */

/* Node i has i + 1 ranks. */
struct play {
    struct nodes_params of[NODES];
    char master[64];
    int least; /* 0: 1 */
    bool restarts;
    bool again;           /* they meet once more, and none says what was lost */
    int loses;            /* the node that is lost after the first round; 0: none is */
    int late;             /* the node that comes after the first round has begun; 0: none does */
    atomic_int met, over; /* nodes that have met first; that have ended */
    enum error err[NODES];
    char said[NODES][300];
    struct nodes_round first[NODES], last[NODES];
};

static void await(atomic_int *counter, int count) {
    while (*counter < count) usleep(2000);
}

/* As node 0 does at a checkpoint. */
static enum error take_in(struct play *s, int i, struct nodes *n) {
    struct nodes_loss none = {.locals = i + 1, .joins = true};
    s->last[i] = s->first[i];
    for (int k = 0; k < 1000 && s->last[i].fewer; k++) {
        TRY(nodes_meet(n, &none, &s->last[i]));
        usleep(5000);
    }
    return ERR_NONE;
}

static enum error act(struct play *s, int i, struct nodes *n) {
    TRY(nodes_meet(n, NULL, &s->first[i]));
    s->last[i] = s->first[i];
    s->met++;
    if (i && (i == s->late || i == s->loses)) return ERR_NONE;
    if (s->again) {
        usleep(i * 100000);
        return nodes_meet(n, NULL, &s->last[i]);
    }
    if (!s->loses) return s->late ? take_in(s, i, n) : ERR_NONE;
    usleep(600000); /* in which the late one waits, where there is one */
    await(&s->over, 1);
    struct nodes_loss loss = {.locals = i + 1, .restarts = s->restarts};
    return nodes_meet(n, &loss, &s->last[i]);
}

static enum error actor(void *user, int i) {
    struct play *s = user;
    struct nodes *n;
    if (s->late == i && i) await(&s->met, 2);
    TRY(nodes_open(&s->of[i], &n));
    s->err[i] = act(s, i, n);
    if (s->err[i]) snprintf(s->said[i], sizeof s->said[i], "%s", error_message());
    if (i == s->loses && i) nodes_close(n);
    s->over++;
    if (i == s->loses && i) return ERR_NONE;
    while (i == 0 && s->over < NODES && !s->err[0]) usleep(2000);
    nodes_close(n);
    return ERR_NONE;
}

static void perform(struct play *s, int count, int min) {
    snprintf(s->master, sizeof s->master, "127.0.0.1:%d", port_free());
    s->over = NODES - count;
    for (int i = 0; i < NODES; i++)
        s->of[i] = (struct nodes_params){.index = i,
                                         .nodes_min = min,
                                         .nodes_max = NODES,
                                         .locals = i + 1,
                                         .master = s->master,
                                         .token = "of-the-test-0123456789",
                                         .timeout = s->of[i].timeout > 0 ? s->of[i].timeout : 20,
                                         .least = s->least ? s->least : 1,
                                         .patience = 1};
    assert_ok(launch_threads(count, actor, s));
}

static void stands(const struct play *s, const struct nodes_round *of, int i, int first, int world) {
    if (s->err[i]) fail_msg("node %d: %s", i, s->said[i]);
    assert_int_equal(of[i].first, first);
    assert_int_equal(of[i].locals, i + 1);
    assert_int_equal(of[i].world, world);
}

static void enough_have_come(void **state) {
    (void)state;
    struct play s = {.loses = 0};
    perform(&s, 2, 2);
    stands(&s, s.first, 0, 0, 3);
    stands(&s, s.first, 1, 1, 3);
    assert_true(s.first[0].fewer && s.first[1].fewer && !s.first[1].partial);
}

static void all_have_come(void **state) {
    (void)state;
    struct play s = {.loses = 0};
    perform(&s, NODES, NODES - 1);
    for (int i = 0; i < NODES; i++) stands(&s, s.first, i, i * (i + 1) / 2, 6);
    assert_false(s.first[0].fewer);
}

static void too_few_have_come(void **state) {
    (void)state;
    struct play s = {.of[0].timeout = 0.5, .of[1].timeout = 1};
    perform(&s, 2, 3);
    assert_int_equal(s.err[0], ERR_TIMEOUT);
}

static void another_comes_later(void **state) {
    (void)state;
    struct play s = {.late = 2};
    perform(&s, NODES, 1);
    stands(&s, s.first, 1, 1, 3);
    for (int i = 0; i < NODES; i++) stands(&s, s.last, i, i * (i + 1) / 2, 6);
    assert_int_equal(s.last[2].began, 3); /* as node 0 says */
    assert_false(s.last[2].fewer);
}

static void all_meet_again(void **state) {
    (void)state;
    struct play s = {.loses = 1, .again = true};
    perform(&s, NODES, 2);
    stands(&s, s.last, 0, 0, 4);
    stands(&s, s.last, 2, 1, 4);
    assert_int_equal(s.last[2].nodes, 2);
    assert_int_equal(s.last[2].began, 6);
}

/* Too few ranks are left, so that those that there are start again. */
static void those_left_start_again(void **state) {
    (void)state;
    struct play s = {.loses = 1, .least = 5, .restarts = true};
    perform(&s, NODES, 2);
    stands(&s, s.last, 0, 0, 4);
    stands(&s, s.last, 2, 1, 4);
    assert_true(s.last[0].whole && s.last[2].whole && s.last[0].fewer);
}

/* Without it there would be too few. */
static void another_takes_the_place(void **state) {
    (void)state;
    struct play s = {.late = 2, .loses = 1};
    perform(&s, NODES, 2);
    stands(&s, s.last, 0, 0, 4);
    stands(&s, s.last, 2, 1, 4);
}

/* ---- what is left in the store ---- */

static int keys_of(struct store *s, const char *round) {
    struct pool *pool;
    char **keys;
    int count;
    assert_ok(pool_create(&pool));
    assert_ok(store_list(s, round, pool, &keys, &count));
    pool_free(pool);
    return count;
}

static void old_rounds_are_forgotten(void **state) {
    enum { ROUNDS = 5 };
    (void)state;
    const struct nodes_params p = {
        .nodes_max = 1, .locals = EACH, .token = "of-the-test-0123456789", .again = true, .timeout = 20};
    struct nodes_round round[ROUNDS];
    struct nodes *n;
    struct store *s;
    assert_ok(nodes_open(&p, &n));
    for (int i = 0; i < ROUNDS; i++) assert_ok(nodes_meet(n, NULL, &round[i]));
    const struct store_params sp = {.url = round[0].store, .token = p.token, .timeout = 20};
    assert_ok(store_open(&sp, &s));
    for (int i = 0; i < ROUNDS; i++) assert_true((keys_of(s, round[i].name) == 0) == (i < ROUNDS - 2));
    store_close(s);
    nodes_close(n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_fewer),
        cmocka_unit_test(a_node_leaves),
        cmocka_unit_test(a_node_without_a_device_is_told),
        cmocka_unit_test(too_few),
        cmocka_unit_test(node_0_needs_a_device),
        cmocka_unit_test(nobody_is_lost),
        cmocka_unit_test(all_may_start_again),
        cmocka_unit_test(a_node_comes_back),
        cmocka_unit_test(enough_have_come),
        cmocka_unit_test(all_have_come),
        cmocka_unit_test(too_few_have_come),
        cmocka_unit_test(another_comes_later),
        cmocka_unit_test(all_meet_again),
        cmocka_unit_test(those_left_start_again),
        cmocka_unit_test(another_takes_the_place),
        cmocka_unit_test(old_rounds_are_forgotten),
    };
    return cmocka_run_group_tests_name("nodes", tests, NULL, NULL);
}
