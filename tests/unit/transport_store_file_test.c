/* A store that is found by a file, to which anything may have happened: another run's, a dead server's, no store at
 * all. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "transport/store/store.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static enum error serve(struct store **s) {
    return store_open(&(struct store_params){.url = url, .serve = true, .timeout = 5}, s);
}

static enum error find(const char *token, double timeout, struct store **s) {
    return store_open(&(struct store_params){.url = url, .token = token, .timeout = timeout}, s);
}

static void write_file(const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void is_its_owners_alone(void **state) {
    struct stat st;
    struct store *s, *other;
    (void)state;
    assert_ok(serve(&s));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_ok(find(NULL, 5, &other)); /* the secret is in it */
    assert_true(strlen(store_key(other)) == 32 && !strcmp(store_key(other), store_key(s)));
    store_close(other);
    assert_fails(ERR_CONFIG, find("another", 5, &other));
    assert_non_null(strstr(error_message(), "refused the token"));
    store_close(s);
    assert_int_equal(stat(path, &st), -1); /* it goes with its server */
}

/* The secret that a user chose is not in it. */
static void a_token_is_not_written(void **state) {
    struct store *s, *other;
    char *text;
    size_t n;
    (void)state;
    assert_ok(store_open(&(struct store_params){.url = url, .serve = true, .token = "right", .timeout = 5}, &s));
    assert_ok(file_read(path, 1000, pool, &text, &n));
    assert_null(strstr(text, "right"));
    assert_fails(ERR_CONFIG, find(NULL, 5, &other));
    assert_ok(find("right", 5, &other));
    store_close(other);
    store_close(s);
}

static void one_server_at_a_time(void **state) {
    struct store *s, *other;
    (void)state;
    assert_ok(serve(&s));
    assert_fails(ERR_CREATE, serve(&other));
    assert_non_null(strstr(error_message(), "in use"));
    assert_ok(find(NULL, 5, &other)); /* the first is as it was */
    store_close(other);
    unlink(path);
    assert_ok(serve(&other)); /* in another file of that name, which the first leaves alone */
    store_close(s);
    assert_true(file_exists(path));
    store_close(other);
}

static void nobody_serves(void **state) {
    static const char *const texts[] = {"", "x", "engine store 1 00112233445566778899aabbccddeeff\n", "engine store x"};
    struct store *s;
    (void)state;
    assert_fails(ERR_TIMEOUT, find(NULL, 0.1, &s));
    assert_non_null(strstr(error_message(), path));
    assert_non_null(strstr(error_message(), "No such file"));
    for (int i = 0; i < 4; i++) {
        write_file(texts[i]);
        assert_fails(ERR_TIMEOUT, find(NULL, 0.1, &s));
        assert_non_null(strstr(error_message(), "no server holds it"));
    }
}

/* What is there is no store: it stays as it is. */
static void other_files(void **state) {
    static const char *const texts[] = {"x", "engine shop 12", "a file of somebody's\n"};
    struct store *s;
    char *text;
    size_t n;
    (void)state;
    for (int i = 0; i < 3; i++) {
        write_file(texts[i]);
        assert_fails(ERR_DATA, serve(&s));
        assert_ok(file_read(path, 1000, pool, &text, &n));
        assert_string_equal(text, texts[i]);
    }
}

static void no_files(void **state) {
    static const char *const bad[] = {"file:///proc/nowhere/store", "file:///dev/null", "file:///proc/self/status",
                                      "file:///"};
    struct store *s;
    char other[600];
    (void)state;
    assert_int_equal(mkdir(path, 0700), 0);
    assert_fails(ERR_CREATE, serve(&s));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(ERR_CREATE, serve(&s));
    unlink(path);
    snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(symlink(other, path), 0);
    assert_fails(ERR_CREATE, serve(&s));
    assert_non_null(strstr(error_message(), "symbolic link"));
    assert_fails(ERR_TIMEOUT, find(NULL, 0.1, &s));
    assert_non_null(strstr(error_message(), "symbolic link"));
    unlink(path);
    for (int i = 0; i < 4; i++)
        assert_true(store_open(&(struct store_params){.url = bad[i], .serve = true, .timeout = 1}, &s) != ERR_NONE);
    if (geteuid() == 0) return; /* to whom every folder is open */
    snprintf(other, sizeof other, "%s/closed", scratch_folder());
    assert_int_equal(mkdir(other, 0500), 0);
    snprintf(url, sizeof url, "file://%s/store", other);
    assert_fails(ERR_CREATE, serve(&s));
    assert_non_null(strstr(error_message(), other));
}

/* ---- other processes ---- */

/* Serves until it is killed. */
static int hold(const char *where) {
    struct store *s;
    if (store_open(&(struct store_params){.url = where, .serve = true, .timeout = 5}, &s) != ERR_NONE) return 1;
    for (;;) pause();
}

/* The file of a server that was killed stays; the next one takes it, and those who come find that one. */
static void what_the_dead_leave(void **state) {
    char *argv[] = {(char[]){"test"}, (char[]){"--hold"}, url, NULL}, *environment[] = {NULL};
    struct store *s, *other;
    pid_t pid = -1;
    (void)state;
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environment), 0);
    assert_ok(find(NULL, 20, &s));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(file_exists(path));
    assert_fails(ERR_TIMEOUT, find(NULL, 0.1, &other));
    assert_ok(serve(&other));
    assert_fails(ERR_PEER, store_set(s, "k", "v", 1)); /* it is another store */
    store_close(s);
    assert_ok(find(NULL, 5, &s));
    assert_ok(store_set(s, "k", "v", 1));
    store_close(s);
    store_close(other);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--hold")) return hold(argv[2]);
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(is_its_owners_alone),  TEST(a_token_is_not_written),
        TEST(one_server_at_a_time), TEST(nobody_serves),
        TEST(other_files),          TEST(no_files),
        TEST(what_the_dead_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
