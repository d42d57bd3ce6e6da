/* A meeting believes nothing of a descriptor that it is handed, and leaves nothing behind. */
#include "tests/harness/harness.h"

#include "transport/launch/launch.h"
#include "transport/link/board.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int open_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void sizes_are_checked(void **state) {
    struct meeting *m;
    (void)state;
    assert_fails(ERR_CONFIG, meeting_create(0, &m));
    assert_fails(ERR_CONFIG, meeting_create(RANKS_MOST + 1, &m));
    assert_fails(ERR_CONFIG, meeting_create_shared(-1, &m));
    for (int n = 1; n <= 64; n *= 4) {
        assert_ok(meeting_create_shared(n, &m));
        meeting_free(m);
    }
}

static void a_joined_meeting_is_the_same(void **state) {
    struct meeting *a, *b;
    int files = open_files();
    (void)state;
    assert_ok(meeting_create_shared(3, &a));
    assert_true(fcntl(meeting_fd(a), F_GETFD) & FD_CLOEXEC);
    assert_ok(meeting_join(meeting_fd(a), 3, &b));
    atomic_store(&a->board->member[2].pid, 17);
    assert_int_equal(atomic_load(&b->board->member[2].pid), 17);
    assert_int_not_equal(ftruncate(meeting_fd(a), 0), 0); /* would kill whoever reads it */

    assert_ok(meeting_extend(a, a->board->end + 100000)); /* grows for both */
    assert_ok(meeting_map(a, a->board->end + 100000));
    assert_ok(meeting_map(b, b->board->end + 100000));
    a->base[a->board->end + 99999] = 5;
    assert_int_equal(b->base[b->board->end + 99999], 5);
    assert_fails(ERR_MEMORY, meeting_extend(a, (size_t)1 << 60));
    assert_fails(ERR_MISMATCH, meeting_join(meeting_fd(a), 4, &b));
    meeting_free(a);
    meeting_free(b);
    assert_int_equal(open_files(), files);
}

static void threads_have_no_descriptor(void **state) {
    struct meeting *m;
    (void)state;
    assert_ok(meeting_create(2, &m));
    assert_int_equal(meeting_fd(m), -1);
    meeting_free(m);
    meeting_free(NULL);
}

static void strange_descriptors(void **state) {
    struct meeting *m, *real;
    int pipes[2], fd = memfd_create("test", 0), null = open("/dev/null", O_RDWR);
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    assert_fails(ERR_USAGE, meeting_join(-1, 2, &m));
    assert_fails(ERR_USAGE, meeting_join(987, 2, &m));
    assert_fails(ERR_DATA, meeting_join(pipes[0], 2, &m));
    assert_fails(ERR_DATA, meeting_join(null, 2, &m));
    assert_fails(ERR_DATA, meeting_join(fd, 2, &m)); /* empty */
    assert_int_equal(ftruncate(fd, 64 << 20), 0);
    assert_fails(ERR_DATA, meeting_join(fd, 2, &m)); /* zeros */

    assert_ok(meeting_create_shared(2, &real)); /* right, but for one number */
    struct board b = *real->board;
    b.pipes += 64;
    assert_int_equal(pwrite(fd, &b, sizeof b, 0), sizeof b);
    assert_fails(ERR_DATA, meeting_join(fd, 2, &m));
    meeting_free(real);
    close(fd);
    close(null);
    close(pipes[0]);
    close(pipes[1]);
}

/* Where addresses are limited the board takes half of them, and says so when they are too few. */
static void limited_addresses(void **state) {
    (void)state;
#ifdef ENGINE_SANITIZED
    skip(); /* the sanitizers need all addresses */
#endif
    struct rlimit before, few;
    struct meeting *m;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    few = before;
    few.rlim_cur = 256 << 20;
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    enum error err = meeting_create_shared(2, &m), extended = err, mapped = err;
    if (!err) {
        extended = meeting_extend(m, 200 << 20);
        mapped = meeting_map(m, 200 << 20);
    }
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    if (err) fail_msg("%s", error_message());
    assert_int_equal(m->reserved, 128 << 20);
    assert_int_equal(extended, ERR_MEMORY);
    assert_int_equal(mapped, ERR_MEMORY);
    assert_non_null(strstr(error_message(), "ulimit -v"));
    meeting_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked),          cmocka_unit_test(a_joined_meeting_is_the_same),
        cmocka_unit_test(threads_have_no_descriptor), cmocka_unit_test(strange_descriptors),
        cmocka_unit_test(limited_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
