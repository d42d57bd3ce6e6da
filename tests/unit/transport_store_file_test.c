/* The file by which members find their store, to which anything may have happened: cut, damaged, left behind by the dead,
 * or no store's at all. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "transport/store/store.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
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

static enum error open_at(const char *at, bool serve, double timeout, struct store **s) {
    return store_open(&(struct store_params){.url = at, .serve = serve, .timeout = timeout}, s);
}

static struct store *serve(void) {
    struct store *s;
    assert_ok(open_at(url, true, 5, &s));
    return s;
}

static struct store *join(void) {
    struct store *s;
    assert_ok(open_at(url, false, 5, &s));
    return s;
}

static void write_file(const char *bytes, size_t n) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void read_back(char **bytes, size_t *n) {
    assert_ok(file_read(path, 1 << 12, pool, bytes, n));
}

/* ---- whose it is ---- */

static void is_its_owners_alone(void **state) {
    struct stat st;
    (void)state;
    struct store *s = serve();
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    store_close(join());
    assert_int_equal(stat(path, &st), 0);
    store_close(s);
    assert_int_equal(stat(path, &st), -1); /* it goes with who serves */
    if (geteuid() != 0) return;
    s = serve();
    assert_int_equal(chown(path, 65534, 65534), 0); /* its writer could have sent us anywhere */
    struct store *other;
    assert_fails(ERR_CREATE, open_at(url, false, 1, &other));
    assert_fails(ERR_CREATE, open_at(url, true, 1, &other));
    assert_non_null(strstr(error_message(), "belongs to another user"));
    store_close(s);
    assert_int_equal(stat(path, &st), 0);
}

/* Two of one name: the file of the later one stays when the earlier one ends. */
static void a_file_goes_with_its_server(void **state) {
    struct stat st;
    (void)state;
    struct store *s = serve(), *later = serve();
    store_close(s);
    assert_int_equal(stat(path, &st), 0);
    store_close(join());
    store_close(later);
    assert_int_equal(stat(path, &st), -1);
}

/* ---- cut and damaged ---- */

static void cut_anywhere(void **state) {
    char *bytes, *now;
    size_t n, length;
    struct store *s = serve(), *other;
    (void)state;
    read_back(&bytes, &n);
    for (size_t cut = 1; cut < n; cut++) {
        write_file(bytes, cut);
        assert_fails(ERR_DATA, open_at(url, false, 1, &other));
        assert_non_null(strstr(error_message(), path));
        assert_fails(ERR_DATA, open_at(url, true, 1, &other));
        read_back(&now, &length);
        assert_true(length == cut && !memcmp(now, bytes, cut)); /* nothing was thrown away */
    }
    write_file(bytes, 0); /* as good as none */
    assert_fails(ERR_TIMEOUT, open_at(url, false, 0.05, &other));
    assert_non_null(strstr(error_message(), "nobody serves it"));
    write_file(bytes, n);
    store_close(join());
    store_close(s);
}

/* Whatever the line says then, nobody joins by it. */
static void flipped_bits(void **state) {
    char *bytes;
    size_t n;
    struct store *s = serve(), *other;
    (void)state;
    read_back(&bytes, &n);
    for (size_t bit = 0; bit < 8 * n; bit += 3) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(bytes, n);
        enum error err = open_at(url, false, 0.02, &other);
        assert_true(err == ERR_DATA || err == ERR_TIMEOUT);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    write_file(bytes, n);
    store_close(join());
    store_close(s);
}

/* ---- what is there is no store ---- */

static void other_files(void **state) {
    static const char *const texts[] = {"x",
                                        "engine-store-3",
                                        "a file of somebody's\n",
                                        "engine-store-3 1 \n",
                                        "engine-store-3 99999999 key\n",
                                        "engine-store-3 1 key and more\n"};
    struct store *s;
    char *text;
    size_t n;
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int serves = 0; serves < 2; serves++) {
            write_file(texts[i], strlen(texts[i]));
            assert_fails(ERR_DATA, open_at(url, serves, 1, &s));
            read_back(&text, &n);
            assert_string_equal(text, texts[i]); /* untouched */
        }
}

