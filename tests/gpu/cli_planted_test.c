/* What is planted on purpose, where the devices are GPUs: a slow one is slow and costs no bit, a NaN is noticed, weights
 * that nobody sent are other weights. */
#include "tests/harness/program.h"

#include "tests/gpu/gpu.h"

#include <stdio.h>
#include <string.h>

static struct program control, other;

static void run(struct program *p, const char *mode, const char *inject, const char *more) {
    static int serial;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s%d", scratch_path("run-"), ++serial);
    const char *devices = strcmp(mode, "mode=single") ? "devices=cuda:0,0" : "devices=cuda:0";
    program_run(p, 120, "run", "--json", "--set", "data={set: digits, train: 200, val: 40}", "--set",
                "model={layers: [flatten, {linear: 48}, relu, {linear: 10}]}", "--set", "batch={size: 64, shards: 4}",
                "--set", "train=20st", "--set", "deterministic=bitwise", "--set", "optimizer={name: sgd, lr: 0.05}",
                "--set", "checkpoint=off", "--set", "eval=end", "--set", dir, "--set", mode, "--set", devices, "--set",
                inject, "--set", more, NULL);
}

static const char *const modes[] = {"mode=single", "mode=dp", "mode=ddp"};
static const char nothing[] = "inject=none", by_itself[] = "precision=f32", few_steps[] = "train=6st";

static double computing(const struct program *p) {
    return program_number(p, "time_s.forward") + program_number(p, "time_s.backward");
}

static void assert_ended(const struct program *p, const char *mode) {
    if (p->code) fail_msg("%s: exit code %d\n%s", mode, p->code, p->err);
}

static void slow_costs_no_bit(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        double least[2] = {1e9, 1e9};
        for (int k = 0; k < 6; k++) {
            struct program *p = k % 2 ? &other : &control;
            run(p, modes[i], k % 2 ? "inject.slow=900%" : nothing, few_steps);
            assert_ended(p, modes[i]);
            if (computing(p) < least[k % 2]) least[k % 2] = computing(p);
        }
        print_message("%s: %.3f s, slow %.3f s\n", modes[i], least[0], least[1]);
        assert_true(least[1] > 3 * least[0]);
        assert_string_equal(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256"));
    }
}

/* The first gradients of a step, early or not, or left out as fp16 does with what is too large. */
static void a_nan_is_noticed(void **state) {
    (void)state;
    static const char nan[] = "inject.fault={device: 0, step: 12, kind: nan}";
    for (int i = 0; i < 3; i++) {
        run(&other, modes[i], nan, by_itself);
        assert_int_equal(other.code, 1);
        if (!strstr(other.err, "diverged: the loss of step 13 is nan")) fail_msg("%s: %s", modes[i], other.err);
        run(&control, modes[i], nothing, "precision=fp16");
        assert_ended(&control, modes[i]);
        run(&other, modes[i], nan, "precision=fp16");
        assert_ended(&other, modes[i]);
        assert_true(program_number(&other, "fp16.skipped_steps") == program_number(&control, "fp16.skipped_steps") + 1);
    }
}

static void own_weights_are_other_weights(void **state) {
    (void)state;
    for (int i = 1; i < 3; i++) {
        run(&control, modes[i], nothing, by_itself);
        run(&other, modes[i], "inject=no_broadcast", by_itself);
        assert_ended(&other, modes[i]);
        assert_string_not_equal(program_string(&control, "weights_sha256"), program_string(&other, "weights_sha256"));
        assert_string_not_equal(program_string(&control, "losses_sha256"), program_string(&other, "losses_sha256"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_costs_no_bit),
        cmocka_unit_test(a_nan_is_noticed),
        cmocka_unit_test(own_weights_are_other_weights),
    };
    return gpu_run_tests(tests);
}
