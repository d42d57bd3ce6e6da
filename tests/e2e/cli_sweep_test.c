/* engine sweep, and engine compare with 'tune': what is tried and chosen, that halving goes on from its checkpoints, that
 * what was run is taken as it is, and what the files say. */
#include "tests/harness/program.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct program p, other;
static char file[600], folder[600];

static int set_up(void **state) {
    (void)state;
    static int tests;
    char name[32];
    scratch_folder();
    snprintf(file, sizeof file, "%s", scratch_path("sweep.yaml"));
    snprintf(name, sizeof name, "out-%d", ++tests);
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    return program_orphans();
}

#define BASE                                                                                                           \
    "base: {mode: single, devices: cpu:1, model: {zoo: mlp, hidden: [16]}, data: {set: digits, train: 256, val: "      \
    "100}, "                                                                                                           \
    "batch: {size: 32, shards: 2}, train: 64st, schedule: cosine, eval: end}\nwarmup: 2st\n"

static const char *inside(const char *name) {
    static char path[1400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const struct json_value *sweep(struct pool *pool, int code) {
    program_run(&p, 120, "sweep", file, "--dir", folder, "--json", NULL);
    if (p.code != code) fail_msg("exit code %d:\n%s%s", p.code, p.out, p.err);
    return code ? NULL : program_json(&p, pool);
}

static double score_of(const struct json_value *tuning, int try) {
    const struct json_value *cell = &json_get(tuning, "cells")->children[0];
    return json_number(&json_get(cell, "tries")->children[try], "score");
}

static int chosen_of(const struct json_value *tuning, int cell) {
    return (int)json_number(&json_get(tuning, "cells")->children[cell], "chosen");
}

static const char *file_text(const char *name) {
    static char text[1 << 16];
    FILE *f = fopen(inside(name), "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    assert_int_equal(fclose(f), 0);
    return text;
}

/* Each score is what a run of that rate and seed by itself comes to; the best of them is chosen, and diverged ones are
 * no error. */
static void a_grid_is_what_its_runs_are(void **state) {
    (void)state;
    static const char *const rates[] = {"0.01", "0.2", "1e20"};
    struct pool *pool;
    double best = INFINITY;
    int at = -1;
    assert_ok(pool_create(&pool));
    save_text(file, BASE "metrics: [val_loss]\ntune: {optimizer.lr: [0.01, 0.2, 1e20], seeds: [11, 12]}\n");
    const struct json_value *tuning = sweep(pool, 0);
    assert_int_equal(json_get(tuning, "tries")->count, 3);
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        char lr[64], seed[32];
        snprintf(lr, sizeof lr, "optimizer.lr=%s", rates[i]);
        for (int k = 11; k <= 12 && i < 2; k++) {
            snprintf(seed, sizeof seed, "seed=%d", k);
            program_train(&other,
                          SETS("mode=single", "devices=cpu:1", "model={zoo: mlp, hidden: [16]}",
                               "data={set: digits, train: 256, val: 100}", "batch={size: 32, shards: 2}", "train=64st",
                               "schedule=cosine", "eval=end"),
                          SETS(lr, seed));
            sum += program_number(&other, "val.loss");
        }
        if (i < 2) assert_true(fabs(score_of(tuning, i) - sum / 2) < 1e-6);
        if (i < 2 && sum < best) best = sum, at = i;
    }
    assert_true(isnan(score_of(tuning, 2))); /* null */
    assert_true(json_number(&json_get(&json_get(tuning, "cells")->children[0], "tries")->children[2], "diverged") == 2);
    assert_int_equal(chosen_of(tuning, 0), at);
    assert_int_equal(folder_count(folder, "tune/cells/*/run-*/compare.json"), 6);
    program_run(&p, 60, "run", inside("best.yaml"), "--json", "--quiet", "--set", "seed=11", "--set", "checkpoint=off",
                NULL);
    assert_int_equal(p.code, 0); /* a file that runs */
    assert_non_null(strstr(file_text("best.yaml"), rates[at]));
    assert_null(strstr(file_text("best.yaml"), "checkpoint"));
    pool_free(pool);
}

/* The one that is left has gone on through all parts, and ends in the bits of a run that was never stopped. */
static void halving_goes_on_from_its_checkpoints(void **state) {
    (void)state;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    save_text(file, BASE "metrics: [val_loss]\ntune: {optimizer.lr: log 0.001..1, budget: 3 runs, search: halving}\n");
    const struct json_value *tuning = sweep(pool, 0);
    const struct json_value *tries = json_get(&json_get(tuning, "cells")->children[0], "tries");
    int parts[5] = {0}, n = tries->count, best = chosen_of(tuning, 0);
    for (int i = 0; i < n; i++) parts[(int)json_number(&tries->children[i], "parts")]++;
    assert_true(n == 8 && parts[1] == 4 && parts[2] == 2 && parts[3] == 1 && parts[4] == 1); /* 8, 4, 2, 1 */
    assert_true(json_number(tuning, "runs_each") == 2.5);                                    /* 8/8 + 4/8 + 2/4 + 1/2 */
    char lr[64];
    snprintf(lr, sizeof lr, "optimizer.lr=%s", json_text(&json_get(tuning, "tries")->children[best], "optimizer.lr"));
    program_train(&other,
                  SETS("mode=single", "devices=cpu:1", "model={zoo: mlp, hidden: [16]}",
                       "data={set: digits, train: 256, val: 100}", "batch={size: 32, shards: 2}", "train=64st",
                       "schedule=cosine", "eval=end", "seed=1000000"),
                  SETS(lr));
    assert_true(score_of(tuning, best) == program_number(&other, "val.loss"));
    assert_int_equal(folder_count(folder, "tune/cells/*/run-01/ckpt"), 0);
    pool_free(pool);
}

/* Nothing is run twice, and the answer is the same. */
static void what_was_run_is_taken(void **state) {
    (void)state;
    struct pool *pool;
    struct stat before, after;
    assert_ok(pool_create(&pool));
    save_text(file, BASE "metrics: [val_accuracy]\ntune: {optimizer.lr: [0.01, 0.1], optimizer.momentum: [0, 0.9]}\n");
    const struct json_value *tuning = sweep(pool, 0);
    glob_t found;
    assert_int_equal(glob(inside("tune/cells/*/run-01/compare.json"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 4);
    assert_int_equal(stat(found.gl_pathv[0], &before), 0);
    assert_int_equal(remove(found.gl_pathv[3]), 0);
    const struct json_value *again = sweep(pool, 0);
    assert_non_null(strstr(p.err, "3 of 4 runs are already in"));
    assert_int_equal(stat(found.gl_pathv[0], &after), 0);
    assert_true(before.st_mtim.tv_sec == after.st_mtim.tv_sec && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    for (int i = 0; i < 4; i++) assert_true(score_of(tuning, i) == score_of(again, i));
    program_run(&p, 60, "sweep", file, "--dir", folder, "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "tuning: 4 tries of 1 cell, 1 seed each (grid): as long as 4 whole runs"));
    globfree(&found);
    pool_free(pool);
}

/* A best rate at the edge is told, and with widen: true tried beyond until it is none. */
static void the_range_is_widened(void **state) {
    (void)state;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    save_text(file, BASE "metrics: [val_loss]\ntune: {optimizer.lr: [0.0001, 0.001]}\n");
    const struct json_value *tuning = sweep(pool, 0), *cell = &json_get(tuning, "cells")->children[0];
    assert_string_equal(json_text(json_get(cell, "edges"), "optimizer.lr"), "highest");
    assert_non_null(strstr(json_text(cell, "words"), "this is the highest optimizer.lr that was tried"));
    save_text(file, BASE "metrics: [val_loss]\ntune: {optimizer.lr: [0.0001, 0.001], widen: true}\n");
    tuning = sweep(pool, 0), cell = &json_get(tuning, "cells")->children[0];
    int widened = (int)json_number(tuning, "widened");
    assert_true(widened >= 2 && json_get(tuning, "tries")->count == 2 + widened);
    assert_string_equal(json_text(&json_get(tuning, "tries")->children[2], "optimizer.lr"), "0.01");
    assert_null(json_get_text(json_get(cell, "edges"), "optimizer.lr"));
    save_text(file, BASE "metrics: [val_loss]\ntune: {optimizer.momentum: [0.0, 0.9], widen: true}\n");
    tuning = sweep(pool, 0); /* 1.8 is no momentum */
    if (chosen_of(tuning, 0) == 1)
        assert_non_null(strstr(json_text(tuning, "not_widened"), "the next value is refused"));
    pool_free(pool);
}

/* Each side at its own best, on seeds that tuning has not seen; the results and the page have it all. */
static void sides_at_their_best_are_compared(void **state) {
    (void)state;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    save_text(file, BASE "metrics: [val_accuracy]\nsides: {sgd: {optimizer: sgd}, adamw: {optimizer: adamw}}\n"
                         "repeats: {seeds: 6}\ntune: {optimizer.lr: log 0.001..1, budget: 4 runs}\n");
    program_run(&p, 120, "compare", file, "--dir", folder, "--dry-run", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "tuning: 4 tries of 2 cells"));
    assert_non_null(strstr(p.out, "comparison: 2 cells, 6 runs each: 12 runs\n"));
    assert_int_equal(folder_count(folder, "*"), 0);
    program_run(&p, 240, "compare", file, "--dir", folder, "--json", NULL);
    if (p.code) fail_msg("exit code %d:\n%s%s", p.code, p.out, p.err);
    const struct json_value *j = program_json(&p, pool), *tuning = json_get(j, "tuning");
    assert_true(json_get(j, "complete")->truth && json_get(json_get(j, "seeds"), "0") == NULL);
    for (int side = 0; side < 2; side++) {
        const struct json_value *tries = json_get(&json_get(tuning, "cells")->children[side], "tries");
        int chosen = chosen_of(tuning, side);
        for (int i = 0; i < tries->count; i++)
            assert_true(!(json_number(&tries->children[i], "score") > json_number(&tries->children[chosen], "score")));
        char name[64];
        const char *rate = json_text(&json_get(tuning, "tries")->children[chosen], "optimizer.lr");
        snprintf(name, sizeof name, "best-%s.yaml", side ? "adamw" : "sgd");
        assert_non_null(strstr(file_text(name), rate));
    }
    const struct json_value *runs = json_get(&json_get(j, "cells")->children[0], "runs");
    for (int i = 0; i < runs->count; i++) assert_true(json_number(&runs->children[i], "seed") < 1000000);
    assert_non_null(strstr(file_text("results.md"), "tuned: sgd: val_accuracy is"));
    program_run(&p, 60, "report", folder, "--output", inside("page.md"), NULL);
    assert_int_equal(p.code, 0);
    const char *page = file_text("page.md");
    assert_non_null(strstr(page, "Each side at its best"));
    assert_non_null(strstr(page, "the same 4 values, with 1 seed each (search: grid)"));
    assert_non_null(strstr(page, "Validation accuracy over optimizer.lr"));
    program_assert_says(page, "Validation accuracy against training time");
    assert_null(strstr(page, "against bytes sent")); /* nobody sends any */
    pool_free(pool);
}

/* A configuration and a few words are an experiment, too. */
static void a_configuration_is_enough(void **state) {
    (void)state;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    save_text(file,
              "mode: single\ndevices: cpu:1\nmodel: {zoo: mlp, hidden: [8]}\ndata: {set: digits, train: 64, val: 32}\n"
              "train: 12st\n");
    program_run(&p, 60, "sweep", file, "--tune", "optimizer.lr=log 0.001..0.1", "--tune", "optimizer.momentum=0,0.9",
                "--budget", "6 runs", "--metric", "val_loss", "--dir", folder, "--json", NULL);
    if (p.code) fail_msg("exit code %d:\n%s%s", p.code, p.out, p.err);
    const struct json_value *tries = json_get(program_json(&p, pool), "tries");
    assert_int_equal(tries->count, 6);
    assert_string_equal(json_text(&tries->children[3], "optimizer.lr"), "0.01");
    assert_string_equal(json_text(&tries->children[3], "optimizer.momentum"), "0.9");
    program_run(&p, 60, "sweep", file, "--tune", "optimizer.lr", "--metric", "val_loss", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 60, "sweep", file, "--tune", "optimizer.lr=1,2", NULL);
    assert_true(p.code == 64 && strstr(p.err, "--tune needs --metric"));
    program_run(&p, 60, "sweep", file, "--budget", "3", NULL);
    assert_int_equal(p.code, 64);
    pool_free(pool);
}

static void all_that_diverges_is_an_error(void **state) {
    (void)state;
    save_text(file, BASE "metrics: [val_loss]\ntune: {optimizer.lr: [1e20, 1e21]}\n");
    (void)sweep(NULL, 1);
    assert_non_null(strstr(p.err, "no try has a val_loss: all of them diverged"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_grid_is_what_its_runs_are, set_up, tear_down),
        cmocka_unit_test_setup_teardown(halving_goes_on_from_its_checkpoints, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_run_is_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_range_is_widened, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sides_at_their_best_are_compared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_configuration_is_enough, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_that_diverges_is_an_error, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
