/* The link over TCP under ill treatment: streams that come in slices, stop, or are cut; peers that
 * stop, die, leave, or make another call. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "tests/conformance/ranks.h"
#include "tests/harness/timing.h"
#include "tests/unit/proxy.h"

#include <math.h>
#include <signal.h>

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' not in '%s'", part, text);
}

/* ---- a path that is slow but right ---- */

struct loads {
    const int64_t *counts;
    int n;
};

/* Between hosts bytes are sealed, on one host only labels are. */
static const char *const far_and_near[] = {"hosts", "tcp"};

/* Sums of several lengths on both lanes at once; every element is checked. */
static void sums(struct rank *r) {
    const struct loads *l = r->of->user;
    int world = r->of->world;
    for (int k = 0; k < l->n; k++) {
        int64_t n = l->counts[k];
        int32_t *a = malloc((size_t)n * 4), *b = malloc((size_t)n * 4);
        struct work *w;
        for (int64_t i = 0; i < n; i++) a[i] = b[i] = (int32_t)i * (r->index + 1);
        check_ok(group_all_reduce(r->group, GROUP_COMM(&w), a, n, DTYPE_I32, REDOP_SUM));
        check_ok(group_all_reduce(r->group, GROUP_INLINE, b, n, DTYPE_I32, REDOP_SUM));
        check_ok(work_wait(w));
        for (int64_t i = 0; i < n; i++) {
            int32_t want = (int32_t)i * (world * (world + 1) / 2);
            check(a[i] == want && b[i] == want, "element %lld of %lld", (long long)i, (long long)n);
        }
        free(a);
        free(b);
    }
    check_ok(group_barrier(r->group));
    nap(0.05); /* who closes loses what is still on the way to him, and so may reset the proxy */
}

static void run_through(struct proxy *proxy, struct ranks p, struct rank *out) {
    ranks_meet(&p);
    proxy_open(proxy, p.seat[0].address, sizeof p.seat[0].address);
    ranks_run(&p, out);
    proxy_close(proxy);
}

static void slices_are_put_together(void **state) {
    static const int64_t counts[] = {1, 2, 5, 700};
    static const struct loads loads = {counts, 4};
    static const char *const algorithms[] = {"ring", "direct"};
    (void)state;
    for (int i = 0; i < 8; i++) {
        struct proxy proxy = {.slice = i < 4 ? 1 : 7 * i, .buffer = 4096};
        run_through(&proxy,
                    (struct ranks){.world = 2,
                                   .link = far_and_near[i / 2 % 2],
                                   .algorithm = algorithms[i % 2],
                                   .order = i % 2 ? ORDER_TREE : ORDER_RING,
                                   .secure = (enum secure)(i / 2),
                                   .fn = sums,
                                   .user = &loads},
                    NULL);
    }
}

/* Both ranks send far more than lies on the way, at the same time. */
static void small_buffers_do_not_block(void **state) {
    static const int64_t counts[] = {1 << 20, 3, 1 << 19};
    static const struct loads loads = {counts, 3};
    (void)state;
    for (int secure = SECURE_OFF; secure <= SECURE_ENCRYPTED; secure++) {
        struct proxy proxy = {.buffer = 4096};
        run_through(&proxy,
                    (struct ranks){.world = 2,
                                   .link = "tcp",
                                   .algorithm = "ring",
                                   .order = ORDER_RING,
                                   .secure = (enum secure)secure,
                                   .fn = sums,
                                   .user = &loads},
                    NULL);
    }
}

/* ---- a path that ends ---- */

static struct proxy *on_the_way;
static long cut_soon; /* after so many bytes more; 0: it falls silent instead */

static void end_path(void) {
    if (!cut_soon)
        on_the_way->dumb = true;
    else if (!on_the_way->cut_after)
        on_the_way->cut_after = on_the_way->passed + cut_soon;
}

