/* What goes wrong has a name: ranks that disagree, come late, leave, die or give up. Every rank of
 * a failed group reports the same reason, promptly, and none hangs. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "tests/conformance/ranks.h"
#include "tests/harness/timing.h"

#include <signal.h>

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' not in '%s'", part, text);
}

static double patience;      /* seconds that a call may take */
static _Atomic int given_up; /* ranks that have: a late one waits for them, not for a time */

/* Whether all have opened their group within its timeout, which is that of its calls, too. */
static bool have_opened(const struct rank *r, int world) {
    for (int i = 0; i < world; i++)
        if (*r[i].wrong) return false;
    return true;
}

/* Runs fn on all links and hands back what the ranks of the last run found; all must have failed
 * alike. A timeout that is to pass is short, and a busy machine may need longer to open the group: then all have more. */
static void run_failing(int world, double timeout, void (*fn)(struct rank *), enum error err, struct rank *out) {
    static const char *const links[] = {"thread", "shm", "tcp", "hosts"};
    patience = timeout;
    for (int l = 0; l < 4; l++) {
        for (bool again = true; again;) {
            given_up = 0;
            run_ranks(
                (struct ranks){
                    .world = world, .link = links[l], .fn = fn, .timeout = patience, .may_not_open = patience < 60},
                out);
            again = !have_opened(out, world);
            if (again) patience *= 4;
        }
        for (int r = 0; r < world; r++) {
            if (out[r].err != err) fail_msg("rank %d: '%s' (%s)", r, error_text(out[r].err), out[r].message);
            assert_string_equal(out[r].message, out[0].message);
        }
    }
}

/* ---- ranks that disagree ---- */

static void other_kind(struct rank *r) {
    float buf[8] = {0};
    check_ok(group_barrier(r->group));
    enum error err = r->index == 1 ? group_all_reduce(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, REDOP_SUM)
                                   : group_broadcast(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, 2);
    if (!err) err = group_barrier(r->group); /* over a lazy link rank 0 may have all it needs */
    rank_result(r, err);
}

static void kinds_differ(void **state) {
    struct rank r[3];
    (void)state;
    run_failing(3, 60, other_kind, ERR_MISMATCH, r);
    assert_has(r[0].message, "all_reduce(f32, 8, sum)");
    assert_has(r[0].message, "broadcast(f32, 8, root 2)");
    assert_has(r[0].message, "as collective 3"); /* after open and barrier */
    assert_has(r[0].message, "rank 1 called");
}

/* Each of these differs on rank 0 in one thing. */
static enum error odd_call(struct group *g, int what, bool odd, void *buf) {
    int64_t part[3] = {0, odd ? 3 : 4, 8};
    switch (what) {
    case 0:
        return group_all_reduce(g, GROUP_INLINE, buf, odd ? 7 : 8, DTYPE_F32, REDOP_SUM);
    case 1:
        return group_all_reduce(g, GROUP_INLINE, buf, 8, odd ? DTYPE_I32 : DTYPE_F32, REDOP_SUM);
    case 2:
        return group_all_reduce(g, GROUP_INLINE, buf, 8, DTYPE_F32, odd ? REDOP_MAX : REDOP_SUM);
    case 3:
        return group_broadcast(g, GROUP_INLINE, buf, 8, DTYPE_F32, odd);
    case 4:
        return group_all_gather(g, GROUP_INLINE, buf, part, DTYPE_F32);
    default:
        return group_alloc(g, odd ? 64 : 128, &(void *){NULL});
    }
}

static int odd_case; /* which; ranks only read it */

static void odd_one(struct rank *r) {
    double buf[8] = {0};
    enum error err = odd_call(r->group, odd_case, r->index == 0, buf);
    if (!err) err = group_barrier(r->group);
    rank_result(r, err);
}

static void arguments_differ(void **state) {
    static const char *const words[] = {"all_reduce(f32, 7, sum)",  "all_reduce(i32, 8, sum)",
                                        "all_reduce(f32, 8, max)",  "broadcast(f32, 8, root 1)",
                                        "all_gather(f32, 8, parts", "alloc(64)"};
    struct rank r[2];
    (void)state;
    for (odd_case = 0; odd_case < 6; odd_case++) {
        run_failing(2, 60, odd_one, ERR_MISMATCH, r);
        assert_has(r[0].message, words[odd_case]);
    }
}

