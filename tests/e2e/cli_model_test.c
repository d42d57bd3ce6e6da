/* engine model, and runs that begin with weights of a file. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static struct program p;

static void list_and_show(void **state) {
    (void)state;
    program_run(&p, 10, "model", "list", NULL);
    assert_int_equal(p.code, 0);
    program_assert_says(p.out, "mlp ");
    program_assert_says(p.out, "hidden: [512, 512]");
    program_run(&p, 10, "model", "show", "mlp", "--set", "model.hidden=[7]", "--classes", "3", NULL);
    assert_int_equal(p.code, 0);
    program_assert_says(p.out, "units: 7");
    program_assert_says(p.out, "units: 3");
}

/* What is shown can be run, and is the same network. */
static void shown_layers_train_as_the_zoo_does(void **state) {
    (void)state;
    char hash[2][80], dir[600];
    const char *path = scratch_path("shown.yaml");
    program_run(&p, 10, "model", "show", "lenet", NULL);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(p.out, f);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("shown-"), i);
        program_run(&p, 60, "run", "--json", "--quiet", "--set", dir, "--set", "train=3st", "--set", "mode=single",
                    "--set", "threads=1", "--set", "eval=end", "--set", "checkpoint=off", i ? path : "--set",
                    i ? NULL : "model=lenet", NULL);
        if (p.code != 0) fail_msg("%s", p.err);
        snprintf(hash[i], sizeof hash[i], "%s", program_string(&p, "weights_sha256"));
    }
    assert_string_equal(hash[0], hash[1]);
}

/* Sums and conditions in a configuration's own layers stay what they are in the resolved one. */
static void sums_survive_being_resolved(void **state) {
    (void)state;
    const char *path = scratch_path("sums.yaml");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("model: {layers: [flatten, {each: 2, layers: [{linear: $(8 * $i + 1)}, relu]}, "
          "{if: $classes > 5 and 1 < 2, layers: [{linear: $classes}]}]}\n",
          f);
    fclose(f);
    program_run(&p, 10, "config", path, NULL);
    assert_int_equal(p.code, 0);
    const char *again = scratch_path("resolved.yaml");
    f = fopen(again, "w");
    assert_non_null(f);
    fputs(p.out, f);
    fclose(f);
    for (int i = 0; i < 2; i++) {
        program_run(&p, 10, "model", "summary", i ? again : path, "--json", NULL);
        if (p.code != 0) fail_msg("%s", p.err);
        assert_int_equal(program_number(&p, "parameters"), (784 + 1) * 9 + (9 + 1) * 17 + (17 + 1) * 10);
    }
}

/* ---- what a step should take on a GPU, against a count of its own ---- */
/* In bf16: 132 multiprocessors of 4 tensor cores, each with 512 products and sums at 1.83 GHz, which NVIDIA's data sheet
 * rounds to 989.4 TFLOP/s. */
static const double h100_products = 989.4e12, h100_memory = 3350e9;

static void cost_is(int step, const char *pass, double flops, double bytes) {
    char key[64];
    const char *fields[] = {"flops", "bytes", "ms"};
    double by_flops = flops / h100_products * 1e3, by_bytes = bytes / h100_memory * 1e3;
    const double expected[] = {flops, bytes, (by_flops > by_bytes ? by_flops : by_bytes) + 0.003};
    struct pool *pool;
    assert_ok(pool_create(&pool));
    const struct json_value *steps = json_get(json_get(program_json(&p, pool), "cost"), "steps");
    assert_true(step < steps->count);
    const struct json_value *of = json_get(&steps->children[step], pass);
    for (int i = 0; i < 3; i++) {
        double got = json_get(of, fields[i])->number;
        snprintf(key, sizeof key, "step %d, %s, %s", step, pass, fields[i]);
        if (got < expected[i] * (1 - 1e-8) || got > expected[i] * (1 + 1e-8))
            fail_msg("%s: %.17g, not %.17g", key, got, expected[i]);
    }
    assert_string_equal(json_get(of, "bound")->text, by_flops > by_bytes ? "compute" : "memory");
    pool_free(pool);
}

