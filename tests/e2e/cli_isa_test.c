/* The variable ENGINE_ISA: what it takes, what it refuses, and that levels with fused multiply-adds end in the same
 * weights. A build may have fewer levels than the processor (ENGINE_LEVELS). */
#include "tests/harness/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program p;
static char lowest[32]; /* of the levels of this build that run here */

static int find_lowest(void **state) {
    char levels[200];
    (void)state;
    program_run(&p, 10, "version", "--features", NULL);
    const char *at = strstr(p.out, "\nlevels ");
    assert_true(at && sscanf(at, "\nlevels %199[^\n]", levels) == 1);
    at = strrchr(levels, ' ');
    snprintf(lowest, sizeof lowest, "%.31s", at ? at + 1 : levels);
    return 0;
}

/* A network of matrix products and activations; gives the hash of its weights. */
static const char *train(const char *level, char hash[80]) {
    const char *more[] = {"mode=single", "devices=cpu:1", "model=mlp", "train=5st", NULL};
    setenv("ENGINE_ISA", level, 1);
    training_start(&p, level, more);
    assert_true(program_wait(&p, 60));
    unsetenv("ENGINE_ISA");
    if (p.code) fail_msg("%s: exit code %d\n%s", level, p.code, p.err);
    snprintf(hash, 80, "%s", program_string(&p, "weights_sha256"));
    return hash;
}

/* Whether 'engine doctor --devices' shows the text when the variable is so. */
static bool devices_show(const char *value, const char *text) {
    setenv("ENGINE_ISA", value, 1);
    program_run(&p, 20, "devices", NULL);
    unsetenv("ENGINE_ISA");
    assert_int_equal(p.code, 0);
    return strstr(p.out, text) != NULL;
}

static bool has(const char *level) {
    char text[64];
    snprintf(text, sizeof text, "own kernels   %s, ", level);
    return devices_show(level, text);
}

static void need(const char *level) {
    if (has(level)) return;
    print_message("skipped: no level %s in this build or on this processor\n", level);
    skip();
}

static void unknown_levels_are_refused(void **state) {
    (void)state;
    setenv("ENGINE_ISA", "avx", 1);
    training_start(&p, "unknown", (const char *[]){"mode=single", "devices=cpu:1", "train=1st", NULL});
    assert_true(program_wait(&p, 60));
    unsetenv("ENGINE_ISA");
    assert_int_equal(p.code, 78);
    char last[80];
    snprintf(last, sizeof last, "%s; without the variable it is the first of them", lowest);
    training_says(&p, "ENGINE_ISA is 'avx'");
    training_says(&p, last);
    assert_true(devices_show("avx", "missing: ENGINE_ISA is 'avx'"));
}

static void a_level_is_run_and_shown(void **state) {
    (void)state;
    char hash[80], shown[64];
    assert_true(has(lowest));
    train(lowest, hash);
    setenv("ENGINE_ISA", lowest, 1);
    program_run(&p, 60, "bench", "layers", "--model", "mlp", "--batch", "1", "--seconds", "0.01s", NULL);
    unsetenv("ENGINE_ISA");
    assert_int_equal(p.code, 0);
    snprintf(shown, sizeof shown, ", level %s; ", lowest);
    assert_non_null(strstr(p.out, shown));
}

/* Each level that is here multiplies as plain C does. */
static void doctor_tries_products(void **state) {
    static const char *const levels[] = {"base", "v3", "v4", "v4bf16", "amx", "neon"};
    int tried = 0;
    (void)state;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!has(levels[i])) continue;
        setenv("ENGINE_ISA", levels[i], 1);
        program_run(&p, 60, "doctor", NULL);
        unsetenv("ENGINE_ISA");
        if (!strstr(p.out, "ok       products         of f32 and bf16, forward and backward: as plain C has them"))
            fail_msg("%s: %s%s", levels[i], p.out, p.err);
        tried++;
    }
    assert_true(tried > 0);
}

static void fused_levels_end_in_the_same_weights(void **state) {
    (void)state;
    char v3[80], v4[80];
    need("v4"), need("v3");
    assert_string_equal(train("v3", v3), train("v4", v4));
}

/* Whether a run in bf16 at that level says that f32 is faster. */
static bool says_f32_is_faster(const char *level) {
    const char *more[] = {"mode=single", "devices=cpu:1", "model=mlp", "train=1st", "precision=bf16", NULL};
    char dir[32];
    snprintf(dir, sizeof dir, "bf16-%s", level);
    setenv("ENGINE_ISA", level, 1);
    training_start(&p, dir, more);
    assert_true(program_wait(&p, 60));
    unsetenv("ENGINE_ISA");
    assert_int_equal(p.code, 0);
    return strstr(p.err, "f32 is faster here") != NULL;
}

static void emulated_products_are_told(void **state) {
    (void)state;
    need("base");
    assert_true(says_f32_is_faster("base"));
    need("v4bf16");
    assert_false(says_f32_is_faster("v4bf16"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_levels_are_refused), cmocka_unit_test(a_level_is_run_and_shown),
        cmocka_unit_test(doctor_tries_products),      cmocka_unit_test(fused_levels_end_in_the_same_weights),
        cmocka_unit_test(emulated_products_are_told),
    };
    return cmocka_run_group_tests_name("the variable ENGINE_ISA", tests, find_lowest, NULL);
}
