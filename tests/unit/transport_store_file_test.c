/* A store's file, to which anything may have happened: cut, damaged, deleted, held by the dead and the stopped, or no
 * store at all. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "tests/harness/timing.h"
#include "transport/store/table.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pool *pool;
static char path[512], url[700];

static int begin(void **state) {
    (void)state;
    snprintf(path, sizeof path, "%s/store", scratch_folder());
    snprintf(url, sizeof url, "file://%s", path);
    unlink(path);
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static enum error find(double timeout, struct store **s) {
    return store_open(&(struct store_params){.url = url, .timeout = timeout}, s);
}

static struct store *open_store(void) {
    struct store *s;
    assert_ok(find(5, &s));
    return s;
}

static const char *value_of(struct store *s, const char *key) {
    char *value;
    size_t n;
    assert_ok(store_find(s, key, pool, &value, &n));
    return value ? value : "(none)";
}

static void write_file(const char *bytes, size_t n) {
    FILE *f = fopen(path, "w"); /* the same file, of which others have locks */
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void is_its_owners_alone(void **state) {
    struct stat st;
    struct store *s;
    (void)state;
    assert_ok(store_open(&(struct store_params){.url = url, .serve = true, .timeout = 5}, &s));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(open_store());
    assert_int_equal(stat(path, &st), 0);
    store_close(s);
    assert_int_equal(stat(path, &st), -1); /* it goes with who serves */
}

/* As long as somebody has it open, it is kept. */
static void what_was_left_is_begun_afresh(void **state) {
    struct store *s = open_store(), *other = open_store();
    (void)state;
    assert_ok(store_set(s, "k", "v", 1));
    store_close(s);
    s = open_store();
    assert_string_equal(value_of(s, "k"), "v");
    store_close(s);
    store_close(other);
    s = open_store();
    assert_string_equal(value_of(s, "k"), "(none)");
    store_close(s);
}

/* ---- cut and damaged ---- */

/* A store of two keys, and its bytes. */
static struct store *sample(char **bytes, size_t *n) {
    struct store *s = open_store();
    assert_ok(store_set(s, "first", "1", 1));
    assert_ok(store_set(s, "second", "22", 2));
    assert_ok(file_read(path, 1 << 20, pool, bytes, n));
    return s;
}

static void assert_damaged(struct store *s, const char *bytes, size_t n) {
    char *value, *now;
    size_t length;
    write_file(bytes, n);
    assert_fails(ERR_DATA, store_find(s, "second", pool, &value, &length));
    assert_non_null(strstr(error_message(), path));
    assert_ok(file_read(path, 1 << 20, pool, &now, &length));
    assert_true(length == n && !memcmp(now, bytes, n)); /* nothing was thrown away */
}

static void cut_anywhere(void **state) {
    char *bytes;
    size_t n;
    struct store *s = sample(&bytes, &n);
    (void)state;
    for (size_t cut = 1; cut < n; cut++) assert_damaged(s, bytes, cut);
    write_file(bytes, n);
    assert_string_equal(value_of(s, "second"), "22");
    write_file(bytes, n - 1);
    store_close(s);
    s = open_store(); /* nobody uses it */
    assert_string_equal(value_of(s, "second"), "(none)");
    store_close(s);
}

static void flipped_bits(void **state) {
    char *bytes;
    size_t n;
    struct store *s = sample(&bytes, &n);
    (void)state;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        assert_damaged(s, bytes, n);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    store_close(s);
}

/* Bytes of a table that is none. */
static void no_table(void **state) {
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {{"\1\0\0", 3},
               {"\0\0\0\0\0\0\0\0", 8},
               {"\2\0\0\0\0\0\0\0ab", 10},
               {"\2\0\0\0\1\0\0\0a\0", 10},
               {"\377\377\377\377\1\0\0\0a", 9}};
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct store_table *t;
        assert_ok(table_create(&t));
        assert_false(table_load(t, bad[i].bytes, bad[i].n));
        table_free(t);
    }
}

/* ---- what is there is no store ---- */

static void other_files(void **state) {
    static const char *const texts[] = {"x", "ENGSTOR1", "a file of somebody's\n", "ENGX"};
    struct store *s;
    char *text;
    size_t n;
    (void)state;
    for (int i = 0; i < 4; i++) {
        write_file(texts[i], strlen(texts[i]));
        assert_fails(ERR_DATA, find(1, &s));
        assert_ok(file_read(path, 1000, pool, &text, &n));
        assert_string_equal(text, texts[i]); /* untouched */
    }
}

