/* What a store must do, at an address and in a file: alone, for many threads, for other processes. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "tests/harness/timing.h"
#include "transport/store/table.h"

#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const kinds[] = {"file", "tcp"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct pool *pool;
static const char *kind; /* that is tested now */

/* ---- opening ---- */

static struct store *open_url(const char *url, bool serve) {
    struct store *s;
    assert_ok(store_open(
        &(struct store_params){.url = url, .serve = serve, .token = "secret", .run = "A", .timeout = 20}, &s));
    return s;
}

static struct store *open_new(void) {
    static int number;
    char url[600];
    if (!strcmp(kind, "file"))
        snprintf(url, sizeof url, "file://%s/store%d", scratch_folder(), number++);
    else
        snprintf(url, sizeof url, "tcp://127.0.0.1:0");
    return open_url(url, true);
}

/* As another member has it: the same store by its url. */
static struct store *open_again(struct store *s) {
    return open_url(store_url(s), false);
}

static void each_kind(void (*test)(struct store *s)) {
    for (int i = 0; i < KINDS; i++) {
        kind = kinds[i];
        assert_ok(pool_create(&pool));
        struct store *s = open_new();
        test(s);
        store_close(s);
        pool_free(pool);
    }
}

static void assert_value(struct store *s, const char *key, const char *want) {
    char *value;
    size_t n;
    assert_ok(store_find(s, key, pool, &value, &n));
    if (!want) {
        assert_null(value);
        return;
    }
    assert_non_null(value);
    assert_string_equal(value, want);
    assert_int_equal(n, strlen(want));
}

static void set(struct store *s, const char *key, const char *text) {
    assert_ok(store_set(s, key, text, strlen(text)));
}

/* ---- alone ---- */

static void check_values(struct store *s) {
    static char big[STORE_VALUE_MAX + 1];
    char *value;
    size_t n;
    for (size_t i = 0; i < sizeof big; i++) big[i] = (char)(i * 7 >> 3);
    assert_value(s, "a", NULL);
    set(s, "a", "one");
    set(s, "a", "two");
    assert_value(s, "a", "two");
    assert_value(s, "aa", NULL);
    assert_ok(store_set(s, "empty", NULL, 0));
    assert_value(s, "empty", "");
    assert_ok(store_set(s, "zeros", "\0\1\0", 3));
    assert_ok(store_get(s, "zeros", 0, pool, &value, &n));
    assert_int_equal(n, 3);
    assert_memory_equal(value, "\0\1\0", 4);

    assert_ok(store_set(s, "big", big, STORE_VALUE_MAX));
    struct store *again = open_again(s);
    assert_ok(store_get(again, "big", 1, pool, &value, &n));
    assert_int_equal(n, STORE_VALUE_MAX);
    assert_memory_equal(value, big, n);
    assert_int_equal(value[n], 0);
    assert_value(again, "empty", "");
    store_close(again);
    assert_fails(ERR_USAGE, store_set(s, "bigger", big, sizeof big));
    assert_value(s, "bigger", NULL);
    assert_value(s, "a", "two");
}

static void check_deletes_and_lists(struct store *s) {
    static const char *const names[] = {"b.2", "a", "b.10", "b", "c", "b.1"};
    char **keys;
    int count;
    assert_ok(store_list(s, "", pool, &keys, &count));
    assert_int_equal(count, 0);
    for (int i = 0; i < 6; i++) set(s, names[i], "x");
    assert_ok(store_list(s, "", pool, &keys, &count));
    assert_int_equal(count, 6);
    assert_string_equal(keys[0], "a");
    assert_string_equal(keys[5], "c");
    assert_ok(store_list(s, "b.", pool, &keys, &count));
    assert_int_equal(count, 3);
    assert_string_equal(keys[0], "b.1");
    assert_string_equal(keys[1], "b.10");
    assert_string_equal(keys[2], "b.2");
    assert_ok(store_delete(s, "b.1")); /* and with it b.10 */
    assert_ok(store_delete(s, "b.1"));
    assert_ok(store_list(s, "b.", pool, &keys, &count));
    assert_int_equal(count, 1);
    assert_string_equal(keys[0], "b.2");
    assert_value(s, "b", "x");
    assert_ok(store_delete(s, ""));
    assert_value(s, "c", NULL);
    assert_ok(store_list(s, "zz", pool, &keys, &count));
    assert_int_equal(count, 0);
}

/* More than an answer holds. */
static void check_long_lists(struct store *s) {
    enum { MANY = STORE_VALUE_MAX / (STORE_KEY_MAX + 1) + 6 };
    char key[STORE_KEY_MAX + 1], **keys;
    int count;
    for (int i = 0; i < MANY; i++) {
        int n = snprintf(key, sizeof key, "long.%05d.", i * 7919 % MANY);
        memset(key + n, 'x', sizeof key - 1 - (size_t)n);
        key[sizeof key - 1] = '\0';
        assert_ok(store_set(s, key, "", 0));
    }
    assert_fails(ERR_CREATE, store_list(s, "long.", pool, &keys, &count));
    assert_ok(store_list(s, "long.00", pool, &keys, &count));
    assert_int_equal(count, 1000);
    for (int i = 0; i < count; i++) assert_int_equal(atoi(keys[i] + 5), i);
}

