/* Control along a tree, and streams that are opened when they are used: what the ranks of a group hear of each other
 * when an inner rank of the tree dies, stops or leaves, and how many connections they have. */
#include "tests/harness/harness.h"

#include "engine/base/log.h"
#include "tests/conformance/ranks.h"

#include <dirent.h>
#include <signal.h>
#include <sys/socket.h>

/* Neighbours: 0 of 1 and 2, 1 of 3 and 4, 2 of 5 and 6. */
enum { WORLD = 7 };
static const struct ranks tree = {.world = WORLD, .link = "tcp", .heartbeat = 1};

static void assert_has(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("'%s' not in '%s'", part, text);
}

/* ---- an inner rank that is lost ---- */

/* A rank in a process of its own: says where it listens, hears where all are, joins, and then dies or stops. */
static int lost_rank(int rank, const char *what) {
    struct ranks p = tree;
    struct group *g;
    if (port_open(&(struct port_params){.key = "a token"}, &p.port[rank]) != ERR_NONE) return 1;
    snprintf(p.seat[rank].address, ADDRESS_MAX, "%s", port_address(p.port[rank]));
    if (write(RANK_FD, &p.seat[rank], sizeof *p.seat) != (ssize_t)sizeof *p.seat) return 1;
    if (recv(RANK_FD, p.seat, sizeof p.seat, MSG_WAITALL) != (ssize_t)sizeof p.seat) return 1;
    p.roster = (struct roster){.size = WORLD, .hosts = 1, .of = p.seat};
    struct group_params gp = rank_params(&p, rank);
    if (group_open(&gp, &g) != ERR_NONE || group_barrier(g) != ERR_NONE) return 1;
    nap(0.3);
    raise(strcmp(what, "die") ? SIGSTOP : SIGKILL);
    enum error err = group_barrier(g); /* somebody has let it go on */
    group_close(g);
    return err == ERR_PEER ? 0 : 2;
}

static pid_t spawn_lost(int rank, const char *what, struct seat_of *seats) {
    char a[16], b[16], *environment[] = {NULL};
    char *argv[] = {(char[]){"test"}, (char[]){"--lost"}, a, b, NULL};
    int pair[2];
    pid_t pid = -1;
    posix_spawn_file_actions_t files;
    struct seat_of said;
    snprintf(a, sizeof a, "%d", rank);
    snprintf(b, sizeof b, "%s", what);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, pair[1], RANK_FD);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &files, NULL, argv, environment), 0);
    posix_spawn_file_actions_destroy(&files);
    assert_int_equal(recv(pair[0], &said, sizeof said, MSG_WAITALL), sizeof said);
    snprintf(seats[rank].address, ADDRESS_MAX, "%s", said.address);
    snprintf(seats[rank].name, sizeof seats[rank].name, "pid %d", (int)pid);
    assert_int_equal(write(pair[0], seats, MAX_WORLD * sizeof *seats), MAX_WORLD * sizeof *seats);
    close(pair[0]);
    close(pair[1]);
    return pid;
}

static void go_on_until_it_fails(struct rank *r) {
    float buf[64] = {0};
    enum error err = group_barrier(r->group);
    while (!err) err = group_all_reduce(r->group, GROUP_INLINE, buf, 64, DTYPE_F32, REDOP_SUM);
    rank_result(r, err);
}

/* All others report the same words. */
static void lose(int lost, const char *what, const char *how) {
    struct ranks p = tree;
    struct rank r[WORLD] = {0};
    pthread_t id[WORLD];
    char name[32];
    int status;
    p.fn = go_on_until_it_fails;
    ranks_meet(&p);
    port_close(p.port[lost]);
    p.port[lost] = NULL;
    pid_t pid = spawn_lost(lost, what, p.seat);
    for (int i = 0; i < WORLD; i++) {
        r[i] = (struct rank){.of = &p, .index = i};
        if (i != lost) assert_int_equal(pthread_create(&id[i], NULL, rank_thread, &r[i]), 0);
    }
    for (int i = 0; i < WORLD; i++)
        if (i != lost) pthread_join(id[i], NULL);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ranks_part(&p);
    snprintf(name, sizeof name, "rank %d (pid %d) ", lost, (int)pid);
    for (int i = 0; i < WORLD; i++) {
        if (i == lost) continue;
        if (*r[i].wrong) fail_msg("%s", r[i].wrong);
        assert_int_equal(r[i].err, ERR_PEER);
        assert_has(r[i].message, name);
        assert_has(r[i].message, how);
        assert_string_equal(r[i].message, r[lost ? 0 : 1].message);
    }
}

static void an_inner_rank_that_dies_is_named_on_both_sides(void **state) {
    (void)state;
    lose(1, "die", "has died");
    lose(0, "die", "has died");
}

static void an_inner_rank_that_stops_is_named_on_both_sides(void **state) {
    (void)state;
    lose(1, "stop", "is silent for 3 s: stopped, or starved by others");
}

/* ---- news that takes its time ---- */

static void abort_far_away(struct rank *r) {
    float buf[8];
    check_ok(group_barrier(r->group));
    if (r->index == 3) {
        nap(0.6);
        group_abort(r->group, "its picture 7 is damaged");
    }
    rank_result(r, group_recv(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, r->index < 5 ? r->index + 2 : r->index - 2));
}

/* Rank 0 is stopped when rank 3 fails, and for two seconds longer. Meanwhile those behind it see how the streams to ranks end
 * that have heard of it; none of these is named. */