/* bf16: an activation has two bytes, the input and gradients of weights have four. */
static void a_step_is_priced(void **state) {
    (void)state;
    const double n = 512, in = 784, mid = 4096, classes = 10;
    program_run(&p, 30, "model", "summary", "mlp", "--device", "h100", "--json", "--batch", "512", "--set",
                "model.hidden=[4096]", "--set", "precision=bf16", "--set", "optimizer=adam", "--set", "devices=cpu:1",
                NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    double w = in * mid + mid, last = mid * classes + classes;
    cost_is(0, "forward", 2 * n * in * mid, n * in * 4 + n * mid * 2 + w * 2);
    cost_is(0, "backward", 2 * n * in * mid, n * in * 4 + n * mid * 2 + w * 6);
    cost_is(1, "forward", 2 * n * mid * classes, n * mid * 2 + n * classes * 2 + last * 2);
    cost_is(1, "backward", 4 * n * mid * classes, n * mid * 2 + n * classes * 2 + last * 6 + n * mid * 2);
    assert_true(program_number(&p, "cost.update.bytes") == (w + last) * (4 * 7 + 4 + 2)); /* and rounds the weights */
    program_run(&p, 30, "model", "summary", "lenet", "--device", "h100", "--json", "--batch", "64", "--set",
                "precision=bf16", "--set", "devices=cpu:1", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    /* the pooling is fused with the convolution on the CPU: what is written is 14 x 14 */
    cost_is(0, "forward", 2.0 * 64 * 28 * 28 * 6 * 25, 64.0 * 28 * 28 * 4 + 64.0 * 14 * 14 * 6 * 2 + (6 * 25 + 6) * 2);
    program_run(&p, 30, "model", "summary", "lenet", "--device", "h1000", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 30, "model", "summary", "lenet", "--device", "l4", "--set", "devices=cpu:1", NULL);
    program_assert_says(p.out, "on NVIDIA L4, at most 30 TFLOP/s and 300 GB/s");
    program_assert_says(p.out, "a step of 1 pass");
}

static void summary_counts(void **state) {
    (void)state;
    struct pool *pool;
    program_run(&p, 20, "model", "summary", "lenet", "--batch", "8", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    assert_int_equal(program_number(&p, "parameters"), 61706);
    assert_int_equal(program_number(&p, "bytes.gradients"), 61706 * 4);
    assert_int_equal(program_number(&p, "samples"), 8);
    /* conv1 28x28x6x25, conv2 10x10x16x6x25, 400x120, 120x84, 84x10 products */
    assert_int_equal(program_number(&p, "flops_forward"), 2 * (117600 + 240000 + 48000 + 10080 + 840));
    assert_ok(pool_create(&pool));
    const struct json_value *root = program_json(&p, pool), *ready = json_get(root, "ready");
    assert_int_equal(json_get(root, "layers")->count, 12);
    assert_int_equal(ready->count, 10);
    assert_string_equal(json_get(&ready->children[0], "parameter")->text, "fc3.weight");
    assert_int_equal(json_get(&ready->children[9], "bytes_so_far")->integer, 61706 * 4);
    pool_free(pool);
    program_run(&p, 20, "model", "summary", "mlp", "--input", "3x8x8", "--classes", "4", NULL);
    assert_int_equal(p.code, 0);
    program_assert_says(p.out, "input 3x8x8, 4 classes");
    program_assert_says(p.out, "gradients become ready in this order");
}

static void summary_of_a_configuration(void **state) {
    (void)state;
    const char *path = scratch_path("config.yaml");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("data: spirals\nmodel: {zoo: mlp, hidden: [5]}\noptimizer: adam\nbatch: 12\n"
          "devices: cpu:2\n",
          f);
    fclose(f);
    program_run(&p, 20, "model", "summary", path, "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    assert_int_equal(program_number(&p, "samples"), 6);
    assert_true(program_number(&p, "bytes.optimizer") == 2 * program_number(&p, "bytes.weights"));
}

static double memory_of(const struct json_value *row, const char *key) {
    const struct json_value *v = json_get(row, key);
    assert_non_null(v);
    return v->number;
}

/* The first of two stages has 784 x 256 + 256 weights, as many momenta, and the sums of 8, 4, 2 and 1 micro-batches, of 8
 * samples each; of the 256 outputs of each sample it keeps two micro-batches where backward comes as soon as it can, and
 * all 8 where it comes last. */
static void a_stage_holds_its_layers(void **state) {
    const double weights = 4 * (784 * 256 + 256), outputs = 4 * 8 * 256;
    struct pool *pool;
    (void)state;
    const char *path = scratch_path("stages.yaml");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("data: digits\nmodel: {zoo: mlp, hidden: [256]}\nbatch: {size: 64, shards: 8}\nmode: ddp\ndevices: cpu:2\n"
          "optimizer: sgd\n",
          f);
    fclose(f);
    assert_int_equal(pool_create(&pool), ERR_NONE);
    program_run(&p, 20, "model", "summary", path, "--devices", "2", "--mode", "pipeline", "--json", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    const struct json_value *rows = json_get(program_json(&p, pool), "memory");
    assert_true(rows && rows->count == 2);
    for (int i = 0; i < 2; i++) {
        const struct json_value *row = &rows->children[i];
        assert_string_equal(json_get(row, "way")->text, i ? "1f1b" : "gpipe");
        assert_true(memory_of(row, "weights") == weights && memory_of(row, "optimizer") == weights);
        assert_true(memory_of(row, "gradients") == 4 * weights);
        assert_true(memory_of(row, "all") == 6 * weights + memory_of(row, "activations"));
    }
    assert_true(memory_of(&rows->children[0], "activations") - memory_of(&rows->children[1], "activations") ==
                6 * outputs);
    pool_free(pool);
    program_run(&p, 20, "model", "summary", path, "--devices", "8", "--mode", "pipeline", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "8 stages, but model 'mlp' can be cut into 3 at most");
    program_run(&p, 20, "model", "summary", path, "--devices", "8", NULL);
    assert_true(p.code == 0 && !strstr(p.out, "1f1b"));
}

static void mistakes(void **state) {
    (void)state;
    program_run(&p, 10, "model", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "model", "draw", "mlp", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "model", "show", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "model", "show", "mlp", "--depth", "3", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "model", "summary", "mlp", "--input", "3x", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "model", "show", "lennet", NULL);
    assert_int_equal(p.code, 66);
    program_assert_says(p.err, "did you mean 'lenet'?");
    program_run(&p, 10, "model", "summary", "mlp", "--set", "model.hiden=3", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "did you mean 'hidden'?");
    program_run(&p, 10, "model", "summary", "lenet", "--input", "1x6x6", NULL);
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "does not fit");
}

/* ---- weights of a file ---- */

static void train(const char *name, const char *mode, const char *devices, const char *model, const char *length) {
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(name));
    program_run(&p, 60, "run", "--json", "--quiet", "--set", dir, "--set", mode, "--set", devices, "--set", model,
                "--set", length, "--set", "batch={size: 64, shards: 2}", "--set", "threads=1", "--set", "eval=end",
                "--set", "data={set: digits, train: 400, val: 50}", NULL);
}

static void init_begins_with_the_weights_of_a_run(void **state) {
    (void)state;
    char model[2][1200], first[80];
    train("first", "mode=single", "devices=cpu:1", "model={zoo: mlp, hidden: [16]}", "train=60st");
    if (p.code != 0) fail_msg("%s", p.err);
    snprintf(first, sizeof first, "%s", program_string(&p, "weights_sha256"));
    snprintf(model[0], sizeof model[0], "model={zoo: mlp, hidden: [16], init: %s}", scratch_path("first"));
    snprintf(model[1], sizeof model[1],
             "model={zoo: mlp, hidden: [16], init: %s/ckpt/step-000000060/model.safetensors}", scratch_path("first"));
    static const char *const modes[] = {"mode=single", "mode=dp", "mode=ddp", "mode=ddp"};
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "again-%d", i);
        train(name, modes[i], i ? "devices=cpu:2" : "devices=cpu:1", model[i == 3], i ? "train=3st" : "train=1st");
        if (p.code != 0) fail_msg("%s", p.err);
        double loss = program_number(&p, "train.loss");
        if (!(loss < 1.5)) fail_msg("%s begins anew: loss %g", modes[i], loss);
        static char hash[80];
        if (i == 1) snprintf(hash, sizeof hash, "%s", program_string(&p, "weights_sha256"));
        if (i > 1) assert_string_equal(program_string(&p, "weights_sha256"), hash);
    }
}

static void a_new_head_is_left_as_it_begins(void **state) {
    (void)state;
    char model[1200];
    snprintf(model, sizeof model, "model={zoo: mlp, hidden: [16, 16], init: %s}", scratch_path("first"));
    train("head", "mode=single", "devices=cpu:1", model, "train=1st");
    assert_int_equal(p.code, 78);
    program_assert_says(p.err, "'fc3.weight' (10x16) is missing there");
    program_assert_says(p.err, "'fc2.weight' is F32 10x16 there, and 16x16 in this model");
    model[strlen(model) - 1] = '\0';
    strcat(model, ", strict: false}");
    train("head", "mode=single", "devices=cpu:1", model, "train=1st");
    if (p.code != 0) fail_msg("%s", p.err);
    program_assert_says(p.err, "2 of 6 tensors taken");
}

/* The run's own weights go before those that it began with, even where these are gone. */
static void resume_wins(void **state) {
    (void)state;
    char from[1100], model[1200], dir[600];
    snprintf(from, sizeof from, "%s", scratch_path("gone.safetensors"));
    FILE *f = fopen(scratch_path("first/ckpt/step-000000060/model.safetensors"), "rb"), *g = fopen(from, "wb");
    assert_true(f && g);
    for (int c; (c = fgetc(f)) != EOF;) fputc(c, g);
    fclose(f);
    fclose(g);
    snprintf(model, sizeof model, "model={zoo: mlp, hidden: [16], init: %s}", from);
    train("resumed", "mode=single", "devices=cpu:1", model, "train=4st");
    if (p.code != 0) fail_msg("%s", p.err);
    assert_int_equal(remove(from), 0);
    snprintf(dir, sizeof dir, "%s", scratch_path("resumed"));
    program_run(&p, 60, "run", dir, "--json", "--quiet", "--set", "train=6st", NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    assert_int_equal(program_number(&p, "steps"), 6);
    train("missing", "mode=single", "devices=cpu:1", model, "train=4st");
    assert_int_equal(p.code, 66);
    program_assert_says(p.err, "model.init: no file or folder");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_and_show),
        cmocka_unit_test(shown_layers_train_as_the_zoo_does),
        cmocka_unit_test(sums_survive_being_resolved),
        cmocka_unit_test(a_step_is_priced),
        cmocka_unit_test(summary_counts),
        cmocka_unit_test(summary_of_a_configuration),
        cmocka_unit_test(a_stage_holds_its_layers),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(init_begins_with_the_weights_of_a_run),
        cmocka_unit_test(a_new_head_is_left_as_it_begins),
        cmocka_unit_test(resume_wins),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
