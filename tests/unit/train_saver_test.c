/* Saving checkpoints: beside training, pruned with care, and whatever fails at whatever call, the
 * last good one stays. */
#include "tests/unit/toy_run.h"

#include "engine/base/log.h"
#include "engine/save/run_record.h"
#include "tests/fault/faults.c"

#include <dirent.h>
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;
static struct pool *pool;
static char ckpt[300];

static int setup(void **state) {
    (void)state;
    snprintf(ckpt, sizeof ckpt, "%s", scratch_path("saver-run/ckpt"));
    if (file_remove_tree(scratch_path("saver-run")) != ERR_NONE) return -1;
    return pool_create(&pool) == ERR_NONE ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

static int count_names(const char *prefix) {
    int n = 0;
    DIR *d = opendir(ckpt);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += !strncmp(e->d_name, prefix, strlen(prefix));
    closedir(d);
    return n;
}

static bool has_step(int64_t step) {
    return file_exists(pool_printf(pool, "%s/step-%09d", ckpt, (int)step));
}

static void assert_loads(int64_t step, int salt) {
    struct toy t;
    toy_init(&t, 999, 9);
    assert_ok(checkpoint_load(ckpt, &t.view));
    if (!toy_is(&t, step, salt)) fail_msg("the checkpoint of step %d is not what was saved", (int)step);
}

static void test_saves(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 1, 1);
    assert_ok(saver_open(ckpt, 0, &t.view, &s));
    for (int step = 1; step <= 5; step++) {
        toy_fill(&t, step, step);
        assert_ok(saver_save(s, false));
        toy_fill(&t, 77, 77); /* training goes on at once: what is saved is what was there at the call */
    }
    assert_ok(saver_wait(s));
    assert_ok(saver_wait(s));
    for (int step = 1; step <= 5; step++) {
        struct toy back;
        toy_init(&back, 99, 9);
        assert_ok(checkpoint_load(pool_printf(pool, "%s/step-%09d", ckpt, step), &back.view));
        assert_true(toy_is(&back, step, step));
    }
    saver_close(s);
    saver_close(NULL);
    assert_int_equal(count_names(".tmp-"), 0);
}

static void test_close_waits(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 4, 4);
    assert_ok(saver_open(ckpt, 1, &t.view, &s));
    assert_ok(saver_save(s, false));
    saver_close(s);
    assert_loads(4, 4);
}

static void test_keep(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 1, 1);
    assert_ok(saver_open(ckpt, 2, &t.view, &s));
    for (int step = 1; step <= 6; step++) {
        toy_fill(&t, step, step);
        assert_ok(saver_save(s, step == 1 || step == 3));
    }
    assert_ok(saver_wait(s));
    assert_int_equal(count_names("step-"), 3);
    assert_true(has_step(3) && has_step(5) && has_step(6)); /* 3: the newest best, 1 no longer */
    toy_fill(&t, 7, 7);
    assert_ok(saver_save(s, true));
    assert_ok(saver_wait(s));
    assert_int_equal(count_names("step-"), 2);
    assert_true(has_step(6) && has_step(7));
    saver_close(s);
}

/* A run that began again from an early step: what was just saved stays, though later steps lie
 * there. */
static void test_keep_spares_the_new(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_save(ckpt, 100, 1, false);
    toy_init(&t, 50, 2);
    assert_ok(saver_open(ckpt, 1, &t.view, &s));
    assert_ok(saver_save(s, false));
    assert_ok(saver_wait(s));
    saver_close(s);
    assert_int_equal(count_names("step-"), 1);
    assert_loads(50, 2);
}

/* A broken folder is neither counted among those to keep nor deleted. */
static void test_keep_ignores_broken(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_save(ckpt, 1, 1, false);
    toy_save(ckpt, 2, 2, false);
    assert_int_equal(unlink(pool_printf(pool, "%s/step-000000002/manifest.json", ckpt)), 0);
    toy_init(&t, 3, 3);
    assert_ok(saver_open(ckpt, 2, &t.view, &s));
    assert_ok(saver_save(s, false));
    assert_ok(saver_wait(s));
    saver_close(s);
    assert_true(has_step(1) && has_step(2) && has_step(3));
}

