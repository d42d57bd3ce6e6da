/* A store's file, to which anything may have happened: cut, damaged, deleted, held by the dead and
 * the stopped, of another run, or no store at all. */
#include "tests/harness/harness.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "tests/harness/timing.h"
#include "transport/store/file_log.h"

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

static enum error open_as(const char *run, double timeout, struct store **s) {
    return store_open(&(struct store_params){.url = url, .run = run, .timeout = timeout}, s);
}

static struct store *open_store(void) {
    struct store *s;
    assert_ok(open_as("A", 5, &s));
    return s;
}

static const char *value_of(struct store *s, const char *key) {
    char *value;
    size_t n;
    assert_ok(store_find(s, key, pool, &value, &n));
    return value ? value : "(none)";
}

static long file_size(void) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (long)st.st_size;
}

static void write_file(const char *bytes, size_t n) {
    unlink(path); /* some file systems are slow to write into a file that was emptied */
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* A store with three records, and its bytes. */
static size_t sample(char **bytes) {
    size_t n;
    struct store *s = open_store();
    assert_ok(store_set(s, "first", "1", 1));
    assert_ok(store_set(s, "second", "22", 2));
    assert_ok(store_delete(s, "first", NULL));
    store_close(s);
    assert_ok(file_read(path, 1 << 20, pool, bytes, &n));
    return n;
}

static void is_its_owners_alone(void **state) {
    struct stat st;
    (void)state;
    store_close(open_store());
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* ---- cut and damaged ---- */

static void cut_anywhere(void **state) {
    char *bytes;
    size_t n = sample(&bytes), last = n - 16 - strlen("first"); /* where the last record begins */
    (void)state;
    for (size_t cut = 0; cut < n; cut++) {
        write_file(bytes, cut);
        struct store *s = open_store();
        const char *second = cut >= last ? "22" : "(none)";
        assert_string_equal(value_of(s, "second"), second);
        if (cut >= last) assert_string_equal(value_of(s, "first"), "1");
        assert_ok(store_set(s, "third", "3", 1)); /* in the place of what was cut */
        store_close(s);
        s = open_store();
        assert_string_equal(value_of(s, "third"), "3");
        assert_string_equal(value_of(s, "second"), second);
        store_close(s);
    }
}

static void cut_while_it_is_open(void **state) {
    struct store *s = open_store();
    int64_t sum;
    (void)state;
    assert_ok(store_set(s, "k", "v", 1));
    assert_int_equal(truncate(path, file_size() - 1), 0);
    assert_fails(ERR_DATA, store_add(s, "n", 1, &sum));
    assert_non_null(strstr(error_message(), path));
    store_close(s);
}

static void flipped_bits(void **state) {
    char *bytes;
    size_t n = sample(&bytes);
    (void)state;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        struct store *s;
        char *value;
        size_t length;
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(bytes, n);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        enum error err = open_as("A", 5, &s);
        if (!err) {
            err = store_find(s, "second", pool, &value, &length);
            store_close(s);
        }
        assert_int_equal(err, ERR_DATA);
        assert_non_null(strstr(error_message(), path));
        assert_int_equal(file_size(), n); /* nothing was thrown away */
    }
}

/* Checksums right, and yet nonsense. */
static void sealed_nonsense(void **state) {
    static const char *const keys[] = {"", "a b", "a\n"};
    struct store *s;
    (void)state;
    for (int i = 0; i < 3; i++) {
        char *value;
        size_t n;
        unlink(path);
        store_close(open_store());
        FILE *f = fopen(path, "r+");
        assert_non_null(f);
        off_t at = LOG_START;
        assert_ok(log_append(fileno(f), path, keys[i], (struct bytes){"v", 1}, &at));
        fclose(f);
        assert_ok(open_as("A", 5, &s));
        assert_fails(ERR_DATA, store_find(s, "k", pool, &value, &n));
        store_close(s);
    }
}

/* ---- what is there is no store ---- */

static void other_files(void **state) {
    static const char *const texts[] = {"x", "ENGSTOR2", "a file of somebody's\n", "ENGX"};
    struct store *s;
    char *text;
    size_t n;
    (void)state;
    for (int i = 0; i < 4; i++) {
        write_file(texts[i], strlen(texts[i]));
        assert_fails(ERR_DATA, open_as("A", 1, &s));
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
    assert_fails(ERR_CREATE, open_as("A", 1, &s));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(ERR_CREATE, open_as("A", 1, &s));
    unlink(path);
    snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(symlink(other, path), 0);
    assert_fails(ERR_CREATE, open_as("A", 1, &s));
    assert_non_null(strstr(error_message(), "symbolic link"));
    unlink(path);
    for (int i = 0; i < 4; i++)
        assert_true(store_open(&(struct store_params){.url = bad[i], .timeout = 1}, &s) != ERR_NONE);
    if (geteuid() == 0) return; /* to whom every folder is open */
    snprintf(other, sizeof other, "%s/closed", scratch_folder());
    assert_int_equal(mkdir(other, 0500), 0);
    snprintf(url, sizeof url, "file://%s/store", other);
    assert_fails(ERR_CREATE, open_as("A", 1, &s));
    assert_non_null(strstr(error_message(), other));
}

static void a_deleted_file(void **state) {
    struct store *s = open_store();
    int64_t sum;
    (void)state;
    assert_ok(store_add(s, "n", 1, &sum));
    unlink(path);
    assert_fails(ERR_CREATE, store_add(s, "n", 1, &sum));
    struct store *other = open_store(); /* another begins where it was */
    assert_fails(ERR_PEER, store_add(s, "n", 1, &sum));
    assert_ok(store_add(other, "n", 1, &sum));
    assert_int_equal(sum, 1);
    store_close(other);
    store_close(s);
}

/* A file that may not grow does not keep half a record. */
static void no_room(void **state) {
    struct store *s = open_store();
    struct rlimit old, small;
    char big[8192] = {0};
    (void)state;
    assert_ok(store_set(s, "k", "v", 1));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = (rlim_t)file_size() + 100;
    setrlimit(RLIMIT_FSIZE, &small);
    enum error err = store_set(s, "big", big, sizeof big);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(err, ERR_IO);
    assert_string_equal(value_of(s, "big"), "(none)");
    assert_string_equal(value_of(s, "k"), "v");
    assert_ok(store_set(s, "big", "fits", 4));
    assert_string_equal(value_of(s, "big"), "fits");
    store_close(s);
}

/* ---- other processes ---- */

/* Opens the store, says so, and works until it is killed. */
static int hold(const char *where, const char *run) {
    struct store *s;
    if (store_open(&(struct store_params){.url = where, .run = run, .timeout = 5}, &s) ||
        store_set(s, "held", run, strlen(run)))
        return 1;
    for (int64_t sum; store_add(s, "steps", 1, &sum) == ERR_NONE;) usleep(100);
    return 1;
}

static pid_t start_holder(char *run) {
    pid_t pid = -1;
    char *argv[] = {(char[]){"test"}, (char[]){"--hold"}, url, run, NULL}, *environment[] = {NULL};
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environment), 0);
    return pid;
}