static void endless(struct rank *r) {
    static float buf[2][100000];
    int64_t start = clock_ns();
    enum error err = ERR_NONE;
    group_note(r->group, "backward of conv4", 12);
    while (!err && clock_seconds(clock_ns() - start) < 20) {
        if (r->index == 0 && clock_seconds(clock_ns() - start) > 0.5) end_path();
        err = group_all_reduce(r->group, GROUP_INLINE, buf[r->index], 100000, DTYPE_F32, REDOP_SUM);
    }
    rank_result(r, err);
    check(clock_seconds(clock_ns() - start) < timing_limit(1 + 2 + 3), "took too long");
}

static void run_endless(long cut, struct rank r[2]) {
    struct proxy proxy = {0};
    on_the_way = &proxy;
    cut_soon = cut;
    run_through(&proxy, (struct ranks){.world = 2, .link = "tcp", .heartbeat = 1, .fn = endless}, r);
    for (int i = 0; i < 2; i++) assert_int_equal(r[i].err, ERR_PEER);
}

static void a_silent_path_is_named(void **state) {
    struct rank r[2];
    (void)state;
    run_endless(0, r);
    assert_has(r[0].message,
               "rank 1 is silent for 3 s: stopped, or starved by others"); /* the proxy's kernel answers */
    assert_has(r[0].message, "last seen in backward of conv4 of step 12");
    assert_has(r[0].message, "rank 0 waits for it in all_reduce");
    assert_has(r[1].message, " is silent for 3 s");
}

static void a_cut_path_is_named(void **state) {
    (void)state;
    for (long cut = 1; cut < 1000000; cut += 333333) { /* somewhere within a message */
        struct rank r[2];
        run_endless(cut, r);
        assert_true(strstr(r[0].message, "rank 1 has died") || strstr(r[0].message, "rank 1 cannot be reached"));
        assert_has(r[1].message, "rank 0 ");
    }
}

/* ---- a path on which something is changed ---- */

/* user: elements of each call; 0: there are no calls while it is changed. Neither rank is to be silent for a heartbeat, on a
 * busy machine too: then that would be named first. */
static void changed(struct rank *r) {
    static float buf[2][300000];
    int64_t start = clock_ns(), n = *(const int64_t *)r->of->user;
    enum error err = group_barrier(r->group);
    for (int i = 0; !err && clock_seconds(clock_ns() - start) < 10; i++) {
        if (r->index == 0 && i == 20) on_the_way->change = 1;
        if (!n) nap(0.02);
        err = n        ? group_all_reduce(r->group, GROUP_INLINE, buf[r->index], n, DTYPE_F32, REDOP_SUM)
              : i < 50 ? ERR_NONE
                       : group_barrier(r->group);
    }
    rank_result(r, err);
}

static void a_changed_message_is_named(void **state) {
    static const int64_t lengths[] = {300000, 5000, 1, 0};
    struct rank r[2];
    (void)state;
    for (int i = 0; i < 8 * (SECURE_ENCRYPTED + 1); i++) {
        struct proxy proxy = {0};
        enum secure secure = (enum secure)(i / 8);
        const int64_t *length = &lengths[i / 2 % 4];
        if (*length && i % 2 && secure < SECURE_SEALED) continue; /* on one host bytes have no seals */
        on_the_way = &proxy;
        run_through(&proxy,
                    (struct ranks){.world = 2,
                                   .link = far_and_near[i % 2],
                                   .heartbeat = 1.5,
                                   .secure = secure,
                                   .fn = changed,
                                   .user = length},
                    r);
        on_the_way = NULL;
        assert_true(proxy.change == 0);
        assert_int_equal(r[0].err, ERR_PEER);
        assert_int_equal(r[1].err, ERR_PEER);
        assert_string_equal(r[0].message, r[1].message);
        assert_has(r[0].message, "was changed on the way");
    }
}

/* Bytes, the labels of calls and what ranks do are read by nobody on the way. user: in which a word stands again and
 * again. */
