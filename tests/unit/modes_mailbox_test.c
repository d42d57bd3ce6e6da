/* The mailbox of a server that does not wait: order, deadlines, failures, and no wake-up lost among
 * threads that hurry. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "modes/share/mailbox.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void pause_ms(long ms) {
    struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static struct mailbox *box_of(int workers, double timeout) {
    struct mailbox *m;
    assert_ok(mailbox_create(workers, timeout, &m));
    mailbox_begin(m, 1);
    return m;
}

static void first_come_first_served(void **state) {
    (void)state;
    int order[] = {2, 0, 3, 1}, who;
    struct mailbox *m = box_of(4, 10);
    for (int i = 0; i < 4; i++) mailbox_post(m, order[i]);
    for (int i = 0; i < 4; i++) {
        assert_ok(mailbox_take(m, MAILBOX_ANY, &who));
        assert_int_equal(who, order[i]);
    }
    mailbox_answer(m, 2);
    assert_ok(mailbox_await(m, 2)); /* at once */
    mailbox_free(m);
}

static void one_by_name(void **state) {
    (void)state;
    int who;
    struct mailbox *m = box_of(3, 10);
    for (int w = 2; w >= 0; w--) mailbox_post(m, w);
    for (int w = 0; w < 3; w++) {
        assert_ok(mailbox_take(m, w, &who));
        assert_int_equal(who, w);
    }
    mailbox_free(m);
}

/* Who has posted is not late, and who is awaited is named, though others keep coming. */
static void who_does_not_come_is_named(void **state) {
    (void)state;
    int who;
    struct mailbox *m = box_of(3, 0.3);
    int64_t began = clock_ns();
    enum error err = ERR_NONE;
    int taken = 0;
    mailbox_post(m, 2); /* is never taken */
    for (; err == ERR_NONE; taken++) {
        mailbox_post(m, 0);
        err = mailbox_take(m, 0, &who);
        if (err == ERR_NONE) mailbox_answer(m, 0);
        if (err == ERR_NONE && taken == 100) err = mailbox_take(m, 1, &who);
    }
    double took = clock_seconds(clock_ns() - began);
    assert_int_equal(err, ERR_TIMEOUT);
    assert_non_null(strstr(error_message(), "rank 2 has not come with its gradient of step 1"));
    assert_true(took > 0.29 && took < 3);
    mailbox_free(m);
}

static void late_among_the_punctual(void **state) {
    (void)state;
    int who;
    struct mailbox *m = box_of(2, 0.2);
    enum error err = ERR_NONE;
    while (err == ERR_NONE) {
        mailbox_post(m, 0);
        err = mailbox_take(m, MAILBOX_ANY, &who);
        if (err == ERR_NONE) mailbox_answer(m, who);
    }
    assert_int_equal(err, ERR_TIMEOUT);
    assert_non_null(strstr(error_message(), "rank 2 has not come"));
    mailbox_free(m);
}

static void a_silent_server_is_named(void **state) {
    (void)state;
    struct mailbox *m = box_of(1, 0.2);
    mailbox_post(m, 0);
    assert_fails(ERR_TIMEOUT, mailbox_await(m, 0));
    assert_non_null(strstr(error_message(), "rank 0, the server"));
    mailbox_free(m);
}

static void *serve_others(void *arg) {
    int who;
    struct mailbox *m = arg;
    for (int i = 0; i < 40; i++) {
        pause_ms(20);
        mailbox_alive(m);
    }
    return mailbox_take(m, MAILBOX_ANY, &who) == ERR_NONE ? m : NULL;
}

/* However long it serves others: who waits to be taken waits on, and no further than that. */
static void a_busy_server_is_not_silent(void **state) {
    (void)state;
    void *took;
    pthread_t server;
    struct mailbox *m = box_of(1, 0.2);
    mailbox_post(m, 0);
    assert_int_equal(pthread_create(&server, NULL, serve_others, m), 0);
    assert_ok(mailbox_await_taking(m, 0));
    assert_int_equal(pthread_join(server, &took), 0);
    assert_ptr_equal(took, m);
    assert_fails(ERR_TIMEOUT, mailbox_await(m, 0)); /* it is silent now */
    mailbox_post(m, 0);
    assert_fails(ERR_TIMEOUT, mailbox_await_taking(m, 0));
    mailbox_free(m);
}

