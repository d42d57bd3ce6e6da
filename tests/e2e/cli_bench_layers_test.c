/* engine bench layers: every op of the step is there, as it runs, and adds up. Times are not judged.
 */
#include "tests/harness/program.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct program p;

static double of(const struct json_value *row, const char *key) {
    return json_get(row, key)->number;
}

static void ops_are_told_as_they_run(void **state) {
    (void)state;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    program_run(&p, 60, "bench", "layers", "--model", "lenet", "--batch", "16", "--seconds", "0.05", "--json", NULL);
    assert_int_equal(p.code, 0);
    const struct json_value *j = program_json(&p, pool), *layers = json_get(j, "layers");
    static const char *const names[] = {"conv1", "conv2", "fc1", "fc2", "fc3", "loss"};
    assert_int_equal(layers->count, 6);
    double flops = 0, ms[2] = {0};
    for (int i = 0; i < 6; i++) {
        const struct json_value *row = &layers->children[i];
        assert_string_equal(json_get(row, "layer")->text, names[i]);
        assert_true(of(row, "forward_ms") > 0 && of(row, "backward_ms") > 0);
        for (int b = 0; b < 2; b++) flops += json_get(row, "flops")->children[b].number;
        ms[0] += of(row, "forward_ms");
        ms[1] += of(row, "backward_ms");
    }
    assert_string_equal(json_get(&layers->children[0], "op")->text, "conv2d+relu+maxpool");
    assert_string_equal(json_get(&layers->children[4], "op")->text, "linear");
    /* of a sample: products times two, and again for dw, and for dx but at the first layer */
    double expected = 16 * 2 * (2 * 28 * 28 * 6 * 25 + 3 * 10 * 10 * 16 * 150 + 3 * (400 * 120 + 120 * 84 + 84 * 10));
    assert_true(flops == expected);
    for (int b = 0; b < 2; b++) assert_true(fabs(json_get(j, "layers_ms")->children[b].number / ms[b] - 1) < 1e-6);
    assert_true(of(j, "gemm_gflops") > 0);
    pool_free(pool);
}

static void a_configuration_says_it_all(void **state) {
    (void)state;
    const char *path = scratch_path("spirals.yaml");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("data: spirals\nmodel: {layers: [{linear: 8}, gelu, {linear: 3}]}\nmode: dp\n"
          "devices: cpu:2\nbatch: 48\n",
          f);
    fclose(f);
    program_run(&p, 60, "bench", "layers", path, "--seconds", "0.01", "--json", NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal((int)program_number(&p, "batch"), 24);
    assert_int_equal((int)program_number(&p, "classes"), 3);
    program_run(&p, 60, "bench", "layers", path, "--seconds", "0.01", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "all layers"));
    assert_non_null(strstr(p.out, "of peak"));
}

static void wrong_input_is_told(void **state) {
    (void)state;
    static const struct {
        const char *words[4];
        int code;
        const char *text;
    } wrong[] = {
        {{"--batch", "0"}, 64, "--batch"},
        {{"--input", "3y4"}, 64, "3x32x32"},
        {{"--nonsense", "1"}, 64, "--nonsense"},
        {{"--model"}, 64, "needs a value"},
        {{"--model", "lenett"}, 78, "lenet"},
        {{"--model", "gpt-nano", "--input", "3x8x8"}, 78, "embedding takes tokens"},
        {{"--model", "lenet", "--input", "3x3"}, 78, "zoo:lenet"},
        {{"--model", "{layers: [flatten, {linear: 7}]}", "--classes", "9"}, 78, "--classes"},
        {{"/no/such.yaml"}, 66, "/no/such.yaml"},
        {{"/no/such.yaml", "--model", "mlp"}, 64, "a configuration already has"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *const *w = wrong[i].words;
        program_run(&p, 30, "bench", "layers", w[0], w[1], w[2], w[3], NULL);
        if (p.code != wrong[i].code) fail_msg("%s: code %d\n%s", w[0], p.code, p.err);
        assert_non_null(strstr(p.err, wrong[i].text));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_are_told_as_they_run),
        cmocka_unit_test(a_configuration_says_it_all),
        cmocka_unit_test(wrong_input_is_told),
    };
    return cmocka_run_group_tests_name("bench layers", tests, NULL, NULL);
}
