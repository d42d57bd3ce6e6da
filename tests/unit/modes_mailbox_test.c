/* The mailbox of a server that does not wait, over any link: order, deadlines, failures. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "modes/share/mailbox.h"
#include "tests/conformance/ranks.h"
#include "tests/harness/timing.h"

#include <stdatomic.h>
#include <time.h>

static const char *const links[] = {"thread", "shm", "tcp"};
enum { LINKS = sizeof links / sizeof *links, FLOATS = 3 };

static void pause_ms(long ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

static double patience; /* of the mailbox, in seconds */

/* Each rank's end of a mailbox. */
static struct mailbox *box_open(struct rank *r) {
    struct mailbox *box = NULL;
    check_ok(mailbox_create(r->group, patience, &box));
    mailbox_begin(box, 1);
    return box;
}

/* As a mode does, also in a run that has failed with words on their way. */
static void box_close(struct rank *r, struct mailbox *box) {
    group_close(r->group);
    r->group = NULL;
    mailbox_free(box);
}

/* fn on a server and its workers. */
static void run_box(int workers, double timeout, const char *link, void (*fn)(struct rank *r), struct rank *out) {
    patience = timeout;
    run_ranks((struct ranks){.world = workers + 1, .link = link, .timeout = 20, .mail = true, .fn = fn}, out);
}

/* The call gives ERR_TIMEOUT, with these words. */
static void check_late(struct rank *r, enum error err, const char *words) {
    rank_result(r, err);
    check(err == ERR_TIMEOUT && strstr(r->message, words), "error %d: %s", (int)err, r->message);
}

/* A worker's step: it offers a gradient, and gets weights, which tell how many were given before. */
static enum error work(struct rank *r, struct mailbox *box, int64_t step, float *weights) {
    float gradient[FLOATS] = {(float)r->index, (float)step};
    struct work *received;
    TRY(mailbox_offer(box, step));
    TRY(group_send(r->group, GROUP_INLINE, gradient, FLOATS, DTYPE_F32, 0));
    TRY(mailbox_await_weights(box));
    TRY(group_recv(r->group, GROUP_COMM(&received), weights, FLOATS, DTYPE_F32, 0));
    return work_wait(received);
}

/* The server's: takes a gradient, which is its worker's, and gives weights back. */
static enum error serve(struct rank *r, struct mailbox *box, int worker, float *weights, bool meets) {
    float gradient[FLOATS];
    int who = -1;
    TRY(mailbox_take(box, worker, &who));
    TRY(group_recv(r->group, GROUP_INLINE, gradient, FLOATS, DTYPE_F32, who + 1));
    check(gradient[0] == (float)(who + 1), "the gradient of rank %g, not of %d", (double)gradient[0], who + 1);
    TRY(mailbox_settle(box));
    weights[0]++, weights[1] = (float)who;
    return mailbox_give(box, who, weights, FLOATS, meets);
}

/* ---- order ---- */

static const int order[] = {2, 0, 3, 1};

static int64_t words_come(const struct rank *r) {
    struct group_stats stats;
    group_get_stats(r->group, &stats);
    return stats.received / (int64_t)sizeof(int64_t);
}

/* The server lets one worker after the other offer, each when the word of the one before has come. */
static void let_in_order(struct rank *r) {
    int64_t before = words_come(r), began = clock_ns(), turn = 0;
    for (int i = 0; i < 4; i++) {
        check_ok(group_send(r->group, GROUP_INLINE, &turn, 1, DTYPE_I64, order[i] + 1));
        while (words_come(r) <= before + i && clock_ns() - began < 20000000000) pause_ms(1);
        check(words_come(r) == before + i + 1, "%lld words after turn %d", (long long)(words_come(r) - before), i);
    }
}

static void in_order(struct rank *r) {
    struct mailbox *box = box_open(r);
    float weights[FLOATS] = {0};
    int64_t turn;
    for (int i = 0; i < 4 && r->index; i++)
        if (order[i] == r->index - 1) {
            check_ok(group_recv(r->group, GROUP_INLINE, &turn, 1, DTYPE_I64, 0));
            check_ok(work(r, box, 1, weights));
            check(weights[0] == (float)(i + 1), "gradient %d was taken as number %g", i + 1, (double)weights[0]);
        }
    if (!r->index) let_in_order(r);
    for (int i = 0; i < 4 && !r->index; i++) check_ok(serve(r, box, MAILBOX_ANY, weights, false));
    if (!r->index) check_ok(mailbox_settle(box));
    check_ok(group_barrier(r->group));
    box_close(r, box);
}

static void by_name(struct rank *r) {
    struct mailbox *box = box_open(r);
    float weights[FLOATS] = {0};
    if (r->index) pause_ms(30L * (3 - r->index));
    if (r->index) check_ok(work(r, box, 1, weights));
    if (r->index) check(weights[0] == (float)r->index, "rank %d was number %g", r->index, (double)weights[0]);
    for (int w = 0; w < 3 && !r->index; w++) check_ok(serve(r, box, w, weights, false));
    if (!r->index) check_ok(mailbox_settle(box));
    check_ok(group_barrier(r->group));
    box_close(r, box);
}

