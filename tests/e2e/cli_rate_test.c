/* engine tune lr: the rates of its steps, the same proposal on any number of devices, a last line that runs, and nothing of
 * the user's that is touched. */
#include "tests/harness/program.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct program p, other;
static char file[600], dir[600];

static int set_up(void **state) {
    (void)state;
    scratch_folder();
    snprintf(file, sizeof file, "%s", scratch_path("c.yaml"));
    snprintf(dir, sizeof dir, "%s", scratch_path("runs"));
    FILE *f = fopen(file, "w");
    fprintf(
        f,
        "{model: {zoo: mlp, hidden: [16]}, data: {set: digits, train: 512, val: 64}, batch: {size: 32, shards: 4}, "
        "mode: single, devices: cpu:1, optimizer: {name: adamw, lr: 0.03, groups: [{match: \"*.bias\", lr: 0.01}]}, "
        "lr_scale: {linear: 64}, schedule: cosine, train: 64st, log: {dir: '%s'}}\n",
        dir);
    return fclose(f);
}

/* Files and folders in a folder of this test's. */
static int things_in(const char *name) {
    char pattern[700];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s/*", scratch_path(name));
    int n = glob(pattern, 0, NULL, &g) == 0 ? (int)g.gl_pathc : 0;
    if (n) globfree(&g);
    return n;
}

static void steps_have_their_rates(void **state) {
    (void)state;
    struct pool *pool;
    assert_int_equal(mkdir(scratch_path("temporary"), 0700), 0);
    assert_int_equal(setenv("TMPDIR", scratch_path("temporary"), 1), 0);
    assert_ok(pool_create(&pool));
    program_run(&p, 60, "tune", "lr", file, "--json", "--from", "1e-5", "--to", "3", "--steps", "80", NULL);
    if (p.code != 0) fail_msg("%d: %s", p.code, p.err);
    const struct json_value *steps = json_get(program_json(&p, pool), "steps");
    assert_true(steps->count > 40 && steps->count <= 80);
    for (int i = 0; i < steps->count; i++) {
        double want = 1e-5 * pow(3e5, i / 80.0), sum = 0, all = 0;
        assert_true(fabs(json_number(&steps->children[i], "lr") / want - 1) < 1e-7);
        for (int k = i - 4; k <= i + 4; k++) {
            if (k < 0 || k >= steps->count) continue;
            sum += (5 - abs(k - i)) * json_number(&steps->children[k], "loss");
            all += 5 - abs(k - i);
        }
        assert_true(fabs(json_number(&steps->children[i], "smooth") - sum / all) < 1e-6);
    }
    double lr = program_number(&p, "lr"), steepest = program_number(&p, "steepest"),
           third = program_number(&p, "lowest") / 3, least = steepest < third ? steepest : third;
    assert_true(fabs(lr / least - 1) < 0.06); /* rounded to two digits */
    program_run(&other, 60, "tune", "lr", file, "--json", "--from", "1e-5", "--to", "3", "--steps", "80", "--set",
                "mode=ddp", "--set", "devices=cpu:2", NULL);
    assert_int_equal(other.code, 0);
    assert_string_equal(p.out, other.out);
    assert_int_equal(things_in("temporary"), 0);
    pool_free(pool);
}

static void the_last_line_runs(void **state) {
    (void)state;
    char words[700], last[700] = "";
    program_run(&p, 60, "tune", "lr", file, "--from", "1e-5", "--to", "3", "--set", "optimizer.name=adam", NULL);
    assert_int_equal(p.code, 0);
    assert_true(strstr(p.out, "falls fastest") && strstr(p.out, "  lowest") && strstr(p.out, "|###"));
    assert_int_equal(things_in("runs"), 0); /* no run folder was made */
    for (const char *line = p.out; *line; line += strcspn(line, "\n") + 1)
        snprintf(last, sizeof last, "%.*s", (int)strcspn(line, "\n"), line);
    snprintf(words, sizeof words, "engine run %s --set 'optimizer.name=adam' --set ", file);
    if (strncmp(last, words, strlen(words)) != 0) fail_msg("'%s'", last);
    program_run(&p, 60, "run", file, "--set", "optimizer.name=adam", "--set", last + strlen(words), "--json", NULL);
    assert_int_equal(p.code, 0);
    assert_true(program_number(&p, "train.loss") < 2);
}

static void what_says_nothing_is_an_error(void **state) {
    (void)state;
    static const struct {
        const char *words[8];
        int code;
        const char *told;
    } bad[] = {
        {{"tune", "lr", file, "--from", "1e-12", "--to", "1e-9"}, 1, "does not fall by more than its noise"},
        {{"tune", "lr", file, "--from", "1e25", "--to", "1e30"}, 1, "lower --from"},
        {{"tune", "lr", file, "--from", "1", "--to", "0.1"}, 64, "--from must be below --to"},
        {{"tune", "momentum", file}, 64, "tune what?"},
        {{"tune", "lr"}, 64, "tune what?"},
        {{"tune", "lr", file, "--set", "optimizer.lr=0"}, 78, "optimizer.lr is 0"},
        {{"tune", "lr", file, "--set", "optimizer.lrr=0"}, 78, "lrr"},
        {{"tune", "lr", "/nowhere.yaml"}, 66, "/nowhere.yaml"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        program_start(&p, bad[i].words);
        assert_true(program_wait(&p, 60));
        if (p.code != bad[i].code || !strstr(p.err, bad[i].told)) fail_msg("%s: %d, %s", bad[i].told, p.code, p.err);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_their_rates),
        cmocka_unit_test(the_last_line_runs),
        cmocka_unit_test(what_says_nothing_is_an_error),
    };
    return cmocka_run_group_tests_name("rate", tests, set_up, NULL);
}