static void check_keys(struct store *s) {
    char longest[STORE_KEY_MAX + 2], **keys;
    int count;
    static const char *const wrong[] = {"", " ", "a b", "a\n", "\x7f", "k\xc3\xa4se"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_fails(ERR_USAGE, store_set(s, wrong[i], "x", 1));
    memset(longest, 'k', sizeof longest);
    longest[STORE_KEY_MAX + 1] = '\0';
    assert_fails(ERR_USAGE, store_set(s, longest, "x", 1));
    assert_fails(ERR_USAGE, store_list(s, "a b", pool, &keys, &count));
    longest[STORE_KEY_MAX] = '\0';
    set(s, longest, "x");
    assert_value(s, longest, "x");
}

static void check_deadline(struct store *s) {
    char *value;
    size_t n;
    int64_t began = clock_ns();
    assert_fails(ERR_TIMEOUT, store_get(s, "never.comes", 0.2, pool, &value, &n));
    double took = clock_seconds(clock_ns() - began);
    assert_true(took >= 0.19 && took < timing_limit(5));
    assert_non_null(strstr(error_message(), "never.comes"));
    assert_non_null(strstr(error_message(), "200 ms"));
    set(s, "works", "still");
    assert_value(s, "works", "still");
}

static void values(void **state) {
    (void)state;
    each_kind(check_values);
}
static void deletes_and_lists(void **state) {
    (void)state;
    each_kind(check_deletes_and_lists);
}
static void long_lists(void **state) {
    (void)state;
    each_kind(check_long_lists);
}
static void keys_are_checked(void **state) {
    (void)state;
    each_kind(check_keys);
}
static void a_deadline_names_the_key(void **state) {
    (void)state;
    each_kind(check_deadline);
}

static enum answer_status put(struct store_table *t, const char *key) {
    struct store_answer a;
    table_apply(t, &(struct request){.op = STORE_SET, .key = key, .value = {"x", 1}}, &a);
    return a.status;
}

static void a_store_is_no_place_for_data(void **state) {
    struct store_table *t;
    struct store_answer a;
    char key[16];
    (void)state;
    assert_ok(table_create(&t));
    for (int i = 0; i < STORE_KEYS_MAX; i++) {
        snprintf(key, sizeof key, "%06d", i);
        assert_int_equal(put(t, key), ANSWER_OK);
    }
    assert_int_equal(put(t, "one-more"), ANSWER_FULL);
    assert_int_equal(put(t, "000007"), ANSWER_OK);
    table_apply(t, &(struct request){.op = STORE_DELETE, .key = "000008"}, &a);
    assert_int_equal(put(t, "one-more"), ANSWER_OK);
    table_free(t);
}

/* ---- many threads ---- */

struct work {
    struct store *s;
    int index;
    char wrong[300];
    pthread_t id;
};

static void work_wrong(struct work *w, const char *what) {
    if (!*w->wrong) snprintf(w->wrong, sizeof w->wrong, "%s: %s", what, error_message());
}

static void in_threads(struct store *s, int n, void *(*fn)(void *)) {
    struct work *w = calloc((size_t)n, sizeof *w);
    assert_non_null(w);
    for (int i = 0; i < n; i++) {
        w[i].s = open_again(s);
        w[i].index = i;
        assert_int_equal(pthread_create(&w[i].id, NULL, fn, &w[i]), 0);
    }
    for (int i = 0; i < n; i++) {
        pthread_join(w[i].id, NULL);
        store_close(w[i].s);
        if (*w[i].wrong) fail_msg("%s, thread %d: %s", kind, i, w[i].wrong);
    }
    free(w);
}

/* Each waits for the next one's key and then sets its own: the last is set by the test. */
enum { WAITERS = 60 };

static void *wait_in_chain(void *arg) {
    struct work *w = arg;
    struct pool *own;
    char key[32], *value;
    size_t n;
    if (pool_create(&own) != ERR_NONE) return NULL;
    snprintf(key, sizeof key, "chain.%d", w->index + 1);
    if (store_get(w->s, key, 20, own, &value, &n) != ERR_NONE) {
        work_wrong(w, "get");
    } else {
        snprintf(key, sizeof key, "chain.%d", w->index);
        if (store_set(w->s, key, value, n) != ERR_NONE) work_wrong(w, "set");
    }
    pool_free(own);
    return NULL;
}

static void *start_chain(void *arg) {
    char key[32];
    struct work *w = arg;
    usleep(100000); /* all are waiting by now, or soon */
    snprintf(key, sizeof key, "chain.%d", WAITERS);
    if (store_set(w->s, key, "go", 2) != ERR_NONE) work_wrong(w, "set");
    return NULL;
}

static void check_waiters(struct store *s) {
    struct work start = {.s = open_again(s)};
    assert_int_equal(pthread_create(&start.id, NULL, start_chain, &start), 0);
    in_threads(s, WAITERS, wait_in_chain);
    pthread_join(start.id, NULL);
    assert_string_equal(start.wrong, "");
    assert_value(s, "chain.0", "go");
    store_close(start.s);
}

static void many_wait_at_once(void **state) {
    (void)state;
    each_kind(check_waiters);
}

/* ---- other processes ---- */

enum { PROCESSES = 3 };

static pid_t start_member(const char *url, int index) {
    char number[16], copy[600], *environment[] = {NULL};
    char *argv[] = {(char[]){"test"}, (char[]){"--member"}, copy, number, NULL};
    pid_t pid = -1;
    snprintf(number, sizeof number, "%d", index);
    snprintf(copy, sizeof copy, "%s", url);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environment), 0);
    return pid;
}