static void no_files(void **state) {
    static const char *const bad[] = {"file:///dev/null", "file:///proc/self/status", "file:///"};
    struct store *s;
    char other[600];
    (void)state;
    for (int serves = 0; serves < 2; serves++) {
        assert_int_equal(mkdir(path, 0700), 0);
        assert_fails(ERR_CREATE, open_at(url, serves, 1, &s));
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_fails(ERR_CREATE, open_at(url, serves, 1, &s));
        unlink(path);
        snprintf(other, sizeof other, "%s.other", path);
        assert_int_equal(symlink(other, path), 0);
        assert_fails(ERR_CREATE, open_at(url, serves, 1, &s));
        assert_non_null(strstr(error_message(), "symbolic link"));
        unlink(path);
        for (int i = 0; i < 3; i++) assert_true(open_at(bad[i], serves, 1, &s) != ERR_NONE);
    }
    assert_fails(ERR_CREATE, open_at("file:///proc/nowhere/store", true, 1, &s));
    if (geteuid() == 0) return; /* to whom every folder is open */
    snprintf(other, sizeof other, "%s/closed", scratch_folder());
    assert_int_equal(mkdir(other, 0500), 0);
    snprintf(url, sizeof url, "file://%s/store", other);
    assert_fails(ERR_CREATE, open_at(url, true, 1, &s));
    assert_non_null(strstr(error_message(), other));
}

/* Who has joined needs the file no longer. */
static void a_deleted_file(void **state) {
    (void)state;
    struct store *s = serve(), *member = join(), *other;
    char *value;
    size_t n;
    unlink(path);
    assert_ok(store_set(s, "k", "v", 1));
    assert_ok(store_get(member, "k", 1, pool, &value, &n));
    assert_fails(ERR_TIMEOUT, open_at(url, false, 0.05, &other));
    store_close(member);
    store_close(s);
}

/* ---- other processes ---- */

/* Joins, and says so in the store that comes. */
static int greet(const char *where) {
    struct store *s;
    if (open_at(where, false, 10, &s)) return 1;
    enum error err = store_set(s, "joined", "yes", 3);
    store_close(s);
    return err != ERR_NONE;
}

/* Serves until it is killed. */
static int hold(const char *where) {
    struct store *s;
    if (open_at(where, true, 5, &s) || store_set(s, "held", "yes", 3)) return 1;
    for (;;) pause();
}

static pid_t start(const char *as) {
    pid_t pid = -1;
    char how[16], *argv[] = {(char[]){"test"}, how, url, NULL};
    snprintf(how, sizeof how, "%s", as);
    assert_int_equal(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    return pid;
}

/* The file of one that was killed leads nowhere; whoever reads it for the first time waits for the next server,
 * which takes its place. */
static void what_the_dead_leave(void **state) {
    char *value;
    size_t n;
    int how;
    (void)state;
    pid_t server = start("--hold");
    struct store *member = join();
    assert_ok(store_get(member, "held", 5, pool, &value, &n));
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    assert_fails(ERR_PEER, store_get(member, "k", 1000, pool, &value, &n));
    pid_t early = start("--greet");
    usleep(100000);
    struct store *s = serve();
    assert_ok(store_get(s, "joined", 10, pool, &value, &n));
    assert_int_equal(waitpid(early, &how, 0), early);
    assert_int_equal(how, 0);
    assert_fails(ERR_PEER, store_get(member, "k", 5, pool, &value, &n)); /* it was of the other */
    assert_non_null(strstr(error_message(), "was lost: another one is served there now"));
    store_close(member);
    store_close(s);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--hold")) return hold(argv[2]);
    if (argc == 3 && !strcmp(argv[1], "--greet")) return greet(argv[2]);
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(is_its_owners_alone), TEST(a_file_goes_with_its_server),
        TEST(cut_anywhere),        TEST(flipped_bits),
        TEST(other_files),         TEST(no_files),
        TEST(a_deleted_file),      TEST(what_the_dead_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
