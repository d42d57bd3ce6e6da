/* The gradient-noise scale: of a linear model by hand, step by step, and as the closed form foretells it for many steps; the
 * same bits in every mode and on any number of devices; what reports say of the batch; and refusals by name. */
#include "tests/harness/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, BATCH = 32, SHARDS = 8, INPUTS = 2, PARAMETERS = INPUTS + 1 };
static struct program control, other;
static double row[ROWS][INPUTS], target[ROWS];
static const float weights[PARAMETERS] = {0.5f, -0.25f, 0.125f};

static const char *place_dir(const char *what) {
    static char dir[700];
    static int serial;
    snprintf(dir, sizeof dir, "log.dir=%s-%d", scratch_path(what), serial++);
    return dir;
}

/* A table of rows that have weights 1 and 3, and first weights, as safetensors has them. */
static int setup(void **state) {
    (void)state;
    static const char head[] = "{\"fc.weight\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]},"
                               "\"fc.bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}} ";
    FILE *f = fopen(scratch_path("rows.csv"), "w");
    assert_non_null(f);
    fputs("a,b,often,y\n", f);
    for (int i = 0; i < ROWS; i++) {
        row[i][0] = (i * 37 % 64) / 16.0 - 2, row[i][1] = (i * 23 % 64) / 32.0 - 1;
        target[i] = 2 * row[i][0] - row[i][1] + (i * 29 % 64) / 8.0;
        fprintf(f, "%.17g,%.17g,%d,%.17g\n", row[i][0], row[i][1], i % 2 ? 3 : 1, target[i]);
    }
    assert_int_equal(fclose(f), 0);
    f = fopen(scratch_path("first.safetensors"), "wb");
    assert_non_null(f);
    const uint64_t n = sizeof head - 1;
    assert_int_equal(fwrite(&n, 8, 1, f), 1);
    assert_int_equal(fwrite(head, n, 1, f), 1);
    assert_int_equal(fwrite(weights, sizeof weights, 1, f), 1);
    return fclose(f);
}

/* The gradient of a row's squared error. */
static void gradient_of(int i, double out[PARAMETERS]) {
    double error = (double)weights[0] * row[i][0] + (double)weights[1] * row[i][1] + (double)weights[2] - target[i];
    for (int k = 0; k < INPUTS; k++) out[k] = 2 * error * row[i][k];
    out[INPUTS] = 2 * error;
}

static double squared(const double *v) {
    double sum = 0;
    for (int k = 0; k < PARAMETERS; k++) sum += v[k] * v[k];
    return sum;
}

static void train_linear(struct program *p, const char *data, const char *length, const char *dir, const char *every) {
    char text[1400], model[900];
    snprintf(text, sizeof text, "data={set: csv, train: '%s', val: '%s', normalize: off, normalize_target: false, %s}",
             scratch_path("rows.csv"), scratch_path("rows.csv"), data);
    snprintf(model, sizeof model, "model={layers: [{linear: {units: 1, name: fc}}], init: '%s'}",
             scratch_path("first.safetensors"));
    program_train(p,
                  SETS(text, model, "loss=mse", "batch={size: 32, shards: 8}", "optimizer={name: sgd, lr: 1e-30}",
                       "mode=single", "devices=cpu:1"),
                  SETS(length, dir, every, "checkpoint=off"));
}

/* The two numbers of a step's line. */
static void read_step(const char *dir, int step, double out[2]) {
    char path[900], line[2000], begin[32];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir + strlen("log.dir="));
    snprintf(begin, sizeof begin, "{\"step\":%d,", step);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    out[0] = out[1] = (double)NAN;
    while (fgets(line, sizeof line, f)) {
        const char *noise = strstr(line, "\"gradient_noise\":"), *signal = strstr(line, "\"gradient_signal\":");
        if (strncmp(line, begin, strlen(begin)) != 0 || !noise || !signal) continue;
        out[0] = strtod(noise + strlen("\"gradient_noise\":"), NULL);
        out[1] = strtod(signal + strlen("\"gradient_signal\":"), NULL);
    }
    fclose(f);
}