static int member(const char *url, int index) {
    struct store *s;
    char key[32], *value;
    size_t n;
    enum error err = pool_create(&pool);
    if (!err) err = store_open(&(struct store_params){.url = url, .token = "secret", .run = "A", .timeout = 20}, &s);
    snprintf(key, sizeof key, "member.%d", index);
    if (!err) err = store_set(s, key, "here", 4);
    snprintf(key, sizeof key, "member.%d", (index + 1) % PROCESSES);
    if (!err) err = store_get(s, key, 0, pool, &value, &n);
    if (!err) err = store_get(s, "go", 0, pool, &value, &n);
    if (err) {
        fprintf(stderr, "member %d: %s\n", index, error_message());
        return 1;
    }
    store_close(s);
    pool_free(pool);
    return 0;
}

static void check_processes(struct store *s) {
    pid_t pid[PROCESSES];
    char *value, key[32];
    size_t n;
    for (int i = 0; i < PROCESSES; i++) pid[i] = start_member(store_url(s), i);
    for (int i = 0; i < PROCESSES; i++) {
        snprintf(key, sizeof key, "member.%d", i);
        assert_ok(store_get(s, key, 0, pool, &value, &n));
    }
    set(s, "go", "");
    for (int i = 0; i < PROCESSES; i++) {
        int how;
        assert_int_equal(waitpid(pid[i], &how, 0), pid[i]);
        assert_int_equal(how, 0);
    }
}

static void processes(void **state) {
    (void)state;
    each_kind(check_processes);
}

/* ---- opening ---- */

static void strange_urls(void **state) {
    static const char *const wrong[] = {
        "",         "x",           "redis://h:1", "hash:x",        "file:x",     "file://x",
        "file:",    "tcp:",        "tcp://",      "tcp://h",       "tcp://h:",   "tcp://:1",
        "tcp:h",    "hash",        "tcp://h:-1",  "tcp://h:65536", "tcp://h:1x", "tcp://::1:5",
        "file:///", "tcp://[::1]", "tcp://[]:5",  "tcp://[::1]x:5"};
    struct store *s;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_fails(ERR_CONFIG, store_open(&(struct store_params){.url = wrong[i], .timeout = 1}, &s));
    assert_fails(ERR_CONFIG, store_open(&(struct store_params){.timeout = 1}, &s));
    assert_fails(ERR_USAGE, store_open(&(struct store_params){.url = "file:///tmp/x"}, &s));
    store_close(NULL);
}

static enum error open_run(const char *url, const char *run, struct store **s) {
    return store_open(&(struct store_params){.url = url, .token = "secret", .run = run, .timeout = 1}, s);
}

static void another_run(void **state) {
    struct store *s, *other;
    (void)state;
    assert_ok(pool_create(&pool));
    kind = "tcp";
    s = open_new();
    assert_fails(ERR_MISMATCH, open_run(store_url(s), "B", &other));
    assert_non_null(strstr(error_message(), "run 'A', not of 'B'"));
    assert_ok(open_run(store_url(s), NULL, &other));
    store_close(other);
    store_close(s);

    pool_free(pool);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--member")) return member(argv[2], atoi(argv[3]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes), /* first: before threads */
        cmocka_unit_test(values),
        cmocka_unit_test(deletes_and_lists),
        cmocka_unit_test(long_lists),
        cmocka_unit_test(keys_are_checked),
        cmocka_unit_test(a_deadline_names_the_key),
        cmocka_unit_test(a_store_is_no_place_for_data),
        cmocka_unit_test(many_wait_at_once),
        cmocka_unit_test(strange_urls),
        cmocka_unit_test(another_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