static void odd_pair(struct rank *r) {
    float buf[8] = {0};
    enum error err = r->index ? group_recv(r->group, GROUP_INLINE, buf, 5, DTYPE_F32, 0)
                              : group_send(r->group, GROUP_INLINE, buf, 7, DTYPE_F32, 1);
    if (!err) err = group_barrier(r->group); /* a small send does not wait */
    rank_result(r, err);
}

static void send_and_receive_differ(void **state) {
    struct rank r[2];
    (void)state;
    run_failing(2, 60, odd_pair, ERR_MISMATCH, r);
    assert_has(r[1].message, "rank 0 called send(f32, 7) where rank 1 called recv(f32, 5)");
}

/* More than any link keeps: each waits for a receive that does not come. */
static void send_to_each_other(struct rank *r) {
    enum { COUNT = 8 << 20 };
    float *buf = calloc(COUNT, sizeof *buf);
    rank_result(r, group_send(r->group, GROUP_INLINE, buf, COUNT, DTYPE_F32, 1 - r->index));
    free(buf);
}

static void sends_that_face_each_other_end(void **state) {
    struct rank r[2];
    (void)state;
    run_failing(2, 0.5, send_to_each_other, ERR_TIMEOUT, r);
    assert_has(r[0].message, "send");
}

static void *open_other_order(void *arg) {
    struct rank *r = arg;
    struct group_params p = rank_params(r->of, r->index);
    p.order = r->index ? ORDER_RING : ORDER_TREE;
    p.meeting = r->of->meeting;
    rank_result(r, group_open(&p, &r->group));
    return NULL;
}

static void orders_differ(void **state) {
    struct ranks p = {.world = 2, .link = "thread"};
    struct rank r[2] = {{.of = &p, .index = 0}, {.of = &p, .index = 1}};
    pthread_t id;
    (void)state;
    assert_ok(meeting_create(2, &p.meeting));
    assert_int_equal(pthread_create(&id, NULL, open_other_order, &r[1]), 0);
    open_other_order(&r[0]);
    pthread_join(id, NULL);
    meeting_free(p.meeting);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].err, ERR_MISMATCH);
        assert_has(r[i].message, "open(algorithm direct, order ring, idle 0)");
    }
}

static void bad_call(struct rank *r) {
    float buf[8] = {0};
    nap(0.05); /* until all ranks have opened */
    if (r->index == 1)
        rank_result(r, group_broadcast(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, 9));
    else
        rank_result(r, group_broadcast(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, 0));
    if (!r->err) rank_result(r, group_barrier(r->group));
}

static void senseless_arguments_fail_all(void **state) {
    struct rank r[3];
    (void)state;
    run_failing(3, 60, bad_call, ERR_BUG, r);
    assert_has(r[0].message, "broadcast: rank 9");
}

/* ---- ranks that do not come ---- */

static const double PATIENCE = 1.5;

static void await_others(int n) {
    int64_t began = clock_ns();
    while (given_up < n && clock_seconds(clock_ns() - began) < timing_limit(4 * patience)) nap(0.005);
    given_up = 0;
}

static void late(struct rank *r) {
    float buf[1024] = {0};
    check_ok(group_barrier(r->group));
    group_note(r->group, "forward of conv1", 7);
    group_note(r->group, "backward of conv4, whose name is far too long to be kept whole", 8);
    if (r->index == 2) await_others(2);
    int64_t start = clock_ns();
    rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, 1024, DTYPE_F32, REDOP_SUM));
    double waited = clock_seconds(clock_ns() - start);
    if (r->index != 2) given_up++;
    check(waited < timing_limit(20) + patience, "%g s", waited);
    check(r->index == 2 || waited > 0.9 * patience, "%g s", waited);
    check(group_barrier(r->group) == ERR_TIMEOUT, "a failed group went on");
}

