/* Members meet, or are all told the same of why they do not. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/process.h"
#include "tests/harness/timing.h"
#include "transport/launch/rendezvous.h"
#include "transport/store/table.h"

#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MANY = 8, FACTS = 3, TEXT = 700 };
static const char *const names[FACTS] = {"build", "configuration", "data"};

struct meeter {
    const char *url; /* of the store */
    int index, count;
    const char *value[FACTS];
    int nfacts;
    double timeout, delay; /* delay: before it comes */
    pthread_t id;
    /* results */
    enum error err;
    char message[TEXT], hint[200];
    bool right; /* it was given what the others are */
};

/* Its own text, with what JSON has to escape. */
static char long_text[140000]; /* of every fourth, where it is not empty */
static const char *text_of(int index, char out[64]) {
    if (*long_text && index % 4 == 3) return long_text;
    snprintf(out, 64, "%.*s\n\"%d", index * 7 % 50, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", index);
    return out;
}

static bool is_right(const struct attendant *all, int count) {
    char text[64], who[32];
    for (int i = 0; i < count; i++) {
        snprintf(who, sizeof who, "host%d, pid %d", i, 100 + i);
        if (strcmp(all[i].text, text_of(i, text)) || strcmp(all[i].who, who)) return false;
    }
    return true;
}

static void meet(struct meeter *m) {
    struct fact facts[FACTS];
    struct pool *pool;
    struct attendant *all;
    struct store *s;
    char text[64], who[32];
    for (int i = 0; i < FACTS; i++) facts[i] = (struct fact){names[i], m->value[i]};
    snprintf(who, sizeof who, "host%d, pid %d", m->index, 100 + m->index);
    struct store_params p = {.url = m->url, .token = "t", .run = "A", .timeout = 20};
    usleep((useconds_t)(m->delay * 1e6));
    m->err = store_open(&p, &s);
    if (m->err) return;
    struct rendezvous r = {.store = s,
                           .what = "rank",
                           .round = "start-0",
                           .index = m->index,
                           .count = m->count,
                           .who = who,
                           .facts = facts,
                           .nfacts = m->nfacts ? m->nfacts : FACTS,
                           .text = text_of(m->index, text),
                           .timeout = m->timeout > 0 ? m->timeout : 20};
    m->err = pool_create(&pool);
    if (!m->err) m->err = rendezvous_meet(&r, pool, &all);
    if (m->err) {
        snprintf(m->message, sizeof m->message, "%s", error_message());
        snprintf(m->hint, sizeof m->hint, "%s", error_hint());
    } else {
        m->right = is_right(all, m->count);
    }
    pool_free(pool);
    store_close(s);
}

static void *run(void *arg) {
    meet(arg);
    return NULL;
}

static void plan(struct meeter *m, int n, const char *url) {
    memset(m, 0, (size_t)n * sizeof *m);
    for (int i = 0; i < n; i++)
        m[i] = (struct meeter){.url = url, .index = i, .count = n, .value = {"1.0", "3f2a", "88c1"}};
}

static void meet_all(struct meeter *m, int n) {
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&m[i].id, NULL, run, &m[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(m[i].id, NULL);
}

static char said[TEXT * 20]; /* on standard error, while they met */

static void meet_and_listen(struct meeter *m, int n) {
    FILE *to = tmpfile();
    int old = dup(STDERR_FILENO);
    assert_non_null(to);
    assert_true(old >= 0 && dup2(fileno(to), STDERR_FILENO) >= 0);
    meet_all(m, n);
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    rewind(to);
    said[fread(said, 1, sizeof said - 1, to)] = '\0';
    fclose(to);
}

static int lines_said(const char *what) {
    int n = 0;
    for (const char *at = strstr(said, what); at; at = strstr(at + 1, what)) n++;
    return n;
}

static struct store *new_store(void) {
    struct store *s;
    struct store_params p = {.url = "tcp://127.0.0.1:0", .serve = true, .token = "t", .run = "A", .timeout = 20};
    assert_ok(store_open(&p, &s));
    return s;
}

/* ---- who should meet ---- */

static void all_meet(void **state) {
    struct meeter m[MANY];
    (void)state;
    for (int n = 1; n <= MANY; n++) {
        struct store *s = new_store();
        plan(m, n, store_url(s));
        meet_all(m, n);
        for (int i = 0; i < n; i++) {
            assert_string_equal(m[i].message, "");
            assert_true(m[i].right);
        }
        store_close(s);
    }
}

/* Since no answer of the store can hold it. */
static void a_roster_in_pieces(void **state) {
    struct meeter m[MANY];
    struct store *s = new_store();
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    plan(m, MANY, store_url(s));
    meet_all(m, MANY);
    *long_text = '\0';
    for (int i = 0; i < MANY; i++) assert_true(m[i].right);
    store_close(s);
}

static void rounds_are_apart(void **state) {
    struct store *s = new_store();
    struct pool *pool;
    struct attendant *all;
    static const char *const rounds[] = {"a", "a.rank", "b"};
    (void)state;
    assert_ok(pool_create(&pool));
    for (int i = 0; i < 6; i++) {
        struct rendezvous r = {
            .store = s, .what = i % 2 ? "rank" : "node", .round = rounds[i / 2], .count = 1, .who = "I", .timeout = 1};
        assert_ok(rendezvous_meet(&r, pool, &all));
        assert_string_equal(all[0].who, "I");
        assert_string_equal(all[0].text, "");
    }
    pool_free(pool);
    store_close(s);
}

/* ---- who should not ---- */

/* All failed, and for the same reason, in which every one of these words is. */
static void assert_verdict(const struct meeter *m, int n, const char *const *words) {
    for (int i = 0; i < n; i++) {
        assert_int_equal(m[i].err, ERR_MISMATCH);
        assert_string_equal(m[i].message, m[0].message);
    }
    for (; *words; words++)
        if (!strstr(m[0].message, *words)) fail_msg("'%s' is not in '%s'", *words, m[0].message);
}

static void two_of_one_number(void **state) {
    static const char *const words[] = {"two have come as rank 2", "host2, pid 102", NULL};
    struct meeter m[4];
    struct store *s = new_store();
    (void)state;
    plan(m, 4, store_url(s));
    m[3].index = 2;
    m[3].delay = 0.05;
    meet_all(m, 4);
    assert_verdict(m, 4, words);
    store_close(s);
}

/* Whichever of the two came first: both are named, with what they have. */
static void a_fact_that_differs(void **state) {
    struct meeter m[4];
    (void)state;
    for (int who = 0; who < 4; who++)
        for (int fact = 0; fact < FACTS; fact++) {
            char number[32];
            const char *const words[] = {number, names[fact], "odd", "host", NULL};
            struct store *s = new_store();
            plan(m, 4, store_url(s));
            const char *others = m[0].value[fact];
            m[who].value[fact] = "odd";
            snprintf(number, sizeof number, "rank %d (host%d", who, who);
            meet_all(m, 4);
            assert_verdict(m, 4, words);
            assert_non_null(strstr(m[0].message, others));
            store_close(s);
        }
}

static void another_world(void **state) {
    static const char *const words[] = {"number of ranks", "8", "4", NULL};
    static const char *const short_list[] = {"rank 2", "none", "88c1", NULL};
    struct meeter m[4];
    struct store *s = new_store();
    (void)state;
    plan(m, 4, store_url(s));
    m[1].count = 8;
    meet_all(m, 4);
    assert_verdict(m, 4, words);
    store_close(s);
    s = new_store();
    plan(m, 4, store_url(s));
    m[2].nfacts = 2; /* it does not know of the third */
    m[2].delay = 0.05;
    meet_all(m, 4);
    assert_verdict(m, 4, short_list);
    store_close(s);
}

/* Who comes when it is all over hears what the others have heard. */
static void a_latecomer_hears_it_too(void **state) {
    struct meeter m[3];
    struct store *s = new_store();
    (void)state;
    plan(m, 3, store_url(s));
    m[1].value[1] = "odd";
    m[2].delay = 0.3;
    meet_all(m, 3);
    assert_int_equal(m[2].err, ERR_MISMATCH);
    assert_string_equal(m[2].message, m[0].message);
    store_close(s);
}

/* They have met: one more cannot undo it, and is told for itself. */
static void one_too_many(void **state) {
    struct meeter m[3];
    struct store *s = new_store();
    (void)state;
    plan(m, 3, store_url(s));
    m[0].count = m[1].count = m[2].count = 2;
    m[2].index = 1;
    m[2].delay = 0.3;
    meet_all(m, 3);
    assert_true(m[0].right && m[1].right);
    assert_int_equal(m[2].err, ERR_MISMATCH);
    assert_non_null(strstr(m[2].message, "two have come as rank 1"));
    store_close(s);
}

static void impossible_numbers(void **state) {
    struct meeter m[1];
    struct store *s = new_store();
    static const int bad[][2] = {{-1, 2}, {2, 2}, {0, 0}, {5, -1}};
    (void)state;
    for (int i = 0; i < 4; i++) {
        plan(m, 1, store_url(s));
        m[0].index = bad[i][0];
        m[0].count = bad[i][1];
        meet_all(m, 1);
        assert_int_equal(m[0].err, ERR_CONFIG);
    }
    store_close(s);
}

/* ---- who does not come ---- */

static void the_missing_are_named(void **state) {
    struct meeter m[4];
    struct store *s = new_store();
    int64_t began = clock_ns();
    (void)state;
    plan(m, 4, store_url(s));
    m[0].timeout = m[1].timeout = 2.5;
    meet_and_listen(m, 2); /* of 4 */
    double took = clock_seconds(clock_ns() - began);
    assert_true(took > 2.4 && took < timing_limit(6));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(m[i].err, ERR_TIMEOUT);
        assert_non_null(strstr(m[i].message, "ranks 2, 3 of 4 have not come within 2.5 s"));
        assert_true(*m[i].hint);
    }
    assert_int_equal(lines_said("waiting for"), 2); /* of each at 2 s */
    assert_int_equal(lines_said("waiting for ranks 2, 3 of 4 (2"), 2);
    store_close(s);
}

static void one_is_missing(void **state) {
    struct meeter m[2];
    struct store *s = new_store();
    (void)state;
    plan(m, 2, store_url(s));
    m[1].timeout = 0.1;
    meet_and_listen(&m[1], 1);
    assert_int_equal(m[1].err, ERR_TIMEOUT);
    assert_non_null(strstr(m[1].message, "rank 0 of 2 has not come within 100 ms"));
    assert_int_equal(lines_said("waiting"), 0);
    store_close(s);
}

static void many_are_missing(void **state) {
    enum { COME = 20 };
    struct meeter m[COME];
    struct store *s = new_store();
    (void)state;
    plan(m, COME, store_url(s));
    for (int i = 0; i < COME; i++) m[i].count = 4 * COME, m[i].timeout = 2.5, m[i].index = 4 * i;
    meet_and_listen(m, COME);
    for (int i = 0; i < COME; i++) {
        assert_int_equal(m[i].err, ERR_TIMEOUT);
        assert_memory_equal(m[i].message, "ranks 1, 2, 3, 5, ", 18);
        assert_non_null(strstr(m[i].message, ", ... (60) of 80 have not come within 2.5 s"));
    }
    assert_int_equal(lines_said("waiting for ranks 1, 2, "), COME);
    store_close(s);
}

/* ---- what it costs ---- */

/* One request of a member: what is asked of the table of the server. */
static struct store_answer come(struct store_table *t, uint32_t index, uint32_t count) {
    struct {
        struct store_words head;
        char texts[8];
    } words = {{index + 1, index, count, index, 0}, "who\0me!"};
    struct store_answer a;
    attendance_take(t, &(struct request){.op = STORE_MEET, .key = "r.rank", .value = {&words, 32}}, &a);
    return a;
}

/* Each asks once, and once more when the last has come; the answer is the roster and nothing else. */
static void one_request_a_member(void **state) {
    enum { TEXTS = 8 };
    (void)state;
    for (uint32_t n = 1; n <= 100000 / TEXTS; n *= 8) {
        struct store_table *t;
        struct store_answer a;
        assert_ok(table_create(&t));
        for (uint32_t i = n - 1; i > 0; i--) {
            a = come(t, i, n);
            assert_int_equal(a.status, ANSWER_NOT_THERE);
            assert_int_equal(a.value.n, (n + 7) / 8);
            assert_true(((const char *)a.value.at)[i / 8] >> i % 8 & 1);
            assert_false(a.changed);
        }
        a = come(t, 0, n);
        assert_true(a.status == ANSWER_OK && a.changed); /* who waits is woken */
        a = come(t, n - 1, n);
        assert_true(a.status == ANSWER_OK && !a.changed);
        assert_int_equal(a.value.n, n * TEXTS);
        table_free(t);
    }
}

/* ---- what somebody else wrote there ---- */

static void nonsense_in_the_store(void **state) {
    static const char *const keys[] = {"start-0.rank.first", "start-0.rank.member.0000000", "start-0.rank.refusal",
                                       "start-0.rank.roster"};
    static const char text[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    (void)state;
    for (int k = 0; k < 4; k++)
        for (size_t n = 0; n < sizeof text; n++) {
            struct meeter m[2];
            struct store *s = new_store();
            assert_ok(store_set(s, keys[k], text, n));
            plan(m, 2, store_url(s));
            meet_all(m, 1);
            assert_true(m[0].err == ERR_DATA || m[0].err == ERR_MISMATCH);
            store_close(s);
        }
}

/* ---- processes, over the stores that they can share ---- */

static int member(const char *url, int index, int count) {
    struct meeter m;
    plan(&m, 1, url);
    m.index = index;
    m.count = count;
    meet(&m);
    if (m.err) fprintf(stderr, "member %d: %s\n", index, m.message);
    return m.right ? 0 : 1;
}

static pid_t start_member(const char *url, int index, int count) {
    char a[16], b[16], copy[600], *environment[] = {NULL};
    char *argv[] = {(char[]){"test"}, (char[]){"--member"}, copy, a, b, NULL};
    pid_t pid = -1;
    snprintf(a, sizeof a, "%d", index);
    snprintf(b, sizeof b, "%d", count);
    snprintf(copy, sizeof copy, "%s", url);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environment), 0);
    return pid;
}