/* Those of another run are neither counted, deleted nor overwritten; those that do not say whose
 * they are were there when the run went on. */
static void test_keep_spares_another_run(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    char *found;
    const char *const ids[] = {"00000000000000aa", "00000000000000bb"};
    toy_save(ckpt, 1, 1, false);
    for (int k = 0; k < 2; k++) {
        toy_init(&t, 10 * (k + 1), k);
        t.view.run_id = ids[k];
        assert_ok(saver_open(ckpt, 1, &t.view, &s));
        assert_ok(saver_save(s, false));
        assert_ok(saver_wait(s));
        if (k == 0) saver_close(s);
    }
    assert_true(!has_step(1) && has_step(10) && has_step(20));
    toy_fill(&t, 10, 5);
    assert_ok(saver_save(s, false));
    assert_fails(ERR_CREATE, saver_wait(s));
    saver_close(s);
    assert_ok(checkpoint_find(ckpt, ids[0], pool, &found));
    assert_non_null(strstr(found, "step-000000010"));
    assert_ok(checkpoint_find(ckpt, ids[1], pool, &found));
    assert_non_null(strstr(found, "step-000000020"));
    assert_fails(ERR_INPUT, checkpoint_find(ckpt, "00000000000000cc", pool, &found));
    assert_loads(20, 1);
}

/* A folder's own run is the one that run.json beside it names, whoever asks, and however. */
static void test_folder_knows_its_run(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    char *found;
    const char *const ids[] = {"00000000000000aa", "00000000000000bb"};
    const char *dir = pool_printf(pool, "%s/..", ckpt);
    for (int k = 0; k < 2; k++) {
        toy_init(&t, 10 * (k + 1), k);
        t.view.run_id = ids[k];
        assert_ok(saver_open(ckpt, 1, &t.view, &s));
        assert_ok(saver_save(s, true));
        assert_ok(saver_wait(s));
        saver_close(s);
    }
    assert_loads(20, 1);
    assert_ok(run_record_save(dir, &(struct run_record){ids[0], "", 0}, pool));
    assert_string_equal(run_record_read(dir, pool).run_id, ids[0]);
    assert_loads(10, 0);
    const char *const asked[] = {ckpt, dir};
    for (int i = 0; i < 2; i++) {
        assert_ok(checkpoint_find(asked[i], NULL, pool, &found));
        assert_non_null(strstr(found, "step-000000010"));
        assert_ok(checkpoint_find_best(asked[i], NULL, pool, &found));
        assert_non_null(strstr(found, "step-000000010"));
        assert_non_null(strstr(checkpoint_newest_step(asked[i], NULL, pool), "step-000000010"));
        assert_non_null(strstr(checkpoint_newest_step(asked[i], RUN_ANY, pool), "step-000000020"));
    }
    assert_ok(run_record_save(dir, &(struct run_record){"00000000000000cc", "", 0}, pool));
    assert_null(checkpoint_newest_step(dir, NULL, pool));
    toy_init(&t, 999, 9);
    assert_fails(ERR_INPUT, checkpoint_load(ckpt, &t.view));
    assert_non_null(strstr(error_message(), "another run's"));
}

static void test_same_step_again(void **state) {
    (void)state;
    toy_save(ckpt, 5, 1, false);
    toy_save(ckpt, 5, 2, true);
    assert_loads(5, 2);
    assert_int_equal(count_names("step-"), 1);
    assert_int_equal(count_names(".tmp-"), 0);
}