static void a_late_rank_is_named(void **state) {
    struct rank r[3];
    char words[100];
    (void)state;
    run_failing(3, PATIENCE, late, ERR_TIMEOUT, r);
    snprintf(words, sizeof words, "rank 2 has not entered all_reduce 3 (4.0 KB) within %g s", patience);
    assert_has(r[0].message, words);
    assert_has(r[0].message, "last seen in backward of conv4, whose name is far too long t");
    assert_has(r[0].message, "of step 8, ");
}

static void a_rank_that_never_joins_is_named(void **state) {
    struct ranks p = {.world = 2, .link = "thread", .timeout = 0.2};
    struct group *g;
    (void)state;
    assert_ok(meeting_create(2, &p.meeting));
    struct group_params gp = rank_params(&p, 0);
    assert_fails(ERR_TIMEOUT, group_open(&gp, &g));
    assert_has(error_message(), "rank 1 has not joined within 0.2 s");
    meeting_free(p.meeting);
}

static void late_in_comm_lane(struct rank *r) {
    float a[64] = {0}, b[64] = {0};
    struct work *w[2];
    if (r->index == 1) await_others(1);
    enum error err = group_all_reduce(r->group, GROUP_COMM(&w[0]), a, 64, DTYPE_F32, REDOP_SUM);
    if (!err) err = group_all_reduce(r->group, GROUP_COMM(&w[1]), b, 64, DTYPE_F32, REDOP_SUM);
    check(err == ERR_NONE, "queueing: %s", error_message());
    if (err) return;
    check(work_wait(w[1]) == ERR_TIMEOUT, "%s", error_message());
    if (r->index != 1) given_up++;
    rank_result(r, work_wait(w[0]));
}

static void the_comm_lane_tells_too(void **state) {
    struct rank r[2];
    (void)state;
    run_failing(2, PATIENCE, late_in_comm_lane, ERR_TIMEOUT, r);
    assert_has(r[0].message, "rank 1 has not entered all_reduce 1");
}

/* ---- ranks that leave or give up ---- */

static void leaver(struct rank *r) {
    float buf[8] = {0};
    check_ok(group_barrier(r->group));
    if (r->index == 1) {
        nap(0.05);
        group_close(r->group);
        r->group = NULL;
        return;
    }
    int64_t start = clock_ns();
    rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, REDOP_SUM));
    check(clock_seconds(clock_ns() - start) < timing_limit(10), "took too long");
}

static void a_rank_that_leaves_is_named(void **state) {
    struct rank r[3];
    (void)state;
    for (int l = 0; l < 2; l++) {
        run_ranks((struct ranks){.world = 3, .link = l ? "shm" : "thread", .fn = leaver}, r);
        assert_int_equal(r[0].err, ERR_PEER);
        assert_int_equal(r[2].err, ERR_PEER);
        assert_has(r[0].message, "rank 1 has left");
        assert_string_equal(r[0].message, r[2].message);
    }
}

static void *abort_soon(void *arg) {
    nap(0.05);
    group_abort(arg, "the loss is not a number");
    group_abort(arg, "a later reason");
    return NULL;
}

/* Rank 0 waits on both lanes; a thread of rank 1, which never comes, aborts. */
static void aborter(struct rank *r) {
    float buf[8] = {0}, other[8] = {0};
    pthread_t id;
    struct work *w;
    int64_t start = clock_ns();
    if (r->index == 1) {
        check(pthread_create(&id, NULL, abort_soon, r->group) == 0, "pthread_create");
        pthread_join(id, NULL);
        rank_result(r, group_barrier(r->group));
        return;
    }
    check_ok(group_all_reduce(r->group, GROUP_COMM(&w), other, 8, DTYPE_F32, REDOP_SUM));
    rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, REDOP_SUM));
    check(work_wait(w) == ERR_PEER, "%s", error_message());
    check(clock_seconds(clock_ns() - start) < timing_limit(10), "took too long");
}

static void the_first_reason_is_everybodys(void **state) {
    struct rank r[4];
    (void)state;
    run_failing(4, 60, aborter, ERR_PEER, r);
    assert_string_equal(r[3].message, "rank 1: the loss is not a number");
}

