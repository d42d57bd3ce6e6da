/* A run has an id, a directory is one run's, and nothing in it is taken for another's: not by a
 * restart, not by a fresh start, not by a reader of its files. */
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "tests/harness/training.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;
static const char *const places[][2] = {
    {"mode=single", "devices=cpu:1"}, {"mode=dp", "devices=cpu:2"}, {"mode=ddp", "devices=cpu:2"}};
enum { PLACES = sizeof places / sizeof *places };

static void ends_with(int code) {
    if (!program_wait(&p, 120) || p.code != code) fail_msg("exit code %d, not %d:\n%s", p.code, code, p.err);
}

/* Nothing here is about being late, which a busy machine may make any rank. */
static void start(const char *dir, const char *const *more) {
    const char *all[16] = {"comm.timeout=60s"};
    for (int n = 1; n < 15 && *more; n++) all[n] = *more++;
    training_start(&p, dir, all);
}

/* What a command says, in a static buffer. */
static const char *shell(const char *form, const char *path) {
    static char text[1 << 16];
    char command[2048];
    snprintf(command, sizeof command, form, path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    pclose(f);
    return text;
}

static char *all_files(const char *dir) {
    return strdup(shell("find %s -printf '%%P %%s %%T@\n' | sort", scratch_path(dir)));
}

static bool is_there(const char *dir, const char *name) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", scratch_path(dir), name);
    return access(path, F_OK) == 0;
}

/* The id that stands behind the first of these words in a file of the run. */
static const char *id_in(const char *dir, const char *file) {
    static char ids[4][32];
    static int next;
    char path[700], *id = ids[next++ % 4], *text;
    size_t n;
    struct pool *pool;
    snprintf(path, sizeof path, "%s/%s", scratch_path(dir), file);
    assert_ok(pool_create(&pool));
    assert_ok(file_read(path, 1 << 24, pool, &text, &n));
    const char *at = strstr(text, "\"run_id\":\"");
    snprintf(id, 32, "%.16s", at ? at + 10 : "");
    pool_free(pool);
    return id;
}

/* ---- a fresh start ---- */

static void others_checkpoints_are_left_alone(void **state) {
    (void)state;
    for (int i = 0; i < PLACES; i++) {
        char dir[32], elsewhere[32];
        snprintf(dir, sizeof dir, "taken-%d", i);
        snprintf(elsewhere, sizeof elsewhere, "free-%d", i);
        const char *const first[] = {places[i][0], places[i][1], "checkpoint=5st", "train=35st", NULL};
        const char *const second[] = {places[i][0], places[i][1],         "checkpoint=5st",
                                      "train=60st", "optimizer.lr=0.001", NULL};
        const char *const resumed[] = {places[i][0], places[i][1], "checkpoint={every: 5st, resume: auto}",
                                       "train=40st", NULL};
        start(dir, first);
        ends_with(0);
        char *before = all_files(dir), id[32];
        snprintf(id, sizeof id, "%s", id_in(dir, "run.json"));
        assert_int_equal(strlen(id), 16);
        start(dir, second);
        ends_with(73);
        training_says(&p, "holds checkpoints of another run");
        training_says(&p, id);
        training_says(&p, "to continue it: engine run");
        char *after = all_files(dir);
        assert_string_equal(after, before);
        free(before);
        free(after);
        start(elsewhere, second);
        ends_with(0);
        assert_string_not_equal(id_in(elsewhere, "run.json"), id);
        start(dir, resumed);
        ends_with(0);
        training_says(&p, "resuming from");
        assert_string_equal(program_string(&p, "run_id"), id);
    }
}

/* One that has kept none is replaced, whatever it recorded. */
static void what_was_recorded_goes(void **state) {
    (void)state;
    const char *const first[] = {"checkpoint=off", "train=9st", "log.trace=2..3st",
                                 "log.sinks=[jsonl, csv, tensorboard]", NULL};
    const char *const second[] = {"checkpoint=off", "devices=cpu:2", "train=5st", NULL};
    static const char *const gone[] = {"trace.json", "trace", "tb", "metrics.csv", "rank2.log", "flight/rank2.bin"};
    start("again", first);
    ends_with(0);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (!is_there("again", gone[i])) fail_msg("there was no %s", gone[i]);
    program_run(&p, 30, "runs", "--note", "of the first", "--tag", "odd", scratch_path("again"), NULL);
    start("again", second);
    ends_with(0);
    assert_null(strstr(shell(ENGINE_BINARY_DIR "/engine runs %s/..", scratch_path("again")), "of the first"));
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        if (is_there("again", gone[i])) fail_msg("%s has stayed", gone[i]);
    const char *lines = shell("grep -c '\"ms\"\\|started' %s/metrics.jsonl", scratch_path("again"));
    assert_int_equal(atoi(lines), 5 + 1);
    assert_string_equal(id_in("again", "metrics.jsonl"), program_string(&p, "run_id"));
    assert_string_equal(id_in("again", "summary.json"), program_string(&p, "run_id"));
    const char *const endless[] = {"checkpoint=off", NULL};
    training_begin(&p, "again", endless);
    assert_false(is_there("again", "summary.json") || is_there("again", "validation.safetensors"));
    kill(p.pid, SIGKILL);
    assert_true(program_wait(&p, 10));
    training_gone();
}

