/* The mailbox of a server that does not wait: order, deadlines, failures, and no wake-up lost among
 * threads that hurry. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "modes/share/mailbox.h"
#include "tests/conformance/ranks.h"
#include "tests/harness/timing.h"

#include <stdatomic.h>
#include <time.h>

static void pause_ms(long ms) {
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static struct mailbox *box;

/* fn in the threads of a server and its workers, which share a box. */
static void run_box(int workers, double timeout, void (*fn)(struct rank *r), struct rank *out) {
    assert_ok(mailbox_create(workers, &box));
    mailbox_begin(box, 1);
    run_ranks((struct ranks){.world = workers + 1, .link = "thread", .timeout = timeout, .fn = fn}, out);
    mailbox_free(box);
}

/* The call gives ERR_TIMEOUT, with these words. */
static void check_late(struct rank *r, enum error err, const char *words) {
    rank_result(r, err);
    check(err == ERR_TIMEOUT && strstr(r->message, words), "error %d: %s", (int)err, r->message);
}

/* ---- one thread says what all do ---- */

static void serve_in_order(struct rank *r) {
    int order[] = {2, 0, 3, 1}, who;
    if (r->index) return;
    for (int i = 0; i < 4; i++) mailbox_post(box, r->group, order[i]);
    for (int i = 0; i < 4; i++) {
        check_ok(mailbox_take(box, r->group, MAILBOX_ANY, &who));
        check(who == order[i], "%d instead of %d", who, order[i]);
    }
    mailbox_answer(box, r->group, 2);
    check_ok(mailbox_await(box, r->group, 2)); /* at once */
}

static void first_come_first_served(void **state) {
    (void)state;
    run_box(4, 10, serve_in_order, NULL);
}

static void serve_by_name(struct rank *r) {
    int who;
    if (r->index) return;
    for (int w = 2; w >= 0; w--) mailbox_post(box, r->group, w);
    for (int w = 0; w < 3; w++) {
        check_ok(mailbox_take(box, r->group, w, &who));
        check(who == w, "%d instead of %d", who, w);
    }
}

static void one_by_name(void **state) {
    (void)state;
    run_box(3, 10, serve_by_name, NULL);
}

static void serve_all_but_one(struct rank *r) {
    int who;
    int64_t began = clock_ns();
    enum error err = ERR_NONE;
    if (r->index) return;
    mailbox_post(box, r->group, 2); /* is never taken */
    for (int taken = 0; err == ERR_NONE; taken++) {
        mailbox_post(box, r->group, 0);
        err = mailbox_take(box, r->group, 0, &who);
        if (err == ERR_NONE) mailbox_answer(box, r->group, 0);
        if (err == ERR_NONE && taken == 100) err = mailbox_take(box, r->group, 1, &who);
    }
    double took = clock_seconds(clock_ns() - began);
    check_late(r, err, "rank 2 has not sent its gradient of step 1 within");
    check(took > 0.29 && took < timing_limit(3), "after %g s", took);
}

/* Who has posted is not late, and who is awaited is named, though others keep coming. */
static void who_does_not_come_is_named(void **state) {
    (void)state;
    run_box(3, 0.3, serve_all_but_one, NULL);
}

static void serve_the_punctual(struct rank *r) {
    int who;
    enum error err = ERR_NONE;
    if (r->index) return;
    while (err == ERR_NONE) {
        mailbox_post(box, r->group, 0);
        err = mailbox_take(box, r->group, MAILBOX_ANY, &who);
        if (err == ERR_NONE) mailbox_answer(box, r->group, who);
        if (err == ERR_NONE) mailbox_received(box, r->group, who);
    }
    check_late(r, err, "rank 2 has not sent");
}

static void late_among_the_punctual(void **state) {
    (void)state;
    run_box(2, 0.2, serve_the_punctual, NULL);
}

/* Where a rank waits in vain, the group has failed for all. */
static void wait_for_a_silent_server(struct rank *r) {
    if (r->index) {
        mailbox_post(box, r->group, 0);
        check_late(r, mailbox_await(box, r->group, 0), "rank 0, the server, has taken no gradient");
        return;
    }
    pause_ms(900); /* it is not late in a call before it is late here */
    rank_result(r, group_barrier(r->group));
    check(strstr(r->message, "rank 0, the server"), "%s", r->message);
}

static void a_silent_server_is_named(void **state) {
    (void)state;
    run_box(1, 0.2, wait_for_a_silent_server, NULL);
}

/* ---- several ---- */

static void be_busy(struct rank *r) {
    int who;
    if (r->index == 0) {
        for (int i = 0; i < 40; i++) {
            pause_ms(20);
            mailbox_alive(box);
        }
        check_ok(mailbox_take(box, r->group, MAILBOX_ANY, &who));
        return;
    }
    mailbox_post(box, r->group, 0);
    check_ok(mailbox_await_taking(box, r->group, 0));
    check_late(r, mailbox_await(box, r->group, 0), "rank 0, the server"); /* it is silent now */
}

/* However long it serves others: a worker that waits to be taken waits on, and no further than that. */
static void a_busy_server_is_not_silent(void **state) {
    (void)state;
    run_box(1, 0.2, be_busy, NULL);
}