/* What to do about it is told to all, too: whole, or not at all where the record has no room for it. */
static void adviser(struct rank *r) {
    static const char hint[] = "lower the rate, or clip";
    enum { LONG = 580 };
    char reason[LONG + sizeof hint + 1];
    bool fits = r->of->world == 2;
    memset(reason, 'x', LONG);
    snprintf(reason + (fits ? 4 : LONG), sizeof hint + 1, "\n%s", hint);
    enum error err = group_barrier(r->group); /* that no rank fails the group while another still opens it */
    if (r->index == 1) group_abort(r->group, reason);
    rank_result(r, err ? err : group_barrier(r->group));
    if (strcmp(error_hint(), fits ? hint : "")) check(false, "rank %d: hint '%s'", r->index, error_hint());
}

static void a_hint_comes_with_the_reason(void **state) {
    struct rank r[3];
    (void)state;
    run_failing(2, 60, adviser, ERR_PEER, r);
    assert_string_equal(r[0].message, "rank 1: xxxx");
    run_failing(3, 60, adviser, ERR_PEER, r);
    assert_has(r[2].message, "rank 1: xxxx");
}

static void careless(struct rank *r) {
    float buf[8] = {0};
    struct work *w;
    if (r->index == 0) {
        check_ok(group_all_reduce(r->group, GROUP_COMM(&w), buf, 8, DTYPE_F32, REDOP_SUM));
        group_close(r->group); /* must end, though rank 1 never answers */
        r->group = NULL;
        return;
    }
    nap(0.1);
    rank_result(r, group_barrier(r->group));
}

static void leaving_with_work_in_flight(void **state) {
    struct rank r[2];
    (void)state;
    run_ranks((struct ranks){.world = 2, .link = "thread", .fn = careless}, r);
    assert_int_equal(r[1].err, ERR_PEER);
    assert_has(r[1].message, "rank 0 has left");
}

static void hoarder(struct rank *r) {
    float buf[1] = {0};
    struct work *w;
    enum error err = ERR_NONE;
    int begun = 0;
    while (!err && begun < 1000) {
        err = group_all_reduce(r->group, GROUP_COMM(&w), buf, 1, DTYPE_F32, REDOP_SUM);
        begun++;
    }
    rank_result(r, err);
    check(begun == 257, "%d", begun);
}

/* One call is waited for last; all others find room. */
static void patient(struct rank *r) {
    float first[1] = {1}, buf[1];
    struct work *old, *w;
    check_ok(group_all_reduce(r->group, GROUP_COMM(&old), first, 1, DTYPE_F32, REDOP_SUM));
    for (int i = 0; i < 3 * GROUP_WORKS; i++) {
        buf[0] = (float)i;
        check_ok(group_all_reduce(r->group, GROUP_COMM(&w), buf, 1, DTYPE_F32, REDOP_SUM));
        check_ok(work_wait(w));
        check(buf[0] == 2 * (float)i, "%g in call %d", (double)buf[0], i);
    }
    check_ok(work_wait(old));
    check(first[0] == 2, "%g", (double)first[0]);
}

static void one_is_waited_for_last(void **state) {
    struct rank r[2];
    (void)state;
    run_ranks((struct ranks){.world = 2, .link = "thread", .fn = patient}, r);
}

static void too_much_in_flight(void **state) {
    struct rank r[1];
    (void)state;
    run_ranks((struct ranks){.world = 1, .link = "thread", .fn = hoarder}, r);
    assert_int_equal(r[0].err, ERR_BUG);
    assert_has(r[0].message, "256 calls have been begun and not waited for");
}

/* ---- processes that die ---- */

enum { DEADLY = 3 };

static void die_or_tell(struct rank *r) {
    float buf[1024] = {0};
    check_ok(group_barrier(r->group));
    if (r->index == 1) raise(SIGKILL);
    rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, 1024, DTYPE_F32, REDOP_SUM));
    check(strstr(r->message, "rank 1 (pid ") && strstr(r->message, "has died"), "%s", r->message);
    check(r->err == ERR_PEER, "%s", error_text(r->err));
}