/* ---- the same run ---- */

static void a_run_keeps_its_id(void **state) {
    (void)state;
    const char *const first[] = {"mode=single", "devices=cpu:1", "checkpoint=10st", NULL};
    start("kept", first);
    program_wait_text(&p, "step=25/", 60);
    kill(p.pid, SIGKILL);
    assert_true(program_wait(&p, 10));
    char id[32], resume[700];
    snprintf(id, sizeof id, "%s", id_in("kept", "run.json"));
    program_run(&p, 30, "runs", "--note", "killed once", "--tag", "odd", scratch_path("kept"), NULL);
    assert_int_equal(p.code, 0);
    program_run(&p, 60, "run", scratch_path("kept"), "--json", "--mode", "ddp", "--devices", "cpu:4", "--set",
                "train=60st", NULL);
    assert_int_equal(p.code, 0);
    assert_string_equal(program_string(&p, "run_id"), id);
    assert_string_equal(id_in("kept", "ckpt/step-000000060/manifest.json"), id);
    assert_non_null(
        strstr(shell(ENGINE_BINARY_DIR "/engine runs --tag odd %s/..", scratch_path("kept")), "killed once"));
    const char *all = shell("grep -o '\"run_id\":\"[0-9a-f]*' %s/metrics.jsonl | uniq | wc -l", scratch_path("kept"));
    assert_int_equal(atoi(all), 1);
    snprintf(resume, sizeof resume, "checkpoint={every: 10st, resume: '%s'}", scratch_path("kept"));
    const char *const branch[] = {"mode=single", "devices=cpu:1", resume, "train=70st", NULL};
    start("branch", branch); /* of another directory, so another run */
    ends_with(0);
    training_says(&p, "resuming from");
    assert_string_not_equal(program_string(&p, "run_id"), id);
    start("kept", branch); /* of its own newest checkpoint: the same */
    ends_with(0);
    assert_string_equal(program_string(&p, "run_id"), id);
}

static void checkpoints_without_an_id_go_on(void **state) {
    (void)state;
    const char *const first[] = {"checkpoint={every: 10st, keep: 1}", "train=40st", NULL};
    const char *const fresh[] = {"checkpoint=10st", "train=60st", NULL};
    start("old", first);
    ends_with(0);
    training_forget("old", "step-000000040", "\"run_id\"", "\"mode\""); /* as saved before runs had ids */
    assert_int_equal(unlink(scratch_path("old/run.json")), 0);
    start("old", fresh);
    ends_with(73);
    training_resume(&p, "old", 60);
    ends_with(0);
    assert_int_equal(strlen(program_string(&p, "run_id")), 16);
    assert_string_equal(id_in("old", "ckpt/step-000000060/manifest.json"), program_string(&p, "run_id"));
    char hash[80];
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    const char *const none[] = {NULL};
    assert_string_equal(training_hash(60, none), hash);
}

/* ---- restarts ---- */

/* Newer checkpoints of a stranger, in the very folder. */
static void restarts_take_their_own(void **state) {
    (void)state;
    enum { ROUNDS = 4, STEPS = 120 };
    const char *const other[] = {"checkpoint=97st", "train=97st", "optimizer.lr=0.001", NULL};
    const char *const mine[] = {"checkpoint={every: 10st, keep: 1}", "train=120st", "run.restarts=3",
                                "inject.slow={device: 0, by: 4}", NULL};
    const char *const none[] = {NULL};
    struct rng_key key = rng_key(3, RNG_TEST);
    char right[80], command[2048];
    snprintf(right, sizeof right, "%s", training_hash(STEPS, none));
    start("stranger", other);
    ends_with(0);
    for (int i = 0; i < ROUNDS; i++) {
        char dir[32], text[32];
        int rank = (int)rng_below(key, (uint64_t)i, 0, 4), step = 2 + (int)rng_below(key, (uint64_t)i, 1, 70);
        snprintf(dir, sizeof dir, "own-%d", i);
        snprintf(text, sizeof text, "step=%d/", step);
        start(dir, mine);
        program_wait_text(&p, "step=1/", 60);
        snprintf(command, sizeof command, "cp -r %s/ckpt/step-000000097 %s/ckpt/step-000000997",
                 scratch_path("stranger"), scratch_path(dir));
        assert_int_equal(system(command), 0);
        program_wait_text(&p, text, 60);
        kill(program_rank(&p, rank, 10), SIGKILL);
        ends_with(0);
        training_says(&p, "starting again");
        if (strcmp(program_string(&p, "weights_sha256"), right) != 0)
            fail_msg("rank %d killed at step %d: other weights\n%s", rank, step, p.err);
        assert_true(is_there(dir, "ckpt/step-000000997/model.safetensors"));
        assert_true(is_there(dir, "ckpt/step-000000120"));
        assert_false(is_there(dir, "ckpt/step-000000110"));
        training_gone();
    }
}

