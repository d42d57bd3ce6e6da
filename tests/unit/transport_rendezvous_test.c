/* Members meet, or are all told the same of why they do not. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/process.h"
#include "tests/harness/table_store.h"
#include "tests/harness/timing.h"
#include "transport/launch/rendezvous.h"

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
    struct store *store;
    int index, count;
    const char *value[FACTS];
    int nfacts;
    double timeout, delay; /* delay: before it comes */
    pthread_t id;
    /* results */
    enum error err;
    char message[TEXT], hint[200], words[TEXT];
    int said;   /* lines of who is awaited */
    bool right; /* it was given what the others are */
};

static void keep_word(void *user, const char *text) {
    struct meeter *m = user;
    m->said++;
    snprintf(m->words, sizeof m->words, "%s", text);
}

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
    char text[64], who[32];
    for (int i = 0; i < FACTS; i++) facts[i] = (struct fact){names[i], m->value[i]};
    snprintf(who, sizeof who, "host%d, pid %d", m->index, 100 + m->index);
    struct rendezvous r = {.store = m->store,
                           .what = "rank",
                           .round = "start-0",
                           .index = m->index,
                           .count = m->count,
                           .who = who,
                           .facts = facts,
                           .nfacts = m->nfacts ? m->nfacts : FACTS,
                           .text = text_of(m->index, text),
                           .timeout = m->timeout > 0 ? m->timeout : 20,
                           .waiting = keep_word,
                           .user = m};
    usleep((useconds_t)(m->delay * 1e6));
    m->err = pool_create(&pool);
    if (!m->err) m->err = rendezvous_meet(&r, pool, &all);
    if (m->err) {
        snprintf(m->message, sizeof m->message, "%s", error_message());
        snprintf(m->hint, sizeof m->hint, "%s", error_hint());
    } else {
        m->right = is_right(all, m->count);
    }
    pool_free(pool);
}

static void *run(void *arg) {
    meet(arg);
    return NULL;
}

static void plan(struct meeter *m, int n, struct store *s) {
    memset(m, 0, (size_t)n * sizeof *m);
    for (int i = 0; i < n; i++)
        m[i] = (struct meeter){.store = s, .index = i, .count = n, .value = {"1.0", "3f2a", "88c1"}};
}

static void meet_all(struct meeter *m, int n) {
    for (int i = 0; i < n; i++) assert_int_equal(pthread_create(&m[i].id, NULL, run, &m[i]), 0);
    for (int i = 0; i < n; i++) pthread_join(m[i].id, NULL);
}

static struct store *new_store(void) {
    static int number;
    struct store *s;
    char url[600];
    snprintf(url, sizeof url, "file://%s/store%d", scratch_folder(), number++);
    assert_ok(store_open(&(struct store_params){.url = url, .timeout = 20}, &s));
    return s;
}

/* ---- who should meet ---- */

static void all_meet(void **state) {
    struct meeter m[MANY];
    (void)state;
    for (int n = 1; n <= MANY; n++) {
        struct store *s = new_store();
        plan(m, n, s);
        meet_all(m, n);
        for (int i = 0; i < n; i++) {
            assert_string_equal(m[i].message, "");
            assert_true(m[i].right);
        }
        store_close(s);
    }
}

/* Since no value of the store can hold it. */
static void a_roster_in_pieces(void **state) {
    struct meeter m[MANY];
    struct store *s = new_store();
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    plan(m, MANY, s);
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
    plan(m, 4, s);
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
            plan(m, 4, s);
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
    plan(m, 4, s);
    m[1].count = 8;
    meet_all(m, 4);
    assert_verdict(m, 4, words);
    store_close(s);
    s = new_store();
    plan(m, 4, s);
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
    plan(m, 3, s);
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
    plan(m, 3, s);
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
        plan(m, 1, s);
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
    plan(m, 4, s);
    m[0].timeout = m[1].timeout = 2.5;
    meet_all(m, 2); /* of 4 */
    double took = clock_seconds(clock_ns() - began);
    assert_true(took > 2.4 && took < timing_limit(6));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(m[i].err, ERR_TIMEOUT);
        assert_non_null(strstr(m[i].message, "ranks 2, 3 of 4 have not come within 2.5 s"));
        assert_true(*m[i].hint);
        assert_int_equal(m[i].said, 1); /* at 2 s */
        assert_non_null(strstr(m[i].words, "waiting for ranks 2, 3 of 4 (2"));
    }
    store_close(s);
}

/* The last to come is held up before it writes the outcome: the one that waits for it writes it. */
static void all_have_come_when_the_time_is_over(void **state) {
    static const char last[] =
        "{\"instance\":\"1\",\"index\":1,\"who\":\"host1, pid 101\",\"text\":\"aaaaaaa\\n\\\"1\"}";
    struct meeter m[2];
    struct store *s = new_store();
    (void)state;
    plan(m, 2, s);
    m[0].timeout = 0.5;
    assert_int_equal(pthread_create(&m[0].id, NULL, run, &m[0]), 0);
    struct pool *pool;
    char *first;
    size_t n;
    assert_ok(pool_create(&pool));
    assert_ok(store_get(s, "start-0.rank.member.0", 20, pool, &first, &n));
    usleep(100000); /* in which it has looked around */
    assert_ok(store_set(s, "start-0.rank.member.1", last, strlen(last)));
    pthread_join(m[0].id, NULL);
    assert_string_equal(m[0].message, "");
    assert_true(m[0].right);
    pool_free(pool);
    store_close(s);
}