static void end_holder(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void what_the_dead_leave(void **state) {
    char run[] = "A", *value;
    struct store *s, *b;
    size_t n;
    (void)state;
    for (unsigned i = 0; i < 5; i++) { /* killed at any moment, with the lock or without */
        pid_t pid = start_holder(run);
        s = open_store();
        assert_ok(store_get(s, "held", 5, pool, &value, &n));
        assert_fails(ERR_CREATE, open_as("B", 1, &b));
        usleep(3000 + 777 * i);
        end_holder(pid);
        assert_ok(store_set(s, "k", "v", 1));
        assert_ok(store_delete(s, "held", NULL));
        store_close(s);
    }
    assert_ok(open_as("B", 1, &b)); /* nobody uses it: begun afresh */
    assert_string_equal(value_of(b, "k"), "(none)");
    store_close(b);
}

/* Stopped with the lock in its hands or without: either way this one's time is limited. */
static void what_the_stopped_hold(void **state) {
    char run[] = "A", *value;
    size_t n;
    struct store *s = open_store();
    pid_t pid = start_holder(run);
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
    end_holder(pid);
    assert_ok(store_set(s, "k", "v", 1));
    store_close(s);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--hold")) return hold(argv[2], argv[3]);
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(is_its_owners_alone),
        TEST(cut_anywhere),
        TEST(cut_while_it_is_open),
        TEST(flipped_bits),
        TEST(sealed_nonsense),
        TEST(other_files),
        TEST(no_files),
        TEST(a_deleted_file),
        TEST(no_room),
        TEST(what_the_dead_leave),
        TEST(what_the_stopped_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