static void first_come_first_served(void **state) {
    (void)state;
    for (int i = 0; i < LINKS; i++) {
        run_box(4, 10, links[i], in_order, NULL);
        run_box(3, 10, links[i], by_name, NULL);
    }
}

/* ---- deadlines ---- */

/* Rank 2 does not come; rank 1 does again and again, until it hears of it. */
static void one_is_late(struct rank *r) {
    struct mailbox *box = box_open(r);
    float weights[FLOATS] = {0};
    enum error err = ERR_NONE;
    int64_t began = clock_ns();
    if (r->index == 2) {
        while (clock_ns() - began < 20000000000 && (err = group_barrier(r->group)) == ERR_NONE) pause_ms(1);
        rank_result(r, err);
    } else {
        for (int64_t step = 1; err == ERR_NONE; step++)
            err = r->index ? work(r, box, step, weights) : serve(r, box, MAILBOX_ANY, weights, false);
        check_late(r, err, "rank 2 has not sent its gradient of step 1 within");
    }
    box_close(r, box);
}

static void late_among_the_punctual(void **state) {
    (void)state;
    for (int i = 0; i < LINKS; i++) run_box(2, 0.3, links[i], one_is_late, NULL);
}

/* The server does nothing, in no call. */
static void wait_for_a_silent_server(struct rank *r) {
    struct mailbox *box = box_open(r);
    if (r->index)
        check_late(r, mailbox_offer(box, 1), "rank 0, the server, has taken no gradient");
    else
        pause_ms(1500);
    box_close(r, box);
}

static void a_silent_server_is_named(void **state) {
    (void)state;
    for (int i = 0; i < LINKS; i++) run_box(1, 0.2, links[i], wait_for_a_silent_server, NULL);
}

/* Rank 1 is never taken while rank 2 is, for far longer than the deadline. */
static void one_waits(struct rank *r) {
    enum { STEPS = 60 };
    struct mailbox *box = box_open(r);
    float weights[FLOATS] = {0};
    for (int64_t step = 1; step <= STEPS && r->index != 1; step++) {
        pause_ms(35);
        check_ok(r->index ? work(r, box, step, weights) : serve(r, box, 1, weights, false));
    }
    if (r->index == 1) check_ok(work(r, box, 1, weights));
    if (!r->index) check_ok(serve(r, box, 0, weights, false));
    if (!r->index) check_ok(mailbox_settle(box));
    check_ok(group_barrier(r->group));
    box_close(r, box);
}

static void a_busy_server_is_not_silent(void **state) {
    (void)state;
    for (int i = 0; i < LINKS; i++) run_box(2, 0.8, links[i], one_waits, NULL);
}

/* ---- meeting ---- */

/* Nobody goes on before the last one has its weights. */
static void meet(struct rank *r) {
    static atomic_int have;
    struct mailbox *box = box_open(r);
    float weights[FLOATS] = {0};
    if (!r->index) have = 0;
    check_ok(group_barrier(r->group));
    if (r->index) {
        check_ok(work(r, box, 1, weights));
        atomic_fetch_add(&have, 1);
        check_ok(mailbox_await_all(box));
        check(have == 3, "%d of 3 have theirs", have);
    }
    for (int w = 2; w >= 0 && !r->index; w--) {
        check_ok(serve(r, box, w, weights, true));
        check_ok(mailbox_settle(box));
        pause_ms(40);
    }
    if (!r->index) check_ok(mailbox_meet(box));
    mailbox_begin(box, 2);
    check_ok(group_barrier(r->group));
    box_close(r, box);
}

static void all_meet(void **state) {
    (void)state;
    for (int i = 0; i < LINKS; i++) run_box(3, 10, links[i], meet, NULL);
}

/* ---- failures ---- */

static void fail_while_others_wait(struct rank *r) {
    struct mailbox *box = box_open(r);
    float weights[FLOATS] = {0};
    enum error err = ERR_NONE;
    if (r->index == 3) {
        pause_ms(50);
        group_abort(r->group, "no more");
    } else {
        for (int64_t step = 1; err == ERR_NONE; step++)
            err = r->index ? work(r, box, step, weights) : serve(r, box, MAILBOX_ANY, weights, false);
        check(err == ERR_PEER && strstr(error_message(), "rank 3: no more"), "%s", error_message());
    }
    box_close(r, box);
}

static void a_failure_wakes_all(void **state) {
    (void)state;
    for (int i = 0; i < LINKS; i++) {
        int64_t began = clock_ns();
        run_box(3, 60, links[i], fail_while_others_wait, NULL);
        assert_true(clock_seconds(clock_ns() - began) < timing_limit(5));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served),
        cmocka_unit_test(late_among_the_punctual),
        cmocka_unit_test(a_silent_server_is_named),
        cmocka_unit_test(a_busy_server_is_not_silent),
        cmocka_unit_test(all_meet),
        cmocka_unit_test(a_failure_wakes_all),
    };
    return cmocka_run_group_tests_name("mailbox", tests, NULL, NULL);
}