static void answer_both(struct rank *r) {
    int who;
    for (int w = 1; w >= 0; w--) {
        mailbox_post(box, r->group, w);
        check_ok(mailbox_take(box, r->group, w, &who));
        mailbox_answer(box, r->group, w);
    }
    check_ok(mailbox_await(box, r->group, 1));
}

static void come_before_the_turn(struct rank *r) {
    if (r->index) return;
    answer_both(r);
    check_late(r, mailbox_await(box, r->group, 0), "rank 0, the server");
}

static void take_before_the_turn(struct rank *r) {
    int who;
    if (r->index) return;
    answer_both(r); /* until its turn comes nobody is late: rank 1 is not named */
    check_late(r, mailbox_take(box, r->group, MAILBOX_ANY, &who), "rank 2 has not sent");
}

static void meet_before_all_have(struct rank *r) {
    if (r->index) return;
    answer_both(r);
    mailbox_received(box, r->group, 1);
    check_late(r, mailbox_await_all(box, r->group, 1), "rank 0, the server");
}

static void meet(struct rank *r) {
    if (r->index) return;
    answer_both(r);
    mailbox_received(box, r->group, 1);
    check_ok(mailbox_await(box, r->group, 0));
    mailbox_received(box, r->group, 0);
    check_ok(mailbox_await_all(box, r->group, 1));
    mailbox_post(box, r->group, 0); /* it may be further already */
    check_ok(mailbox_await_all(box, r->group, 1));
}

/* Weights leave in the order of the answers, and where all meet, nobody leaves before all have them. */
static void one_after_the_other(void **state) {
    (void)state;
    run_box(2, 0.2, come_before_the_turn, NULL);
    run_box(2, 0.2, take_before_the_turn, NULL);
    run_box(2, 0.2, meet_before_all_have, NULL);
    run_box(2, 5, meet, NULL);
}

/* ---- threads that hurry ---- */

enum { WORKERS = 6, ROUNDS = 3000 };
static bool turns;
static atomic_int ended;

static enum error work(struct rank *r) {
    int me = r->index - 1;
    for (int i = 0; i < ROUNDS; i++) {
        mailbox_post(box, r->group, me);
        if (i % 2) TRY(mailbox_await_taking(box, r->group, me));
        TRY(mailbox_await(box, r->group, me));
        mailbox_received(box, r->group, me);
    }
    atomic_fetch_add(&ended, 1);
    return ERR_NONE;
}

static void hurry(struct rank *r) {
    int who, count[WORKERS] = {0};
    if (r->index) {
        check_ok(work(r));
        return;
    }
    int64_t began = clock_ns();
    for (int i = 0; i < ROUNDS * WORKERS; i++) {
        check_ok(mailbox_take(box, r->group, turns ? i % WORKERS : MAILBOX_ANY, &who));
        if (who < 0) return;
        count[who]++;
        mailbox_answer(box, r->group, who);
    }
    for (int i = 0; i < WORKERS; i++) check(count[i] == ROUNDS, "%d of worker %d", count[i], i);
    double us = clock_seconds(clock_ns() - began) * 1e6 / (ROUNDS * WORKERS);
    printf("%s: %.1f us a gradient\n", turns ? "in turn" : "of arrival", us);
    check(!timing_checked() || us < 2000, "%g us a gradient", us);
}

/* A lost wake-up would cost a sleep of 200 ms; so many rounds would never end in time. */
static void no_wake_up_is_lost(void **state) {
    (void)state;
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        turns = in_turn;
        ended = 0;
        run_box(WORKERS, 60, hurry, NULL);
        assert_int_equal(ended, WORKERS);
    }
}

/* Worker 0 waits in vain; the last one fails the group before it has done anything. */
static void fail_while_others_wait(struct rank *r) {
    int who;
    enum error err = ERR_NONE;
    if (r->index == WORKERS) {
        pause_ms(20);
        group_abort(r->group, "no more");
        return;
    }
    if (r->index) err = work(r);
    while (!r->index && (err = mailbox_take(box, r->group, MAILBOX_ANY, &who)) == ERR_NONE)
        if (who != 0) mailbox_answer(box, r->group, who);
    check(err == ERR_PEER && strstr(error_message(), "rank 6: no more"), "%s", error_message());
}

static void a_failure_wakes_all(void **state) {
    (void)state;
    ended = 0;
    int64_t began = clock_ns();
    run_box(WORKERS, 60, fail_while_others_wait, NULL);
    assert_true(clock_seconds(clock_ns() - began) < timing_limit(5));
    assert_int_equal(ended, 0);
    mailbox_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),     cmocka_unit_test(one_by_name),
        cmocka_unit_test(who_does_not_come_is_named),  cmocka_unit_test(late_among_the_punctual),
        cmocka_unit_test(a_silent_server_is_named),    cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(a_busy_server_is_not_silent), cmocka_unit_test(one_after_the_other),
        cmocka_unit_test(a_failure_wakes_all),
    };
    return cmocka_run_group_tests_name("mailbox", tests, NULL, NULL);
}