static void test_sweep(void **state) {
    (void)state;
    assert_ok(file_make_folders(pool_printf(pool, "%s/.tmp-step-000000009.1-0badcafe/sub", ckpt)));
    char *alive = pool_printf(pool, "%s/.tmp-step-000000009.2-0badcafe", ckpt);
    assert_ok(file_make_folders(alive));
    int fd = open(alive, O_RDONLY | O_DIRECTORY);
    assert_true(fd >= 0);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    checkpoint_sweep(ckpt);
    assert_int_equal(count_names(".tmp-"), 1);
    assert_true(file_exists(alive));
    close(fd);
    checkpoint_sweep(ckpt);
    assert_int_equal(count_names(".tmp-"), 0);
    checkpoint_sweep(scratch_path("nowhere"));
}

static void test_others_see_a_saver(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 1, 1);
    assert_false(checkpoint_has_saver(ckpt));
    assert_ok(saver_open(ckpt, 1, &t.view, &s));
    assert_true(checkpoint_has_saver(ckpt));
    assert_false(checkpoint_is_written(ckpt));
    char *writes = pool_printf(pool, "%s/.tmp-step-000000009.2-0badcafe", ckpt);
    assert_ok(file_make_folders(writes));
    int fd = open(writes, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    assert_true(checkpoint_is_written(ckpt));
    close(fd);
    assert_false(checkpoint_is_written(ckpt));
    saver_close(s);
    assert_false(checkpoint_has_saver(ckpt));
    assert_true(file_exists(writes)); /* to look takes nothing away */
}

/* A step that was saved after a loss is loaded like any other, and told from those that were due. */
static void test_rescued(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 1, 1);
    assert_int_equal(checkpoint_newest_due(ckpt, RUN_ANY, pool), -1);
    assert_ok(saver_open(ckpt, 0, &t.view, &s));
    for (int step = 1; step <= 3; step++) {
        toy_fill(&t, step, step);
        t.view.counters->rescued = step == 3;
        assert_ok(saver_save(s, false));
        assert_ok(saver_wait(s));
    }
    saver_close(s);
    assert_int_equal(checkpoint_newest_due(ckpt, RUN_ANY, pool), 2);
    for (int step = 2; step <= 3; step++) {
        toy_init(&t, 99, 9);
        assert_ok(checkpoint_load(pool_printf(pool, "%s/step-%09d", ckpt, step), &t.view));
        assert_int_equal(t.view.counters->rescued, step == 3);
        assert_int_equal(t.view.counters->devices, t.view.devices);
        assert_true(toy_is(&t, step, step));
    }
}

static void test_open_fails(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 1, 1);
    assert_ok(file_replace(scratch_path("a-file"), "x", 1));
    assert_fails(ERR_CREATE, saver_open(scratch_path("a-file"), 1, &t.view, &s));
    assert_fails(ERR_CREATE, saver_open(scratch_path("a-file/ckpt"), 1, &t.view, &s));
}

static void test_save_allocates_nothing(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 1, 1);
    assert_ok(saver_open(ckpt, 0, &t.view, &s));
    assert_ok(file_remove_tree(ckpt)); /* so that the thread fails before it allocates much */
    count_allocations_begin();
    assert_ok(saver_save(s, false));
    assert_fails(ERR_CREATE, saver_wait(s));
    assert_between(count_allocations_end(), 0, 12);
    saver_close(s);
}

/* ---- failures are told as the header says ---- */

static void test_three_failures_end_it(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_save(ckpt, 1, 1, false);
    toy_init(&t, 2, 2);
    assert_ok(saver_open(ckpt, 0, &t.view, &s));
    fault_arm(ckpt, 1, FAULT_ENOSPC, true);
    for (int i = 0; i < 3; i++) assert_ok(saver_save(s, false));
    assert_fails(ERR_CREATE, saver_save(s, false));
    assert_non_null(strstr(error_message(), "No space left"));
    assert_non_null(strstr(error_message(), "step 2"));
    fault_disarm();
    saver_close(s);
    assert_loads(1, 1);
}

static void test_one_failure_is_survived(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 2, 2);
    assert_ok(saver_open(ckpt, 0, &t.view, &s));
    for (int i = 0; i < 4; i++) { /* never three in a row */
        fault_arm(ckpt, 1, FAULT_EIO, true);
        assert_ok(saver_save(s, false));
        if (i % 2) assert_ok(saver_save(s, false));
        assert_fails(ERR_CREATE, saver_wait(s));
        assert_ok(saver_wait(s)); /* told once */
        fault_disarm();
        assert_ok(saver_save(s, false));
        assert_ok(saver_wait(s));
    }
    saver_close(s);
    assert_loads(2, 2);
}

