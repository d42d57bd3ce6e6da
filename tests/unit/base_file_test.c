/* Files: whole reads with limits, surprises refused, replacement that leaves the old or the new. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

static struct pool *pool;

static int setup(void **state) {
    (void)state;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static void assert_holds(const char *path, const char *expected) {
    char *text = NULL;
    size_t n = 0;
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
}

static int count_in(const char *folder) {
    int n = 0;
    DIR *dir = opendir(scratch_path(folder));
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void test_replace_and_read(void **state) {
    (void)state;
    const char *path = scratch_path("replaced");
    assert_ok(file_replace(path, "old", 3));
    assert_holds(path, "old");
    assert_ok(file_replace(path, "newer", 5));
    assert_holds(path, "newer");
    assert_ok(file_replace(path, "", 0));
    assert_holds(path, "");
}

/* What a killed writer left does not stand in the way, a link in its place is not followed, and what a user has there
 * is his. */
static void test_replace_over_leftovers(void **state) {
    (void)state;
    const char *victim = scratch_path("victim"), *path = scratch_path("left");
    char left[64];
    snprintf(left, sizeof left, "left.%ld-0.tmp", (long)getpid());
    assert_ok(file_replace(victim, "safe", 4));
    assert_ok(file_replace(scratch_path("left.tmp"), "mine", 4));
    assert_int_equal(symlink(victim, scratch_path(left)), 0);
    assert_ok(file_replace(path, "data", 4));
    assert_holds(path, "data");
    assert_holds(victim, "safe");
    assert_holds(scratch_path("left.tmp"), "mine");
    assert_true(file_exists(scratch_path(left)));
}

static void test_replace_fails_cleanly(void **state) {
    (void)state;
    assert_fails(ERR_CREATE, file_replace(scratch_path("missing/file"), "x", 1));
    assert_ok(file_make_folders(scratch_path("clean/is-a-folder")));
    assert_fails(ERR_IO, file_replace(scratch_path("clean/is-a-folder"), "x", 1)); /* rename of a file over a folder */
    assert_int_equal(count_in("clean"), 1);
}

static mode_t kind_of(const char *path) {
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & S_IFMT;
}

/* A link stays, and the file that it leads to is replaced, or made. */
static void test_replace_through_links(void **state) {
    (void)state;
    const char *target = scratch_path("links/there/target"), *first = scratch_path("links/first"),
               *none = scratch_path("links/none");
    assert_ok(file_make_folders(scratch_path("links/there")));
    assert_ok(file_replace(target, "old", 3));
    assert_int_equal(symlink("there/second", first), 0);
    assert_int_equal(symlink("target", scratch_path("links/there/second")), 0);
    assert_ok(file_replace(first, "newer", 5));
    assert_int_equal(kind_of(first), S_IFLNK);
    assert_holds(target, "newer");
    assert_int_equal(count_in("links/there"), 2);
    assert_int_equal(symlink("there/made", none), 0);
    assert_ok(file_replace(none, "made", 4));
    assert_int_equal(kind_of(none), S_IFLNK);
    assert_holds(scratch_path("links/there/made"), "made");
}