/* Weights leave in the order of the answers, and where all meet, nobody leaves before all have
 * them. Until its turn comes nobody is late. */
static void one_after_the_other(void **state) {
    (void)state;
    int who;
    struct mailbox *m = box_of(2, 0.2);
    for (int w = 1; w >= 0; w--) {
        mailbox_post(m, w);
        assert_ok(mailbox_take(m, w, &who));
        mailbox_answer(m, w);
    }
    assert_ok(mailbox_await(m, 1));
    assert_fails(ERR_TIMEOUT, mailbox_await(m, 0));
    assert_fails(ERR_TIMEOUT, mailbox_take(m, MAILBOX_ANY, &who));
    assert_non_null(strstr(error_message(), "rank 2 has not come"));
    mailbox_received(m, 1);
    assert_fails(ERR_TIMEOUT, mailbox_await_all(m, 1));
    assert_ok(mailbox_await(m, 0));
    mailbox_received(m, 0);
    assert_ok(mailbox_await_all(m, 1));
    mailbox_post(m, 0); /* it may be further already */
    assert_ok(mailbox_await_all(m, 1));
    mailbox_free(m);
}

/* ---- threads ---- */

enum { WORKERS = 6, ROUNDS = 3000 };
static struct mailbox *shared;
static atomic_int ended;

static void *work(void *arg) {
    int me = *(int *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        mailbox_post(shared, me);
        if (i % 2 && mailbox_await_taking(shared, me) != ERR_NONE) return NULL;
        if (mailbox_await(shared, me) != ERR_NONE) return NULL;
        mailbox_received(shared, me);
    }
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static void start_all(pthread_t *threads, int *names) {
    for (int i = 0; i < WORKERS; i++) {
        names[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &names[i]), 0);
    }
}

/* A lost wake-up would cost a doze of 200 ms; so many rounds would never end in time. */
static void no_wake_up_is_lost(void **state) {
    (void)state;
    for (int in_turn = 0; in_turn < 2; in_turn++) {
        pthread_t threads[WORKERS];
        int names[WORKERS], who, count[WORKERS] = {0};
        shared = box_of(WORKERS, 60);
        ended = 0;
        start_all(threads, names);
        int64_t began = clock_ns();
        for (int i = 0; i < ROUNDS * WORKERS; i++) {
            assert_ok(mailbox_take(shared, in_turn ? i % WORKERS : MAILBOX_ANY, &who));
            count[who]++;
            mailbox_answer(shared, who);
        }
        for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
        for (int i = 0; i < WORKERS; i++) assert_int_equal(count[i], ROUNDS);
        assert_int_equal(ended, WORKERS);
        double us = clock_seconds(clock_ns() - began) * 1e6 / (ROUNDS * WORKERS);
        print_message("%s: %.1f us a gradient\n", in_turn ? "in turn" : "of arrival", us);
        assert_true(us < 2000);
        mailbox_free(shared);
    }
}

static void *take_forever(void *arg) {
    int who;
    enum error *err = arg;
    while ((*err = mailbox_take(shared, MAILBOX_ANY, &who)) == ERR_NONE)
        if (who != 0) mailbox_answer(shared, who); /* worker 0 waits in vain */
    return NULL;
}

static void a_failure_wakes_all(void **state) {
    (void)state;
    pthread_t threads[WORKERS], server;
    int names[WORKERS];
    enum error err = ERR_NONE;
    shared = box_of(WORKERS, 60);
    ended = 0;
    start_all(threads, names);
    assert_int_equal(pthread_create(&server, NULL, take_forever, &err), 0);
    pause_ms(20);
    int64_t began = clock_ns();
    mailbox_break(shared);
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    pthread_join(server, NULL);
    assert_true(clock_seconds(clock_ns() - began) < 5);
    assert_int_equal(err, ERR_PEER);
    assert_true(ended < WORKERS);
    mailbox_free(shared);
    mailbox_break(NULL);
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