static void words_pass(struct rank *r) {
    static char text[2][1 << 20];
    const char *word = r->of->user;
    char *own = text[r->index];
    group_note(r->group, word, 12);
    for (size_t at = 0; at < sizeof *text; at += strlen(word))
        memcpy(own + at, word, at + strlen(word) > sizeof *text ? sizeof *text - at : strlen(word));
    check_ok(group_broadcast(r->group, GROUP_INLINE, own, sizeof *text, DTYPE_U8, 0));
    check_ok(group_all_reduce(r->group, GROUP_INLINE, own, sizeof *text, DTYPE_U8, REDOP_OR));
    check_ok(group_barrier(r->group));
    nap(0.6); /* control tells what ranks do */
    check(!memcmp(own + 10 * strlen(word), word, strlen(word)), "the word has changed");
}

static void encrypted_bytes_are_unreadable(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        enum secure secure = i / 2 ? SECURE_ENCRYPTED : SECURE_AUTO;
        struct proxy proxy = {.word = "backward of conv4"};
        run_through(&proxy,
                    (struct ranks){.world = 2,
                                   .link = far_and_near[i % 2],
                                   .heartbeat = 1.5,
                                   .secure = secure,
                                   .fn = words_pass,
                                   .user = proxy.word},
                    NULL);
        assert_true(secure == SECURE_AUTO ? proxy.found > 16 : proxy.found == 0);
    }
}

struct opening {
    struct ranks *of;
    struct group **group;
    enum error err;
};

static void *open_other(void *arg) {
    struct opening *o = arg;
    struct group_params gp = rank_params(o->of, 1);
    o->err = group_open(&gp, o->group);
    return NULL;
}

/* Without a secret nothing can be sealed. */
static void seals_need_a_secret(void **state) {
    (void)state;
    for (int secure = SECURE_AUTO; secure <= SECURE_ENCRYPTED; secure++) {
        struct ranks p = {.world = 2, .link = "tcp"};
        struct group *g[2] = {NULL, NULL};
        ranks_meet(&p);
        for (int i = 0; i < 2; i++) {
            port_close(p.port[i]);
            assert_ok(port_open(&(struct port_params){0}, &p.port[i]));
            snprintf(p.seat[i].address, sizeof p.seat[i].address, "%s", port_address(p.port[i]));
        }
        p.secure = (enum secure)secure;
        pthread_t other;
        struct opening o = {&p, &g[1], ERR_NONE};
        struct group_params gp = rank_params(&p, 0);
        assert_int_equal(pthread_create(&other, NULL, open_other, &o), 0);
        enum error err = group_open(&gp, &g[0]);
        if (secure >= SECURE_SEALED) assert_has(error_message(), "but the ranks share no secret");
        pthread_join(other, NULL);
        assert_int_equal(err, secure >= SECURE_SEALED ? ERR_CONFIG : ERR_NONE);
        assert_int_equal(o.err, err);
        for (int i = 0; i < 2 && !err; i++) group_close(g[i]);
        ranks_part(&p);
    }
}

/* Rank 1 ends the group while nothing of it arrives, and then its reason and the end of its streams do at once. */
static _Atomic int ended_met; /* ranks that have left the barrier: until both have, the end would be the barrier's */
static void ended_at_once(struct rank *r) {
    float buf[8] = {0};
    check_ok(group_barrier(r->group));
    ended_met++;
    if (r->index == 1) {
        while (ended_met < 2) nap(0.001);
        on_the_way->dumb = true;
        nap(0.05);
        group_abort(r->group, "its picture 7 is damaged");
        on_the_way->last = true;
    }
    rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, REDOP_SUM));
}

static void the_reason_wins_over_the_end_that_comes_with_it(void **state) {
    struct rank r[2];
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct proxy proxy = {0};
        on_the_way = &proxy;
        ended_met = 0;
        run_through(&proxy, (struct ranks){.world = 2, .link = far_and_near[i % 2], .fn = ended_at_once}, r);
        on_the_way = NULL;
        for (int k = 0; k < 2; k++) assert_string_equal(r[k].message, "rank 1: its picture 7 is damaged");
    }
}