static void one_is_missing(void **state) {
    struct meeter m[2];
    struct store *s = new_store();
    (void)state;
    plan(m, 2, s);
    m[1].timeout = 0.1;
    meet_all(&m[1], 1);
    assert_int_equal(m[1].err, ERR_TIMEOUT);
    assert_non_null(strstr(m[1].message, "rank 0 of 2 has not come within 100 ms"));
    assert_int_equal(m[1].said, 0);
    store_close(s);
}

/* ---- what it costs ---- */

/* As many requests a member, however many there are, in answers that are the roster and little else. */
static void few_requests_a_member(void **state) {
    enum { MOST = 256, REQUESTS = 12, TEXTS = 64 + 32 };
    static struct meeter m[MOST];
    (void)state;
    for (int n = 16; n <= MOST; n *= 4) {
        struct table_store *table;
        struct store *s = table_store_open(&table);
        plan(m, n, s);
        meet_all(m, n);
        for (int i = 0; i < n; i++) assert_true(m[i].right);
        struct table_count count = table_store_count(table);
        assert_true(count.requests <= REQUESTS * n); /* 6 where nobody waits for 2 s */
        assert_true(count.bytes / n < TEXTS * n + 2000);
        store_close(s);
    }
}

/* One lists the claims for all while they wait, and each for itself when the time is over. */
static void one_looks_for_all(void **state) {
    enum { COME = 20 };
    struct meeter m[COME];
    struct table_store *table;
    struct store *s = table_store_open(&table);
    (void)state;
    plan(m, COME, s);
    for (int i = 0; i < COME; i++) m[i].count = 4 * COME, m[i].timeout = 2.5, m[i].index = 4 * i;
    m[COME - 1].delay = 0.2;
    meet_all(m, COME);
    struct table_count count = table_store_count(table);
    assert_true(count.lists <= COME + 2);
    for (int i = 0; i < COME; i++) {
        assert_int_equal(m[i].err, ERR_TIMEOUT);
        assert_memory_equal(m[i].message, "ranks 1, 2, 3, 5, ", 18);
        assert_non_null(strstr(m[i].message, ", ... (60) of 80 have not come within 2.5 s"));
    }
    assert_non_null(strstr(m[COME - 1].words, "waiting for ranks 1, 2, "));
    store_close(s);
}

/* The first to come has given up: another looks in its place. */
static void another_looks_in_its_place(void **state) {
    struct meeter m[2];
    struct store *s = new_store();
    (void)state;
    plan(m, 2, s);
    m[0].count = m[1].count = 9;
    m[0].timeout = 0.1, m[1].timeout = 2.5, m[1].delay = 0.3;
    meet_all(m, 2);
    assert_int_equal(m[0].said, 0);
    assert_int_equal(m[1].said, 1);
    assert_non_null(strstr(m[1].words, "waiting for ranks 2 to 8 of 9 (2"));
    store_close(s);
}

/* ---- what somebody else wrote there ---- */

static void nonsense_in_the_store(void **state) {
    static const char *const keys[] = {"start-0.rank.facts", "start-0.rank.member.1", "start-0.rank.member.0",
                                       "start-0.rank.outcome"};
    static const char *const values[] = {
        "",
        "x",
        "{}",
        "[]",
        "null",
        "{\"instance\":1,\"index\":0,\"who\":\"w\"}",
        "{\"instance\":\"i\",\"index\":0,\"who\":\"w\"}",
        "{\"instance\":\"i\",\"index\":0,\"who\":\"w\",\"blob\":\"0\",\"facts\":[]}",
        "{\"instance\":\"i\",\"index\":0,\"who\":\"w\",\"blob\":\"0x\",\"facts\":[1,2]}",
        "{\"instance\":\"i\",\"index\":\"0\",\"who\":\"w\",\"blob\":\"\",\"facts\":{}}"};
    (void)state;
    for (int k = 0; k < 4; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct meeter m[2];
            struct store *s = new_store();
            assert_ok(store_set(s, keys[k], values[v], strlen(values[v])));
            plan(m, 2, s);
            m[0].timeout = m[1].timeout = 1;
            meet_all(m, 1);
            assert_true(m[0].err == ERR_DATA || m[0].err == ERR_MISMATCH);
            store_close(s);
        }
}

/* ---- processes, over the stores that they can share ---- */

static int member(const char *url, int index, int count) {
    struct store *s;
    struct meeter m;
    struct store_params p = {.url = url, .token = "t", .run = "A", .timeout = 20};
    if (store_open(&p, &s) != ERR_NONE) {
        fprintf(stderr, "member %d: %s\n", index, error_message());
        return 1;
    }
    plan(&m, 1, s);
    m.index = index;
    m.count = count;
    meet(&m);
    store_close(s);
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
        plan(&m, 1, s);
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
        cmocka_unit_test(the_missing_are_named), cmocka_unit_test(all_have_come_when_the_time_is_over),
        cmocka_unit_test(one_is_missing),        cmocka_unit_test(few_requests_a_member),
        cmocka_unit_test(one_looks_for_all),     cmocka_unit_test(another_looks_in_its_place),
        cmocka_unit_test(nonsense_in_the_store), cmocka_unit_test(who_this_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