/* ---- every call fails once, or from then on ---- */

struct sweep {
    enum fault_mode mode;
    bool for_good;
    int64_t step; /* saved over step 1: 2, or 1 again */
};

/* Saves with the n-th call failing, and looks at what is left; false when there were fewer calls
 * than n. */
static bool fails_at(const struct sweep *w, long n) {
    struct toy t, back;
    struct saver *s;
    assert_ok(file_remove_tree(ckpt));
    toy_save(ckpt, 1, 1, false);
    toy_init(&t, w->step, 2);
    assert_ok(saver_open(ckpt, 1, &t.view, &s));
    fault_arm(ckpt, n, w->mode, w->for_good);
    assert_ok(saver_save(s, false));
    enum error err = saver_wait(s);
    long calls = fault_disarm();
    toy_init(&back, 99, 9);
    assert_ok(checkpoint_load(ckpt, &back.view));
    bool is_new = toy_is(&back, w->step, 2), is_old = toy_is(&back, 1, 1);
    if (!is_new && !is_old) fail_msg("mode %d, call %ld: neither old nor new", w->mode, n);
    if (err == ERR_NONE && !is_new) fail_msg("mode %d, call %ld: told saved, and was not", w->mode, n);
    if (err == ERR_NONE && (fault.unsynced_files || fault.unsynced_renames)) fail_msg("call %ld: not synced", n);
    if (count_names(".tmp-")) fail_msg("mode %d, call %ld: a temporary folder is left", w->mode, n);
    toy_fill(&t, 3, 3);
    assert_ok(saver_save(s, false));
    assert_ok(saver_wait(s));
    saver_close(s);
    assert_loads(3, 3);
    return calls >= n;
}

static void test_fault_sweep(void **state) {
    (void)state;
    static const enum fault_mode modes[] = {FAULT_EIO, FAULT_ENOSPC, FAULT_SHORT, FAULT_EINTR};
    log_set_level(LOG_ERROR);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        for (int variant = 0; variant < 4; variant++) {
            struct sweep w = {
                .mode = modes[i], .for_good = variant & 1 && modes[i] < FAULT_SHORT, .step = 1 + variant / 2};
            long n = 1;
            while (fails_at(&w, n)) n++;
            assert_between(n, 20, 200);
        }
    log_set_level(LOG_INFO);
}

/* The starter of many runs syncs for all of them. */
static void test_starter_syncs(void **state) {
    (void)state;
    struct toy t;
    struct saver *s;
    toy_init(&t, 1, 1);
    assert_ok(saver_open(ckpt, 1, &t.view, &s));
    for (int later = 1; later >= 0; later--) {
        if (later) setenv(SYNC_VARIABLE, "later", 1);
        fault_arm(ckpt, 0, FAULT_NONE, false);
        assert_ok(saver_save(s, false));
        assert_ok(saver_wait(s));
        fault_disarm();
        unsetenv(SYNC_VARIABLE);
        assert_int_equal(fault.unsynced_files, later ? 4 : 0);
        assert_int_equal(fault.unsynced_renames > 0, later);
        assert_loads(1, 1);
    }
    saver_close(s);
    assert_ok(file_sync_system(ckpt));
    assert_fails(ERR_IO, file_sync_system(scratch_path("none")));
}

/* One file: a failed call is an error and leaves no file; a failed close too, though all seems
 * written. */