static void no_files(void **state) {
    static const char *const bad[] = {"file:///proc/nowhere/store", "file:///dev/null", "file:///proc/self/status",
                                      "file:///"};
    struct store *s;
    char other[600];
    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    assert_fails(ERR_CREATE, find(1, &s));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(ERR_CREATE, find(1, &s));
    unlink(path);
    snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(symlink(other, path), 0);
    assert_fails(ERR_CREATE, find(1, &s));
    assert_non_null(strstr(error_message(), "symbolic link"));
    unlink(path);
    for (int i = 0; i < 4; i++)
        assert_true(store_open(&(struct store_params){.url = bad[i], .timeout = 1}, &s) != ERR_NONE);
    if (geteuid() == 0) return; /* to whom every folder is open */
    snprintf(other, sizeof other, "%s/closed", scratch_folder());
    assert_int_equal(mkdir(other, 0500), 0);
    snprintf(url, sizeof url, "file://%s/store", other);
    assert_fails(ERR_CREATE, find(1, &s));
    assert_non_null(strstr(error_message(), other));
}

static void a_deleted_file(void **state) {
    struct store *s = open_store();
    char *value;
    size_t n;
    (void)state;
    unlink(path);
    assert_fails(ERR_PEER, store_set(s, "k", "v", 1));
    assert_fails(ERR_PEER, store_get(s, "k", 1, pool, &value, &n));
    struct store *other = open_store(); /* another begins where it was */
    assert_fails(ERR_PEER, store_set(s, "k", "v", 1));
    assert_ok(store_set(other, "k", "v", 1));
    store_close(other);
    store_close(s);
}

static void no_room(void **state) {
    struct store *s = open_store();
    struct rlimit old, small;
    char big[8192] = {0};
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1000; /* bytes */
    setrlimit(RLIMIT_FSIZE, &small);
    enum error err = store_set(s, "big", big, sizeof big);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(err, ERR_IO);
    assert_fails(ERR_DATA, store_set(s, "k", "v", 1)); /* and this says so to all */
    store_close(s);
}

/* ---- other processes ---- */

/* Opens the store, says so, and works until it is killed. */
static int hold(const char *where) {
    struct store *s;
    if (store_open(&(struct store_params){.url = where, .timeout = 5}, &s)) return 1;
    while (store_set(s, "held", "yes", 3) == ERR_NONE) usleep(100);
    return 1;
}

static pid_t start_holder(void) {
    pid_t pid = -1;
    char *argv[] = {(char[]){"test"}, (char[]){"--hold"}, url, NULL}, *environment[] = {NULL};
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environment), 0);
    return pid;
}

/* A file is free again when its process has been killed, at any moment; only one that was killed while it wrote leaves
 * damage to those who have the store open, and they say so. */
static void what_the_dead_leave(void **state) {
    char *value;
    size_t n;
    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        struct store *s = open_store();
        pid_t pid = start_holder();
        assert_ok(store_get(s, "held", 5, pool, &value, &n));
        usleep(3000 + 777 * i);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        enum error err = store_set(s, "k", "v", 1);
        assert_true(err == ERR_NONE || err == ERR_DATA);
        store_close(s);
        s = open_store();
        assert_string_equal(value_of(s, "held"), "(none)");
        store_close(s);
    }
}

/* Stopped with the lock in its hands or without: either way this one's time is limited. */
static void what_the_stopped_hold(void **state) {
    char *value;
    size_t n;
    struct store *s = open_store();
    pid_t pid = start_holder();
    (void)state;
    assert_ok(store_get(s, "held", 5, pool, &value, &n));
    for (int i = 0; i < 10; i++) {
        kill(pid, SIGSTOP);
        int64_t began = clock_ns();
        assert_fails(ERR_TIMEOUT, store_get(s, "never", 0.02, pool, &value, &n));
        assert_true(clock_seconds(clock_ns() - began) < timing_limit(2));
        kill(pid, SIGCONT);
        usleep(300);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    store_close(s);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--hold")) return hold(argv[2]);
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(is_its_owners_alone),
        TEST(what_was_left_is_begun_afresh),
        TEST(cut_anywhere),
        TEST(flipped_bits),
        TEST(no_table),
        TEST(other_files),
        TEST(no_files),
        TEST(a_deleted_file),
        TEST(no_room),
        TEST(what_the_dead_leave),
        TEST(what_the_stopped_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