/* "b-wide" is another name than "b", and a report that is written into an older run makes it no newer. */
static void the_newest_run_is_of_this_name(void **state) {
    (void)state;
    static const char *const names[] = {"name=b", "name=b", "name=b-wide"};
    char place[600], made[3][700];
    const struct timespec later[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};
    snprintf(place, sizeof place, "log.dir=%s/[new]-$name-$time", scratch_folder());
    for (int i = 0; i < 3; i++) {
        program_train(&p, program_small, SETS("mode=single", "devices=cpu:1", "checkpoint=4st", place, names[i]));
        snprintf(made[i], sizeof made[i], "%s", program_string(&p, "run_dir"));
    }
    assert_int_equal(utimensat(AT_FDCWD, made[0], later, 0), 0);
    program_train(&p, program_small,
                  SETS("mode=single", "devices=cpu:1", "checkpoint.resume=auto", "train=14st", place, names[0]));
    assert_string_equal(program_string(&p, "run_dir"), made[1]);
}

/* ---- started again by others ---- */

/* The same command, whose first start is killed: the job's next start goes on with the run, but one
 * more of the same start is a stranger. */
static void starts_again(const char *dir, const char *count) {
    char id[32], hash[80];
    const char *const none[] = {NULL};
    const char *const more[] = {
        "mode=single", "devices=cpu:1", "checkpoint=10st", "train=200st", "inject.slow={device: 0, by: 2}", NULL};
    start(dir, more);
    program_wait_text(&p, "step=45/", 60);
    kill(p.pid, SIGKILL);
    assert_true(program_wait(&p, 10));
    snprintf(id, sizeof id, "%s", id_in(dir, "run.json"));
    start(dir, more);
    ends_with(73);
    setenv(count, "1", 1);
    start(dir, more);
    ends_with(0);
    training_says(&p, "resuming from");
    assert_string_equal(program_string(&p, "run_id"), id);
    snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
    start(dir, more);
    ends_with(73);
    unsetenv(count);
    assert_string_equal(training_hash(200, none), hash);
}