/* In the order of the file it is known which rows each shard has. */
static void steps_are_as_computed_by_hand(void **state) {
    (void)state;
    const char *dir = place_dir("by-hand");
    train_linear(&control, "order: file, without: often", "train=5st", dir, "train.noise_scale=1st");
    for (int step = 1; step <= 5; step++) {
        double all[PARAMETERS] = {0}, small = 0, got[2];
        for (int v = 0; v < SHARDS; v++) {
            double mean[PARAMETERS] = {0}, one[PARAMETERS];
            for (int i = 0; i < BATCH / SHARDS; i++) {
                gradient_of((step - 1) % 2 * BATCH + i * SHARDS + v, one);
                for (int k = 0; k < PARAMETERS; k++) mean[k] += one[k] / (BATCH / SHARDS);
            }
            for (int k = 0; k < PARAMETERS; k++) all[k] += mean[k] / SHARDS;
            small += squared(mean) / SHARDS;
        }
        /* equations A.2 of the paper, of batches b = 4 and B = 32 */
        double b = BATCH / SHARDS, signal = (BATCH * squared(all) - b * small) / (BATCH - b),
               noise = (small - squared(all)) / (1 / b - 1.0 / BATCH);
        read_step(dir, step, got);
        if (fabs(got[0] - noise) > 1e-5 * noise || fabs(got[1] - signal) > 1e-5 * fabs(noise))
            fail_msg("step %d: %g and %g, not %g and %g", step, got[0], got[1], noise, signal);
    }
}

/* Of rows that are drawn one by one, the mean gradient and its variance are known, whatever the batch. */
static void the_mean_is_as_foretold(void **state) {
    (void)state;
    double mean[PARAMETERS] = {0}, squares = 0, all = 0;
    for (int i = 0; i < ROWS; i++) {
        double one[PARAMETERS], often = i % 2 ? 3 : 1;
        gradient_of(i, one);
        for (int k = 0; k < PARAMETERS; k++) mean[k] += often * one[k];
        squares += often * squared(one);
        all += often;
    }
    for (int k = 0; k < PARAMETERS; k++) mean[k] /= all;
    const double signal = squared(mean), noise = squares / all - signal, scale = noise / signal;
    train_linear(&control, "sampling: weights, weight: often", "train=2000st", place_dir("many"),
                 "train.noise_scale=2st");
    assert_true(program_number(&control, "noise_scale.measurements") == 500); /* the later half of 1000 */
    assert_true(program_number(&control, "noise_scale.batch") == BATCH);
    const double got[] = {program_number(&control, "noise_scale.noise"), program_number(&control, "noise_scale.signal"),
                          program_number(&control, "noise_scale.samples")},
                 want[] = {noise, signal, scale};
    for (int i = 0; i < 3; i++)
        if (fabs(got[i] / want[i] - 1) > 0.05) fail_msg("number %d is %g, not %g", i, got[i], want[i]);
    const double of = got[2] / BATCH; /* steps are in proportion to 1 + scale / batch, samples to 1 + batch / scale */
    assert_true(fabs(program_number(&control, "noise_scale.twice_the_batch.steps") - (1 + of / 2) / (1 + of)) < 1e-6);
    assert_true(fabs(program_number(&control, "noise_scale.twice_the_batch.samples") - (1 + 2 / of) / (1 + 1 / of)) <
                1e-6);
}