static void processes_meet(void **state) {
    enum { COUNT = 4 };
    char urls[2][600];
    (void)state;
    snprintf(urls[0], sizeof urls[0], "file://%s", scratch_path("store"));
    snprintf(urls[1], sizeof urls[1], "tcp://127.0.0.1:0");
    for (int u = 0; u < 2; u++) {
        struct store *s;
        pid_t pid[COUNT];
        struct meeter m;
        struct store_params p = {.url = urls[u], .serve = true, .token = "t", .run = "A", .timeout = 20};
        assert_ok(store_open(&p, &s));
        for (int i = 1; i < COUNT; i++) pid[i] = start_member(store_url(s), i, COUNT);
        plan(&m, 1, store_url(s));
        m.count = COUNT;
        meet(&m);
        assert_string_equal(m.message, "");
        assert_true(m.right);
        for (int i = 1; i < COUNT; i++) {
            int how;
            assert_int_equal(waitpid(pid[i], &how, 0), pid[i]);
            assert_int_equal(how, 0);
        }
        store_close(s);
    }
}

static void who_this_is(void **state) {
    char who[128], pid[32];
    (void)state;
    process_who(who);
    snprintf(pid, sizeof pid, ", pid %d", (int)getpid());
    assert_true(strlen(who) > strlen(pid));
    assert_string_equal(who + strlen(who) - strlen(pid), pid);
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "--member")) return member(argv[2], atoi(argv[3]), atoi(argv[4]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_meet),        cmocka_unit_test(all_meet),
        cmocka_unit_test(a_roster_in_pieces),    cmocka_unit_test(rounds_are_apart),
        cmocka_unit_test(two_of_one_number),     cmocka_unit_test(a_fact_that_differs),
        cmocka_unit_test(another_world),         cmocka_unit_test(a_latecomer_hears_it_too),
        cmocka_unit_test(one_too_many),          cmocka_unit_test(impossible_numbers),
        cmocka_unit_test(the_missing_are_named), cmocka_unit_test(one_is_missing),
        cmocka_unit_test(many_are_missing),      cmocka_unit_test(one_request_a_member),
        cmocka_unit_test(nonsense_in_the_store), cmocka_unit_test(who_this_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
