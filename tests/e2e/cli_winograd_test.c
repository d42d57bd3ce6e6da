/* The key 'winograd': what it forbids, and that runs with it and without are not mixed up. */
#include "tests/harness/training.h"

#include <stdio.h>
#include <string.h>

static struct program p;

/* Two steps of a network of 3x3 convolutions; gives the hash of its weights. */
static const char *train(const char *dir, const char *winograd, char hash[80]) {
    const char *more[] = {"mode=single", "devices=cpu:1",  "model=resnet20", "batch={size: 4, shards: 1}",
                          "train=2st",   "checkpoint=1st", winograd,         NULL};
    training_start(&p, dir, more);
    assert_true(program_wait(&p, 120));
    if (p.code) fail_msg("%s: exit code %d\n%s", winograd, p.code, p.err);
    snprintf(hash, 80, "%s", program_string(&p, "weights_sha256"));
    return hash;
}

static void assert_resolved(const char *dir, const char *line) {
    char path[64], text[8192];
    snprintf(path, sizeof path, "%s/resolved.yaml", dir);
    FILE *f = fopen(scratch_path(path), "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    if (!strstr(text, line)) fail_msg("%s has no '%s':\n%s", path, line, text);
}

static void runs_with_and_without_differ(void **state) {
    (void)state;
    char with[80], without[80], again[80];
    assert_string_not_equal(train("with", "winograd=true", with), train("without", "winograd=false", without));
    assert_string_equal(train("again", "winograd=false", again), without);
    assert_resolved("with", "\nwinograd: true ");
    assert_resolved("without", "\nwinograd: false ");
}

static void a_resume_does_not_mix_them(void **state) {
    (void)state;
    char hash[80];
    train("saved", "winograd=true", hash);
    program_run(&p, 60, "run", scratch_path("saved"), "--set", "train=3st", "--set", "winograd=false", NULL);
    assert_int_equal(p.code, 78);
    training_says(&p, "winograd was 'true' when it was saved and is 'false' now");
    training_resume(&p, "saved", 3);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 0);
}

static bool bench_names_it(const char *winograd) {
    program_run(&p, 60, "bench", "layers", "--model", "resnet20", "--batch", "1", "--seconds", "0.01s", "--set",
                winograd, NULL);
    if (p.code) fail_msg("exit code %d\n%s", p.code, p.err);
    return strstr(p.out, " winograd ") != NULL;
}

static void layers_name_it(void **state) {
    (void)state;
    assert_true(bench_names_it("winograd=true"));
    assert_false(bench_names_it("winograd=false"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_with_and_without_differ),
        cmocka_unit_test(a_resume_does_not_mix_them),
        cmocka_unit_test(layers_name_it),
    };
    return cmocka_run_group_tests_name("the key winograd", tests, NULL, NULL);
}