static void a_requeued_job_goes_on(void **state) {
    (void)state;
    setenv("SLURM_JOB_ID", "4711", 1);
    starts_again("slurm", "SLURM_RESTART_COUNT");
    setenv("SLURM_JOB_ID", "4712", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    const char *const more[] = {"mode=single", "devices=cpu:1", "train=250st", NULL};
    start("slurm", more); /* another job's */
    ends_with(73);
    unsetenv("SLURM_RESTART_COUNT");
    unsetenv("SLURM_JOB_ID");
}

static void torchrun_starts_again(void **state) {
    (void)state;
    setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    starts_again("torchrun", "TORCHELASTIC_RESTART_COUNT");
}

/* ---- its data ---- */

/* x, its square modulo 7, and a class; 'changed' has another first number, 'rows' may be fewer. */
static void write_rows(const char *name, int rows, int changed) {
    static char text[1 << 14];
    size_t n = 0;
    for (int i = 0; i < rows; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d,%d,%d\n", i == changed ? 1000 : i, i * i % 7, i % 2);
    save_text(scratch_path(name), text);
}

static void refused(const char *what) {
    training_resume(&p, "data", 60);
    ends_with(78);
    training_says(&p, what);
    training_says(&p, "checkpoint.data: any");
}

static void other_data_are_refused(void **state) {
    (void)state;
    enum { ROWS = 500, HELD = 100 };
    char data[700];
    snprintf(data, sizeof data, "data={set: csv, train: %s, val: 100, split: end}", scratch_path("rows.csv"));
    const char *const first[] = {"mode=single", "devices=cpu:1", data, "checkpoint=10st", "train=45st", NULL};
    write_rows("rows.csv", ROWS, -1);
    start("data", first);
    ends_with(0);
    write_rows("rows.csv", ROWS, 17);
    refused("the digest of the training data was");
    write_rows("rows.csv", ROWS, ROWS - 1);
    refused("the digest of the validation data was");
    write_rows("rows.csv", ROWS - 1, -1);
    refused("the number of training samples was '400' when it was saved and is '399' now");
    write_rows("rows.csv", 250, -1);
    program_run(&p, 60, "run", scratch_path("data"), "--json", "--set", "train=60st", "--set", "checkpoint.data=any",
                NULL);
    if (p.code != 0) fail_msg("exit code %d: %s", p.code, p.err);
    training_says(&p, "going on, as checkpoint.data is any");
    write_rows("rows.csv", ROWS, -1);
    program_run(&p, 60, "run", scratch_path("data"), "--set", "train=70st", "--set", "checkpoint.data=same", NULL);
    assert_int_equal(p.code, 78);
    training_says(&p, "the number of training samples was '150' when it was saved");
}

/* Of data that the engine draws the section 'data' says all. */
static void other_drawn_data_are_refused(void **state) {
    (void)state;
    const char *dir = scratch_path("drawn");
    const char *const first[] = {"mode=ddp", "devices=cpu:2", "checkpoint=10st", "train=20st", NULL};
    start("drawn", first);
    ends_with(0);
    program_run(&p, 60, "run", dir, "--set", "data.train=1000", "--set", "train=30st", NULL);
    assert_int_equal(p.code, 78);
    training_says(&p, "data was '");
    training_says(&p, "checkpoint.data: any");
    const char *once = strstr(p.err, "cannot resume from");
    assert_null(strstr(once + 1, "cannot resume from")); /* ranks that all find it, and the one that starts them */
    program_run(&p, 60, "run", dir, "--set", "data.train=1000", "--set", "seed=5", "--set", "train=30st", NULL);
    assert_int_equal(p.code, 78);
    training_says(&p, "seed was '0'"); /* the data are not all that differs */
    assert_null(strstr(p.err, "checkpoint.data"));
    program_run(&p, 60, "run", dir, "--set", "data={set: spirals}", "--set", "checkpoint.data=any", "--set",
                "train=30st", NULL);
    assert_int_equal(p.code, 78);
    training_says(&p, "samples of data 'spirals' are 2 floats, and the network was trained on 1x28x28 bytes");
    program_run(&p, 60, "run", dir, "--json", "--set", "data.train=1000", "--set", "checkpoint.data=any", "--set",
                "train=4ep", NULL);
    if (p.code != 0) fail_msg("exit code %d: %s", p.code, p.err);
    training_says(&p, "going on, as checkpoint.data is any");
    assert_int_equal((int)program_number(&p, "steps"), 4 * 16); /* of 64 samples each */
}

/* Where a rank is a process of its own, its record has the words of that rank. */
static void a_failed_start_says_why(void **state) {
    (void)state;
    for (int i = 0; i < PLACES; i++) {
        char dir[16], path[700], *text;
        struct pool *pool;
        size_t n;
        const char *const more[] = {places[i][0], places[i][1], "checkpoint=2st", "train=4st", NULL};
        snprintf(dir, sizeof dir, "failed-%d", i);
        assert_int_equal(mkdir(scratch_path(dir), 0777), 0);
        snprintf(path, sizeof path, "%s/ckpt", scratch_path(dir));
        save_text(path, "a file, where a folder is to be\n");
        start(dir, more);
        ends_with(73);
        snprintf(path, sizeof path, "%s/run.json", scratch_path(dir));
        assert_ok(pool_create(&pool));
        assert_ok(file_read(path, 4096, pool, &text, &n));
        if (!strstr(text, "\"exit\":73") || !strstr(text, "cannot make the folder"))
            fail_msg("%s: %s", places[i][0], text);
        pool_free(pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_start_says_why),        cmocka_unit_test(others_checkpoints_are_left_alone),
        cmocka_unit_test(what_was_recorded_goes),         cmocka_unit_test(a_run_keeps_its_id),
        cmocka_unit_test(the_newest_run_is_of_this_name), cmocka_unit_test(checkpoints_without_an_id_go_on),
        cmocka_unit_test(restarts_take_their_own),        cmocka_unit_test(a_requeued_job_goes_on),
        cmocka_unit_test(torchrun_starts_again),          cmocka_unit_test(other_data_are_refused),
        cmocka_unit_test(other_drawn_data_are_refused),
    };
    return cmocka_run_group_tests_name("runs", tests, NULL, NULL);
}