/* ---- peers that stop, die, leave ---- */

static const struct ranks two_processes = {.world = 2, .link = "tcp", .heartbeat = 1};

/* Rank 1's process says where it listens. */
static pid_t spawn_peer(struct seat_of seat[2], const char *what) {
    char a[ADDRESS_MAX], b[16], *environment[] = {NULL};
    char *argv[] = {(char[]){"test"}, (char[]){"--peer"}, a, b, NULL};
    int said[2];
    pid_t pid = -1;
    posix_spawn_file_actions_t files;
    snprintf(a, sizeof a, "%s", seat[0].address);
    snprintf(b, sizeof b, "%s", what);
    assert_int_equal(pipe(said), 0);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, said[1], RANK_FD);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environment), 0);
    posix_spawn_file_actions_destroy(&files);
    assert_int_equal(read(said[0], seat[1].address, ADDRESS_MAX), ADDRESS_MAX);
    close(said[0]);
    close(said[1]);
    return pid;
}

/* Rank 1 in a process of its own: joins, and then dies or stops. */
static int peer(const char *address, const char *what) {
    struct ranks p = two_processes;
    struct group *g;
    ranks_meet(&p);
    snprintf(p.seat[0].address, sizeof p.seat[0].address, "%s", address);
    if (write(RANK_FD, p.seat[1].address, ADDRESS_MAX) != ADDRESS_MAX) return 1;
    struct group_params gp = rank_params(&p, 1);
    if (group_open(&gp, &g) != ERR_NONE || group_barrier(g) != ERR_NONE) return 1;
    group_note(g, "forward of conv1", 3);
    nap(0.5);
    raise(strcmp(what, "die") ? SIGSTOP : SIGKILL);
    return 2;
}

static double lose(const char *what, char message[700]) {
    struct ranks p = two_processes;
    struct group *g;
    float buf[8] = {0};
    int status;
    ranks_meet(&p);
    pid_t pid = spawn_peer(p.seat, what);
    snprintf(p.seat[1].name, sizeof p.seat[1].name, "hostB, pid %d", (int)pid);
    struct group_params gp = rank_params(&p, 0);
    assert_ok(group_open(&gp, &g));
    assert_ok(group_barrier(g));
    int64_t start = clock_ns();
    assert_fails(ERR_PEER, group_all_reduce(g, GROUP_INLINE, buf, 8, DTYPE_F32, REDOP_SUM));
    snprintf(message, 700, "%s", error_message());
    double seconds = clock_seconds(clock_ns() - start);
    group_close(g);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_has(message, "rank 1 (hostB, pid ");
    assert_has(message, "rank 0 waits for it in all_reduce 3 (32 B)");
    assert_has(message, "last seen in forward of conv1 of step 3");
    ranks_part(&p);
    return seconds;
}

static void a_dead_process_is_named_at_once(void **state) {
    char message[700];
    (void)state;
    assert_true(lose("die", message) < timing_limit(0.5 + 0.4));
    assert_has(message, "has died");
}

static void a_stopped_process_is_named(void **state) {
    char message[700];
    (void)state;
    double seconds = lose("stop", message);
    assert_true(seconds > 2.9 && seconds < timing_limit(0.5 + 3 + 2));
    assert_has(message, "is silent for 3 s: stopped, or starved by others");
}

static void leaver(struct rank *r) {
    float buf[8] = {0};
    check_ok(group_barrier(r->group));
    if (r->index == 1) {
        nap(0.1);
        group_close(r->group);
        r->group = NULL;
        return;
    }
    int64_t start = clock_ns();
    rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, REDOP_SUM));
    check(clock_seconds(clock_ns() - start) < timing_limit(3), "took too long");
}

