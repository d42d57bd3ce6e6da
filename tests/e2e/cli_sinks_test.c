/* What a run leaves for others to read, also when it was killed on its way: metrics.csv row by row,
 * and TensorBoard's events by TensorBoard's own reader, where there is a Python that has it
 * (ENGINE_TENSORBOARD_PYTHON names one). */
#include "tests/harness/program.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program p, python;

static const char *const common[] = {"run",   "--json",
                                     "--set", "threads=1",
                                     "--set", "model={zoo: mlp, hidden: [64]}",
                                     "--set", "data={set: digits, train: 2000, val: 50}",
                                     "--set", "batch={size: 64, shards: 2}",
                                     "--set", "optimizer={name: sgd, clip: 1}",
                                     "--set", "eval=20st",
                                     "--set", "checkpoint=50st",
                                     "--set", "log.every=1st"};
enum { COMMON = sizeof common / sizeof *common };

static void start(const char *dir, const char *mode, const char *length, const char *sinks) {
    static char set_dir[600], set_mode[40], set_length[40], set_sinks[80];
    const char *words[COMMON + 12];
    memcpy(words, common, sizeof common);
    snprintf(set_dir, sizeof set_dir, "log.dir=%s", scratch_path(dir));
    snprintf(set_mode, sizeof set_mode, "mode=%s", mode);
    snprintf(set_length, sizeof set_length, "train=%s", length);
    snprintf(set_sinks, sizeof set_sinks, "log.sinks=%s", sinks);
    const char *more[] = {"--set",    set_dir, "--set",   set_mode,    "--set",
                          set_length, "--set", set_sinks, "--devices", strcmp(mode, "single") ? "cpu:2" : "cpu:1",
                          NULL};
    memcpy(words + COMMON, more, sizeof more);
    program_start(&p, words);
}

static void ends(void) {
    if (!program_wait(&p, 120)) fail_msg("hung:\n%s", p.err);
    if (p.code != 0) fail_msg("exit code %d:\n%s", p.code, p.err);
}

/* Each step once and in order, validation every 20 steps. */
static void check_rows(const char *dir, int64_t steps) {
    char path[700], line[1024];
    snprintf(path, sizeof path, "%s/metrics.csv", scratch_path(dir));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(strncmp(line, "step,epoch,loss,", 16), 0);
    for (int64_t step = 1; step <= steps; step++) {
        assert_non_null(fgets(line, sizeof line, f));
        assert_int_equal(atoll(line), step);
        bool measured = !strstr(line, ",,,,,\r\n");
        if (measured != (step % 20 == 0 || step == steps)) fail_msg("%s", line);
    }
    assert_null(fgets(line, sizeof line, f));
    fclose(f);
}

/* The interpreter; NULL: none that has TensorBoard. */
static const char *tensorboard(void) {
    const char *named = getenv("ENGINE_TENSORBOARD_PYTHON");
    const char *program = named ? named : "python3";
    const char *const words[] = {"env", program, "-c", "import tensorboard", NULL};
    program_spawn(&python, words);
    return program_wait(&python, 60) && python.code == 0 ? program : NULL;
}

static void ask_tensorboard(const char *dir) {
    static const char script[] = ENGINE_SOURCE_DIR "/tests/reference/check_events.py";
    const char *program = tensorboard();
    if (!program) return;
    program_spawn(&python, (const char *const[]){program, script, scratch_path(dir), NULL});
    if (!program_wait(&python, 120) || python.code != 0) fail_msg("%s%s", python.out, python.err);
    print_message("%s: %s", dir, python.out);
}

static void undisturbed(void **state) {
    static const char *const modes[] = {"single", "dp", "ddp"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        char hash[100];
        start(modes[i], modes[i], "130st", "[jsonl, csv, tensorboard]");
        ends();
        snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
        check_rows(modes[i], 130);
        ask_tensorboard(modes[i]);
        char plain[32];
        snprintf(plain, sizeof plain, "%s-plain", modes[i]);
        start(plain, modes[i], "130st", "jsonl");
        ends();
        assert_string_equal(hash, program_string(&p, "weights_sha256"));
    }
}

/* Twice killed without warning: no step is missing, none is there twice. */
static void killed(void **state) {
    (void)state;
    start("killed", "ddp", "100000st", "[jsonl, csv, tensorboard]");
    for (int i = 0; i < 2; i++) {
        program_wait_text(&p, i ? "step=250/" : "step=120/", 60);
        assert_int_equal(kill(program_rank(&p, 0, 10), SIGKILL), 0);
        assert_true(program_wait(&p, 60));
        assert_int_not_equal(p.code, 0);
        const char *length = i ? "train=430st" : "train=100000st";
        program_start(&p, (const char *const[]){"run", scratch_path("killed"), "--json", "--set", length, NULL});
    }
    ends();
    check_rows("killed", 430);
    ask_tensorboard("killed");
}

static void has_a_reader(void **state) {
    (void)state;
    if (tensorboard()) return;
    print_message("no tensorboard in %s: its reader is not asked\n",
                  getenv("ENGINE_TENSORBOARD_PYTHON") ? getenv("ENGINE_TENSORBOARD_PYTHON") : "python3");
    skip();
}

static void refuses(void **state) {
    (void)state;
    start("unnamed", "single", "1st", "csv"); /* jsonl needs no name */
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 0);
    assert_int_equal(access(scratch_path("unnamed/metrics.csv"), F_OK), 0);
    assert_int_equal(access(scratch_path("unnamed/metrics.jsonl"), F_OK), 0);
    start("refused", "single", "1st", "[jsonl, csv, jsonl]");
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "'log.sinks' names jsonl twice"));
    start("refused", "single", "1st", "[jsonl, tensorbord]");
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "did you mean 'tensorboard'?"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(has_a_reader), cmocka_unit_test(refuses),
                                       cmocka_unit_test(undisturbed), cmocka_unit_test(killed)};
    return cmocka_run_group_tests_name("sinks", tests, NULL, NULL);
}
