/* The variable ENGINE_ISA: what it takes, what it refuses, and that levels with fused multiply-adds end in the same
 * weights. */
#include "tests/harness/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__aarch64__)
#define LOWEST "neon"
#else
#define LOWEST "base"
#endif

static struct program p;

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
    char text[32];
    snprintf(text, sizeof text, "own kernels   %s, ", level);
    return devices_show(level, text);
}

static void unknown_levels_are_refused(void **state) {
    (void)state;
    setenv("ENGINE_ISA", "avx", 1);
    training_start(&p, "unknown", (const char *[]){"mode=single", "devices=cpu:1", "train=1st", NULL});
    assert_true(program_wait(&p, 60));
    unsetenv("ENGINE_ISA");
    assert_int_equal(p.code, 78);
    training_says(&p, "ENGINE_ISA is 'avx'");
    training_says(&p, LOWEST "; without the variable it is the first of them");
    assert_true(devices_show("avx", "missing: ENGINE_ISA is 'avx'"));
}

static void a_level_is_run_and_shown(void **state) {
    (void)state;
    char hash[80];
    assert_true(has(LOWEST));
    program_run(&p, 10, "version", "--features", NULL);
    const char *levels = strstr(p.out, "\nlevels ");
    assert_non_null(levels);
    assert_non_null(strstr(levels, " " LOWEST "\n"));
    train(LOWEST, hash);
    setenv("ENGINE_ISA", LOWEST, 1);
    program_run(&p, 60, "bench", "layers", "--model", "mlp", "--batch", "1", "--seconds", "0.01s", NULL);
    unsetenv("ENGINE_ISA");
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, ", level " LOWEST "; "));
}

static void fused_levels_end_in_the_same_weights(void **state) {
    (void)state;
    char v3[80], v4[80];
    if (!has("v4")) skip();
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
    assert_true(says_f32_is_faster("base"));
    if (!has("v4bf16")) skip();
    assert_false(says_f32_is_faster("v4bf16"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_levels_are_refused),
        cmocka_unit_test(a_level_is_run_and_shown),
        cmocka_unit_test(fused_levels_end_in_the_same_weights),
        cmocka_unit_test(emulated_products_are_told),
    };
    return cmocka_run_group_tests_name("the variable ENGINE_ISA", tests, NULL, NULL);
}