/* What is no file is written into, and is there afterwards. */
static void test_replace_no_file(void **state) {
    (void)state;
    const char *fifo = scratch_path("special/fifo"), *device = scratch_path("special/null");
    char back[8] = {0};
    assert_ok(file_make_folders(scratch_path("special")));
    assert_int_equal(mkfifo(fifo, 0600), 0);
    int fd = open(fifo, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_ok(file_replace(fifo, "through", 7));
    assert_int_equal(read(fd, back, sizeof back), 7);
    assert_string_equal(back, "through");
    close(fd);
    assert_int_equal(kind_of(fifo), S_IFIFO);
    assert_int_equal(count_in("special"), 1);
    if (mknod(device, S_IFCHR | 0600, makedev(1, 3)) != 0) return; /* only root may */
    enum error err = file_replace(device, "x", 1);
    assert_true(err == ERR_NONE || err == ERR_CREATE); /* a file system may forbid devices */
    assert_int_equal(kind_of(device), S_IFCHR);
}

static void test_read_surprises(void **state) {
    (void)state;
    char *text;
    size_t n;
    const char *path = scratch_path("ten");
    assert_ok(file_replace(path, "0123456789", 10));
    assert_ok(file_read(path, 10, pool, &text, &n));
    assert_fails(ERR_DATA, file_read(path, 9, pool, &text, &n));
    assert_fails(ERR_INPUT, file_read(scratch_path("nowhere"), 9, pool, &text, &n));
    assert_fails(ERR_INPUT, file_read(scratch_path("ten/below"), 9, pool, &text, &n));
    assert_fails(ERR_DATA, file_read(scratch_folder(), 9, pool, &text, &n));
    assert_int_equal(mkfifo(scratch_path("fifo"), 0600), 0);
    assert_fails(ERR_DATA, file_read(scratch_path("fifo"), 9, pool, &text, &n)); /* and returns at once */
    assert_fails(ERR_DATA, file_read("/dev/zero", 9, pool, &text, &n));
    int fd = open(scratch_path("sparse"), O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0);
    close(fd);
    assert_fails(ERR_DATA, file_read(scratch_path("sparse"), 1 << 20, pool, &text, &n));
}

static void test_write_and_pread(void **state) {
    (void)state;
    char back[6] = {0};
    int fd = open(scratch_path("io"), O_CREAT | O_RDWR, 0600);
    assert_true(fd >= 0);
    assert_ok(file_write_all(fd, "0123456789", 10, "io"));
    assert_ok(file_pread_all(fd, back, 5, 5, "io"));
    assert_string_equal(back, "56789");
    assert_fails(ERR_DATA, file_pread_all(fd, back, 5, 6, "io"));
    assert_non_null(strstr(error_message(), "ends at byte 10"));
    close(fd);
    assert_fails(ERR_IO, file_write_all(fd, "x", 1, "io"));
    assert_fails(ERR_IO, file_pread_all(fd, back, 5, 0, "io"));
    int full = open("/dev/full", O_WRONLY);
    if (full >= 0) {
        assert_fails(ERR_IO, file_write_all(full, "x", 1, "/dev/full"));
        close(full);
    }
}

static void test_folders(void **state) {
    (void)state;
    assert_ok(file_make_folders(scratch_path("a//b/c/")));
    assert_ok(file_make_folders(scratch_path("a/b/c")));
    assert_true(file_exists(scratch_path("a/b/c")));
    assert_ok(file_sync_folder(scratch_path("a/b")));
    assert_fails(ERR_IO, file_sync_folder(scratch_path("a/none")));
    assert_ok(file_replace(scratch_path("a/file"), "x", 1));
    assert_fails(ERR_CREATE, file_make_folders(scratch_path("a/file")));
    assert_fails(ERR_CREATE, file_make_folders(scratch_path("a/file/below")));
}

static void test_remove_tree(void **state) {
    (void)state;
    assert_ok(file_make_folders(scratch_path("tree/x/y")));
    assert_ok(file_make_folders(scratch_path("outside")));
    assert_ok(file_replace(scratch_path("outside/kept"), "k", 1));
    assert_ok(file_replace(scratch_path("tree/x/f"), "f", 1));
    assert_int_equal(symlink(scratch_path("outside"), scratch_path("tree/link")), 0);
    assert_ok(file_remove_tree(scratch_path("tree")));
    assert_false(file_exists(scratch_path("tree")));
    assert_holds(scratch_path("outside/kept"), "k");
    assert_ok(file_remove_tree(scratch_path("tree")));
}

/* Those whose process is gone are swept, of one name; what was kept is not. */
static void test_temporary(void **state) {
    (void)state;
    char *a, *b, *c;
    assert_ok(file_make_folders(scratch_path("temporary")));
    assert_int_equal(setenv("TMPDIR", scratch_path("temporary"), 1), 0);
    assert_ok(file_make_temporary("test", pool, &a));
    assert_ok(file_make_temporary("test", pool, &b));
    assert_true(file_is_folder(a) && file_is_folder(b) && strcmp(a, b) != 0);
    assert_non_null(strstr(a, "/temporary/engine-test-"));
    pid_t child = fork(); /* is gone before it removes its own */
    if (child == 0) {
        _exit(file_make_temporary("test", pool, &c) == ERR_NONE && file_make_temporary("other", pool, &c) == ERR_NONE
                  ? 0
                  : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(count_in("temporary"), 4);
    file_keep_temporary(pool, &b);
    assert_true(file_is_folder(b));
    assert_ok(file_make_temporary("test", pool, &c));
    assert_int_equal(count_in("temporary"), 4); /* with the new one, without the abandoned one */
    assert_true(file_is_folder(a) && file_is_folder(b) && file_is_folder(c));
    assert_int_equal(setenv("TMPDIR", scratch_path("missing"), 1), 0);
    assert_fails(ERR_CREATE, file_make_temporary("test", pool, &a));
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

/* A library's is asked for in the same way; here the code is in the program. */
static void code_lies_in_a_file(void **state) {
    struct stat code, program;
    (void)state;
    assert_int_equal(stat(file_of_code(), &code), 0);
    assert_int_equal(stat("/proc/self/exe", &program), 0);
    assert_true(code.st_ino == program.st_ino && code.st_dev == program.st_dev);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_replace_and_read),      T(test_replace_over_leftovers),
        T(test_replace_fails_cleanly), T(test_replace_through_links),
        T(test_replace_no_file),       T(test_read_surprises),
        T(test_write_and_pread),       T(test_folders),
        T(test_remove_tree),           T(test_temporary),
        T(code_lies_in_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
