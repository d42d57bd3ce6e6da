/* Samples that are drawn by their weights: the same bits in every mode, on any number of devices and after any
 * interruption, validation as ever, and refusals by name. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static struct program control, other;
static char lines[4000];

struct place {
    const char *mode, *devices, *more;
};
static const struct place places[] = {
    {"mode=single", "devices=cpu:1", "seed=0"},        {"mode=single", "devices=cpu:1", "threads=2"},
    {"mode=dp", "devices=cpu:3", "dp.server=sharded"}, {"mode=ddp", "devices=cpu:4", "optimizer.shard=true"},
    {"mode=ps", "devices=cpu:2", "ps.servers=1"},      {"mode=fsdp", "devices=cpu:3", "data.workers=3"},
    {"mode=pipeline", "devices=cpu:2", "seed=0"},
};
enum { PLACES = sizeof places / sizeof *places };

static const char *place_dir(const char *what) {
    static char dir[700];
    static int serial;
    snprintf(dir, sizeof dir, "log.dir=%s-%d", scratch_path(what), serial++);
    return dir;
}

static void run_at(struct program *p, const struct place *at, const char *sampling, const char *dir, const char *more) {
    program_train(p,
                  SETS("model=mlp", "data={set: digits, train: 300, val: 70}", "batch={size: 64, shards: 8}",
                       "train=2ep", "optimizer=sgd", sampling, at->mode, at->devices, at->more),
                  SETS(dir, more));
}

static void put_weights(int number_of_one) {
    FILE *f = fopen(scratch_path("weights.txt"), "w");
    assert_non_null(f);
    for (int i = 0; i < 300; i++) fprintf(f, "%d\n", i == 17 ? number_of_one : i % 7);
    assert_int_equal(fclose(f), 0);
}

static void same_bits_everywhere(void **state) {
    (void)state;
    char weights[900];
    put_weights(3);
    snprintf(weights, sizeof weights, "data={set: digits, train: 300, val: 70, sampling: weights, weights: '%s'}",
             scratch_path("weights.txt"));
    const char *const samplings[] = {"data.sampling=balanced", weights};
    for (int s = 0; s < 2; s++) {
        run_at(&control, &places[0], "data.sampling=once", place_dir("once"), "checkpoint=off");
        snprintf(lines, sizeof lines, "%s", program_string(&control, "weights_sha256"));
        run_at(&control, &places[0], samplings[s], place_dir("same"), "checkpoint=off");
        assert_string_not_equal(program_string(&control, "weights_sha256"), lines);
        assert_true(program_number(&control, "val.samples") == 70);
        assert_non_null(strstr(control.err, "drawn with replacement"));
        for (int i = 1; i < PLACES; i++) {
            char resume[800];
            const char *first = place_dir("first");
            run_at(&other, &places[i], samplings[s], place_dir("same"), "checkpoint=off");
            program_assert_same(&control, &other, places[i].mode);
            snprintf(resume, sizeof resume, "checkpoint={resume: '%s'}", first + strlen("log.dir="));
            run_at(&other, &places[i], samplings[s], first, "train=7st"); /* an epoch has 5 */
            run_at(&other, &places[i % (PLACES - 1) + 1], samplings[s], place_dir("second"), resume);
            program_assert_same(&control, &other, "resumed");
        }
    }
}

static void assert_no_resume(const char *sampling, const char *resume, const char *words) {
    program_run(&other, 60, "run", "--set", "model=mlp", "--set", "data={set: digits, train: 300, val: 70}", "--set",
                "batch={size: 64, shards: 8}", "--set", "optimizer=sgd", "--set", "train=4st", "--set", "mode=single",
                "--set", "devices=cpu:1", "--set", sampling, "--set", resume, "--set", place_dir("after"), NULL);
    if (other.code != 78 || !strstr(other.err, words)) fail_msg("%s: %d, %s", words, other.code, other.err);
}

/* What decides which samples come may not change on the way: how they are drawn, and one weight of them. The report says
 * it, too. */
static void a_resume_compares(void **state) {
    (void)state;
    char resume[800], weights[900], page[700], text[1 << 14];
    const char *first = place_dir("before");
    run_at(&control, &places[0], "data.sampling=balanced", first, "train=2st");
    snprintf(resume, sizeof resume, "checkpoint.resume=%s", first + strlen("log.dir="));
    assert_no_resume("seed=0", resume, "sampling: balanced");
    snprintf(page, sizeof page, "%s", scratch_path("page.md"));
    program_run(&other, 60, "report", program_string(&control, "run_dir"), "-o", page, NULL);
    assert_int_equal(other.code, 0);
    FILE *f = fopen(page, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    assert_non_null(strstr(text, "sampling balanced"));
    snprintf(weights, sizeof weights, "data={set: digits, train: 300, val: 70, sampling: weights, weights: '%s'}",
             scratch_path("weights.txt"));
    put_weights(3);
    first = place_dir("weighted");
    run_at(&control, &places[0], weights, first, "train=2st");
    snprintf(resume, sizeof resume, "checkpoint.resume=%s", first + strlen("log.dir="));
    put_weights(4);
    assert_no_resume(weights, resume, "the digest of the samples' weights");
}

static void what_makes_no_sense_is_refused(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"data={set: digits, sampling: balanced, order: file}", "have no order of the file"},
        {"data={set: digits, weights: w.txt}", "is for data.sampling: weights"},
        {"data={set: digits, sampling: weights}", "needs the weights"},
        {"data={set: digits, sampling: balance}", "balanced"},
        {"data={set: grammar, sampling: balanced}", "needs the class of each sample"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        program_run(&other, 60, "run", "--set", bad[i][0], "--set", "train=2st", "--set", place_dir("refused"), NULL);
        if (other.code != 78 || !strstr(other.err, bad[i][1])) fail_msg("%s: %d, %s", bad[i][0], other.code, other.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(a_resume_compares),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