static void the_report_says_it_in_a_sentence(void **state) {
    (void)state;
    char page[800], words[300], text[1 << 16];
    const char *dir = place_dir("told");
    train_linear(&control, "without: often", "train=40st", dir, "train.noise_scale=1st");
    snprintf(page, sizeof page, "%s", scratch_path("page.md"));
    program_run(&other, 60, "report", dir + strlen("log.dir="), "-o", page, NULL);
    assert_int_equal(other.code, 0);
    FILE *f = fopen(page, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    snprintf(
        words, sizeof words,
        "The gradient-noise scale was %.3g samples: by it, a batch of 64 in place of 32 would come to the same loss "
        "in %.0f %% fewer steps, for %.0f %% more samples.",
        program_number(&control, "noise_scale.samples"),
        100 * (1 - program_number(&control, "noise_scale.twice_the_batch.steps")),
        100 * (program_number(&control, "noise_scale.twice_the_batch.samples") - 1));
    if (!strstr(text, words)) fail_msg("no '%s'", words);
}

struct place {
    const char *mode, *devices, *more;
};

static void train_at(struct program *p, const struct place *at, const char *kind, const char *dir, const char *more) {
    program_train(p,
                  SETS("model=resnet20", "data={set: shapes, train: 100, val: 32}", "batch={size: 32, shards: 8}",
                       "optimizer={name: sgd, lr: 0.05, freeze: \"layer2.0.*\"}", "train=5st", "model.width=4",
                       "train.noise_scale=2st", kind),
                  SETS(at->mode, at->devices, at->more, dir, more, "ddp.bucket={first: 1KB, cap: 20KB}"));
}

static void same_bits_everywhere(void **state) {
    (void)state;
    static const struct place places[] = {
        {"mode=single", "devices=cpu:1", "seed=0"},
        {"mode=single", "devices=cpu:1", "threads=2"},
        {"mode=dp", "devices=cpu:3", "dp.server=shared"},
        {"mode=dp", "devices=cpu:4", "dp.server=sharded"},
        {"mode=dp", "devices=cpu:2", "dp.server=dedicated"},
        {"mode=ddp", "devices=cpu:8", "seed=0"},
        {"mode=ddp", "devices=cpu:2", "optimizer.shard=true"},
        {"mode=ps", "devices=cpu:2", "ps.servers=1"},
        {"mode=fsdp", "devices=cpu:3", "seed=0"},
        {"mode=pipeline", "devices=cpu:2", "seed=0"},
        {"mode=pipeline", "devices=cpu:4", "pipeline.stages=2"},
    };
    static const char *const kinds[] = {"seed=0", "sync_batchnorm=true", "batch.accumulate=2"};
    double got[2], want[2] = {0};
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            if (k && (i % 3 != 0 || i > 8)) continue; /* sync_batchnorm is not for stages */
            const char *dir = place_dir("same");
            train_at(i ? &other : &control, &places[i], kinds[k], dir, "checkpoint=off");
            read_step(dir, 2, i ? got : want); /* step 4 is the short one of an epoch */
            if (i && memcmp(got, want, sizeof got)) fail_msg("%s: %g, not %g", places[i].mode, got[0], want[0]);
            if (i) program_assert_same(&control, &other, places[i].mode);
            assert_true(want[0] > 0);
            read_step(dir, 4, got);
            assert_true(isnan(got[0]));
        }
    train_at(&other, &places[0], "seed=0", place_dir("off"), "train.noise_scale=off");
    train_at(&control, &places[0], "seed=0", place_dir("on"), "checkpoint=off");
    program_assert_same(&control, &other, "measured");
}

static void what_has_no_whole_gradient_is_refused(void **state) {
    (void)state;
    static const char *const bad[][4] = {
        {"mode=ddp", "devices=cpu:2", "ddp.sync=4", "which no device has"},
        {"mode=ddp", "devices=cpu:2", "comm.compress=int8", "which no device has"},
        {"mode=dp", "devices=cpu:2", "dp={staleness: 1, server: dedicated}", "which no device has"},
        {"mode=single", "devices=cpu:1", "batch={size: 32, shards: 1}", "set batch.shards to a power of two"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        program_run(&other, 60, "run", "--set", "train={for: 4st, noise_scale: 1st}", "--set", bad[i][0], "--set",
                    bad[i][1], "--set", bad[i][2], "--set", place_dir("refused"), NULL);
        if (other.code != 78 || !strstr(other.err, bad[i][3])) fail_msg("%s: %d, %s", bad[i][2], other.code, other.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_as_computed_by_hand),         cmocka_unit_test(the_mean_is_as_foretold),
        cmocka_unit_test(the_report_says_it_in_a_sentence),      cmocka_unit_test(same_bits_everywhere),
        cmocka_unit_test(what_has_no_whole_gradient_is_refused),
    };
    return cmocka_run_group_tests_name("noise", tests, setup, NULL);
}