static void a_rank_that_leaves_is_named(void **state) {
    struct rank r[4];
    (void)state;
    for (int l = 0; l < 2; l++) {
        run_ranks((struct ranks){.world = 4, .link = l ? "hosts" : "tcp", .fn = leaver}, r);
        for (int i = 0; i < 4; i++) {
            if (i == 1) continue;
            assert_int_equal(r[i].err, ERR_PEER);
            assert_has(r[i].message, "rank 1 has left");
            assert_string_equal(r[i].message, r[0].message);
        }
    }
}

/* ---- other calls ---- */

/* Nobody sends: each is the root of its own gather, and waits. */
static void gatherers(struct rank *r) {
    int64_t part[3] = {0, 4, 8};
    float buf[8] = {0};
    check_ok(group_barrier(r->group));
    int64_t start = clock_ns();
    rank_result(r, group_gather(r->group, GROUP_INLINE, buf, part, DTYPE_F32, r->index));
    check(clock_seconds(clock_ns() - start) < timing_limit(2), "took too long");
}

static void other_calls_are_seen_where_nobody_sends(void **state) {
    struct rank r[2];
    (void)state;
    for (int l = 0; l < 2; l++) {
        run_ranks((struct ranks){.world = 2, .link = l ? "hosts" : "tcp", .fn = gatherers}, r);
        assert_int_equal(r[0].err, ERR_MISMATCH);
        assert_has(r[0].message, "gather(f32, 8, root 1");
        assert_has(r[0].message, "gather(f32, 8, root 0");
        assert_string_equal(r[0].message, r[1].message);
    }
}

/* The last rank is late: all name it, also those that wait for another. */
static void late_one(struct rank *r) {
    float buf[64] = {0};
    int last = r->of->world - 1;
    check_ok(group_barrier(r->group));
    if (r->index == last) nap(3);
    rank_result(r, group_all_reduce(r->group, GROUP_INLINE, buf, 64, DTYPE_F32, REDOP_SUM));
}

static void the_late_one_is_named_not_who_waits_for_it(void **state) {
    struct rank r[4];
    (void)state;
    for (int l = 0; l < 2; l++) {
        run_ranks((struct ranks){.world = 4,
                                 .link = l ? "hosts" : "tcp",
                                 .algorithm = "ring",
                                 .order = ORDER_RING,
                                 .timeout = 1.5,
                                 .fn = late_one},
                  r);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(r[i].err, ERR_TIMEOUT);
            assert_has(r[i].message, "rank 3 has not entered all_reduce 3 (256 B) within 1.5 s");
            assert_string_equal(r[i].message, r[0].message);
        }
    }
}

/* ---- measured ---- */

static void knows_its_link(struct rank *r) {
    check_ok(group_barrier(r->group));
}

static void opens_and_closes_often(void **state) {
    (void)state;
    for (int i = 0; i < 30; i++)
        run_ranks((struct ranks){.world = 1 + i % 5, .link = i % 2 ? "hosts" : "tcp", .fn = knows_its_link}, NULL);
}

int main(int argc, char **argv) {
    log_set_level(LOG_ERROR);
    if (argc == 4 && !strcmp(argv[1], "--peer")) return peer(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_put_together),
        cmocka_unit_test(small_buffers_do_not_block),
        cmocka_unit_test(a_silent_path_is_named),
        cmocka_unit_test(a_cut_path_is_named),
        cmocka_unit_test(a_changed_message_is_named),
        cmocka_unit_test(encrypted_bytes_are_unreadable),
        cmocka_unit_test(seals_need_a_secret),
        cmocka_unit_test(the_reason_wins_over_the_end_that_comes_with_it),
        cmocka_unit_test(a_dead_process_is_named_at_once),
        cmocka_unit_test(a_stopped_process_is_named),
        cmocka_unit_test(a_rank_that_leaves_is_named),
        cmocka_unit_test(other_calls_are_seen_where_nobody_sends),
        cmocka_unit_test(the_late_one_is_named_not_who_waits_for_it),
        cmocka_unit_test(opens_and_closes_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