static int process_rank(int rank, int world) {
    struct meeting *m;
    struct ranks p = {.world = world, .link = "shm", .fn = die_or_tell};
    struct rank r = {.of = &p, .index = rank};
    if (meeting_join(RANK_FD, world, &m) != ERR_NONE) return 1;
    rank_run(&r, m);
    meeting_free(m);
    if (*r.wrong) fprintf(stderr, "%s\n", r.wrong);
    return *r.wrong ? 1 : 0;
}

/* Well before the timeout of a minute, and although nobody has waited for the dead process. */
static void a_killed_process_is_named(void **state) {
    struct meeting *m;
    pid_t pid[DEADLY];
    int status;
    (void)state;
    assert_ok(meeting_create_shared(DEADLY, &m));
    int64_t start = clock_ns();
    for (int i = 0; i < DEADLY; i++) pid[i] = spawn_rank(m, i, DEADLY, "die");
    for (int i = 0; i < DEADLY; i += 2) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        assert_int_equal(status, 0);
    }
    assert_true(clock_seconds(clock_ns() - start) < timing_limit(20));
    assert_int_equal(waitpid(pid[1], &status, 0), pid[1]);
    assert_true(WIFSIGNALED(status));
    meeting_free(m);
}

/* ---- opening wrongly ---- */

static void wrong_parameters(void **state) {
    struct ranks p = {.world = 1, .link = "thread"};
    struct group *g;
    (void)state;
    assert_ok(meeting_create(1, &p.meeting));
    struct group_params good = rank_params(&p, 0), q = good;
    q.link = "pigeon";
    assert_fails(ERR_CONFIG, group_open(&q, &g));
    q = good, q.algorithm = "magic";
    assert_fails(ERR_CONFIG, group_open(&q, &g));
    q = good, q.algorithm = "ring", q.order = ORDER_TREE;
    assert_fails(ERR_CONFIG, group_open(&q, &g));
    assert_has(error_message(), "cannot add in tree order");
    q = good, q.rank = 1;
    assert_fails(ERR_CONFIG, group_open(&q, &g));
    q = good, q.size = 2;
    assert_fails(ERR_MISMATCH, group_open(&q, &g));
    q = good, q.idle = 1;
    assert_fails(ERR_CONFIG, group_open(&q, &g));
    q = good, q.timeout = 0;
    assert_fails(ERR_CONFIG, group_open(&q, &g));
    q = good, q.link = "shm";
    assert_fails(ERR_CONFIG, group_open(&q, &g));

    assert_ok(group_open(&good, &g));
    struct group *second;
    assert_fails(ERR_MISMATCH, group_open(&good, &second));
    assert_has(error_message(), "two ranks 0");
    group_close(g);
    assert_fails(ERR_PEER, group_open(&good, &second));
    meeting_free(p.meeting);
}

/* The barrier: that no rank fails the group while another still opens it. */
static void greedy(struct rank *r) {
    void *p;
    enum error err = group_barrier(r->group);
    rank_result(r, err ? err : group_alloc(r->group, (size_t)1 << 60, &p));
}

static void too_much_memory(void **state) {
    struct rank r[2];
    (void)state;
    run_failing(2, 60, greedy, ERR_MEMORY, r);
}

int main(int argc, char **argv) {
    log_set_level(LOG_ERROR); /* the warnings before a timeout are not looked at */
    if (argc == 5 && !strcmp(argv[1], "--rank")) return process_rank(atoi(argv[2]), atoi(argv[3]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_differ),
        cmocka_unit_test(arguments_differ),
        cmocka_unit_test(send_and_receive_differ),
        cmocka_unit_test(sends_that_face_each_other_end),
        cmocka_unit_test(orders_differ),
        cmocka_unit_test(senseless_arguments_fail_all),
        cmocka_unit_test(a_late_rank_is_named),
        cmocka_unit_test(a_rank_that_never_joins_is_named),
        cmocka_unit_test(the_comm_lane_tells_too),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(the_first_reason_is_everybodys),
        cmocka_unit_test(a_hint_comes_with_the_reason),
        cmocka_unit_test(leaving_with_work_in_flight),
        cmocka_unit_test(too_much_in_flight),
        cmocka_unit_test(one_is_waited_for_last),
        cmocka_unit_test(a_killed_process_is_named),
        cmocka_unit_test(wrong_parameters),
        cmocka_unit_test(too_much_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