static void streams_that_break_off_wait_for_news_that_takes_its_time(void **state) {
    struct ranks p = tree;
    struct rank r[WORLD] = {0};
    pthread_t id[WORLD];
    int status;
    (void)state;
    p.fn = abort_far_away;
    p.heartbeat = 3;
    ranks_meet(&p);
    port_close(p.port[0]);
    p.port[0] = NULL;
    pid_t pid = spawn_lost(0, "stop", p.seat);
    for (int i = 1; i < WORLD; i++) {
        r[i] = (struct rank){.of = &p, .index = i};
        assert_int_equal(pthread_create(&id[i], NULL, rank_thread, &r[i]), 0);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    nap(3);
    kill(pid, SIGCONT);
    for (int i = 1; i < WORLD; i++) pthread_join(id[i], NULL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    ranks_part(&p);
    for (int i = 1; i < WORLD; i++) assert_string_equal(r[i].message, "rank 3: its picture 7 is damaged");
}

/* ---- an inner rank that leaves ---- */

/* Ranks 3 and 4 are behind the one that leaves. */
static void abort_after_a_leave(struct rank *r) {
    float buf[8];
    check_ok(group_barrier(r->group));
    if (r->index == 1) {
        group_close(r->group);
        r->group = NULL;
        return;
    }
    if (r->index == 6) {
        nap(2.5);
        group_abort(r->group, "its picture 7 is damaged");
    }
    rank_result(r, group_recv(r->group, GROUP_INLINE, buf, 8, DTYPE_F32, r->index == 6 ? 5 : 6));
}

static void ranks_behind_one_that_has_left_hear_of_a_failure(void **state) {
    struct rank r[WORLD];
    struct ranks p = tree;
    (void)state;
    p.fn = abort_after_a_leave;
    run_ranks(p, r);
    for (int i = 0; i < WORLD; i++)
        if (i != 1) assert_string_equal(r[i].message, "rank 6: its picture 7 is damaged");
}

/* Rank 3 is a leaf, all else goes in an order in which leaves have to pass ranks that have left. */
static void leave_one_by_one(struct rank *r) {
    int64_t value = 0;
    struct work *w;
    check_ok(group_barrier(r->group));
    if (r->index != 3) {
        nap(0.04 * r->index);
        group_close(r->group);
        r->group = NULL;
        return;
    }
    enum error err = group_take(r->group, &(struct group_message){&value, 1, DTYPE_I64, GROUP_ANY, 9}, &w);
    rank_result(r, err ? err : work_wait(w));
}

static void leaves_pass_ranks_that_have_left(void **state) {
    struct rank r[WORLD];
    struct ranks p = tree;
    (void)state;
    p.fn = leave_one_by_one;
    p.mail = true;
    p.timeout = 20;
    run_ranks(p, r);
    assert_has(r[3].message, "every other rank has left; rank 3 waits for it in recv from any rank, tag 9 (8 B)");
}

/* ---- one that does not come ---- */

static void *open_late(void *arg) {
    struct rank *r = arg;
    struct group_params p = rank_params(r->of, r->index);
    rank_result(r, group_open(&p, &r->group));
    group_close(r->group);
    return NULL;
}

/* Its port is there, it is not: also ranks that are not its neighbours name it. */
static void one_that_never_joins_is_named_by_all(void **state) {
    struct rank r[WORLD] = {0};
    pthread_t id[WORLD];
    struct ranks p = tree;
    (void)state;
    p.timeout = 1;
    ranks_meet(&p);
    for (int i = 0; i < WORLD; i++) {
        r[i] = (struct rank){.of = &p, .index = i};
        if (i != 1) assert_int_equal(pthread_create(&id[i], NULL, open_late, &r[i]), 0);
    }
    for (int i = 0; i < WORLD; i++) {
        if (i == 1) continue;
        pthread_join(id[i], NULL);
        assert_int_equal(r[i].err, ERR_TIMEOUT);
        assert_has(r[i].message, "rank 1 has not joined within 1 s");
    }
    ranks_part(&p);
}

/* ---- how many connections ---- */

static int count_sockets(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    char to[8]; /* a descriptor is not asked itself: nng may be closing it */
    for (struct dirent *e; (e = readdir(d));)
        n += readlinkat(dirfd(d), e->d_name, to, sizeof to) == sizeof to && !memcmp(to, "socket:", 7);
    closedir(d);
    return n;
}

static int sockets; /* while all ranks are there */

static void count_once(struct rank *r) {
    check_ok(group_barrier(r->group));
    if (r->index == 0) sockets = count_sockets();
    check_ok(group_barrier(r->group));
}

/* Both ends are in this process. A barrier has log2 n rounds, in each of which every rank sends to one. */
static void connections_grow_with_log_n(void **state) {
    enum { ROUNDS = 4 };
    int before = count_sockets();
    (void)state;
    run_ranks((struct ranks){.world = MAX_WORLD, .link = "tcp", .mail = true, .fn = count_once}, NULL);
    assert_in_range(sockets - before, 1, MAX_WORLD + 2 * (MAX_WORLD * ROUNDS + MAX_WORLD - 1));
}

int main(int argc, char **argv) {
    log_set_level(LOG_ERROR);
    if (argc == 4 && !strcmp(argv[1], "--lost")) return lost_rank(atoi(argv[2]), argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_inner_rank_that_dies_is_named_on_both_sides),
        cmocka_unit_test(an_inner_rank_that_stops_is_named_on_both_sides),
        cmocka_unit_test(streams_that_break_off_wait_for_news_that_takes_its_time),
        cmocka_unit_test(ranks_behind_one_that_has_left_hear_of_a_failure),
        cmocka_unit_test(leaves_pass_ranks_that_have_left),
        cmocka_unit_test(one_that_never_joins_is_named_by_all),
        cmocka_unit_test(connections_grow_with_log_n),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