static void test_file_faults(void **state) {
    (void)state;
    static float w[4];
    const struct st_tensor t = {"w", "F32", 1, {4}, w, sizeof w, 0, 0, false};
    const char *path = scratch_path("one.safetensors"), *folder = scratch_path("one"),
               *replaced = scratch_path("one/replaced.json");
    long calls, n = 0;
    do {
        n++;
        uint32_t crc;
        int64_t bytes;
        fault_arm(path, n, FAULT_EIO, false);
        enum error err = st_write(path, &t, 1, NULL, &crc, &bytes);
        calls = fault_disarm();
        assert_int_equal(err != ERR_NONE, n <= calls);
        assert_int_equal(file_exists(path), n > calls);
    } while (n <= calls);
    assert_between(n, 6, 12);
    for (int put = 0; put < 2; put++) {
        n = 0;
        do {
            n++;
            assert_ok(file_make_folders(folder));
            fault_arm(replaced, n, FAULT_EIO, false);
            enum error err = put ? file_place(replaced, "{}", 2) : file_replace(replaced, "{}", 2);
            calls = fault_disarm();
            assert_int_equal(err != ERR_NONE, n <= calls);
            assert_int_equal(rmdir(folder), err == ERR_NONE ? -1 : 0); /* nothing is left of it */
        } while (n <= calls);
        assert_between(n, 5, 12);
        assert_ok(file_remove_tree(folder));
    }
}

/* ---- killed at every call ---- */

enum { CHILD_DONE = 0, CHILD_FAILED = 9 };

/* The child: saves step 2 over step 1 with keep 1, and dies at the n-th call. */
static int save_and_die(const char *folder, long n) {
    struct toy t;
    struct saver *s;
    toy_init(&t, 2, 2);
    if (saver_open(folder, 1, &t.view, &s) != ERR_NONE) return CHILD_FAILED;
    fault_arm(folder, n, FAULT_KILL, false);
    enum error err = saver_save(s, false);
    if (err == ERR_NONE) err = saver_wait(s);
    fault_disarm();
    saver_close(s);
    return err == ERR_NONE ? CHILD_DONE : CHILD_FAILED;
}

/* True when the child was killed. */
static bool child_is_killed(long n) {
    pid_t pid;
    int status;
    char number[24], self[] = "/proc/self/exe", option[] = "--save-and-die";
    snprintf(number, sizeof number, "%ld", n);
    char *argv[] = {self, option, ckpt, number, NULL};
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, argv, environ), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status)) assert_int_equal(WTERMSIG(status), SIGKILL);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), CHILD_DONE);
    return WIFSIGNALED(status);
}

static void test_kill_sweep(void **state) {
    (void)state;
    bool seen_old = false, seen_new = false, killed = true;
    long n = 1;
    for (; killed; n++) {
        struct toy back;
        assert_ok(file_remove_tree(ckpt));
        toy_save(ckpt, 1, 1, false);
        killed = child_is_killed(n);
        toy_init(&back, 99, 9);
        assert_ok(checkpoint_load(ckpt, &back.view));
        bool is_old = toy_is(&back, 1, 1);
        if (!is_old && !toy_is(&back, 2, 2)) fail_msg("killed at call %ld: neither old nor new", n);
        seen_old |= is_old;
        seen_new |= !is_old;
        checkpoint_sweep(ckpt);
        assert_int_equal(count_names(".tmp-"), 0);
        assert_true(has_step(1) || has_step(2));
    }
    assert_true(seen_old && seen_new);
    assert_between(n, 20, 200);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--save-and-die")) return save_and_die(argv[2], strtol(argv[3], NULL, 10));
    if (access("/dev/shm", W_OK) == 0) (void)setenv("TMPDIR", "/dev/shm", 0); /* thousands of saves: spare the disk */
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_saves),
        T(test_close_waits),
        T(test_keep),
        T(test_keep_spares_the_new),
        T(test_keep_ignores_broken),
        T(test_keep_spares_another_run),
        T(test_folder_knows_its_run),
        T(test_same_step_again),
        T(test_sweep),
        T(test_others_see_a_saver),
        T(test_rescued),
        T(test_open_fails),
        T(test_save_allocates_nothing),
        T(test_three_failures_end_it),
        T(test_one_failure_is_survived),
        T(test_starter_syncs),
        T(test_file_faults),
        T(test_fault_sweep),
        T(test_kill_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
