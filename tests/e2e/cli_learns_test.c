/* It learns: lenet passes 98 % on generated digits, where a linear model stays under 93 %, and 97.5
 * % on MNIST's 10,000 test digits (8,000 to learn from, 2,000 to test on) where that file is at
 * hand. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <unistd.h>

static struct program p;

static double accuracy(const char *model, const char *data, const char *train, const char *optimizer, const char *dir) {
    char set_model[256], set_data[1024], set_dir[600], set_train[64], set_optimizer[256];
    snprintf(set_model, sizeof set_model, "model=%s", model);
    snprintf(set_data, sizeof set_data, "data=%s", data);
    snprintf(set_train, sizeof set_train, "train=%s", train);
    snprintf(set_optimizer, sizeof set_optimizer, "optimizer=%s", optimizer);
    snprintf(set_dir, sizeof set_dir, "log.dir=%s", scratch_path(dir));
    program_run(&p, 300, "run", "--json", "--quiet", "--set", "mode=ddp", "--set", "devices=cpu:2", "--set",
                "threads=1", "--set", set_model, "--set", set_data, "--set", "batch={size: 64, shards: 2}", "--set",
                set_train, "--set", set_optimizer, "--set", "schedule={name: cosine, warmup: 50st}", "--set",
                "checkpoint=off", "--set", "eval=end", "--set", set_dir, NULL);
    double a = program_number(&p, "val.accuracy");
    print_message("%s: %.2f %% after %.1f s\n", dir, a * 100, p.seconds);
    return a;
}

static void lenet_learns_digits(void **state) {
    (void)state;
    assert_true(accuracy("lenet", "digits", "8ep", "{name: sgd, lr: 0.05, momentum: 0.9}", "lenet-digits") > 0.98);
}

static void a_linear_model_does_not(void **state) {
    (void)state;
    double a =
        accuracy("{layers: [flatten, {linear: 10}]}", "digits", "20ep", "{name: adam, lr: 0.002}", "linear-digits");
    assert_true(a > 0.5);
    assert_true(a < 0.93);
}

static void lenet_learns_mnist(void **state) {
    (void)state;
    static const char images[] = ENGINE_SOURCE_DIR "/../shared/data/mnist/t10k-images-idx3-ubyte.gz";
    if (access(images, R_OK) != 0) {
        print_message("skipped: no MNIST file at hand\n");
        skip();
    }
    char data[600];
    snprintf(data, sizeof data, "{set: idx, train: %s, val: 2000}", images);
    assert_true(accuracy("lenet", data, "8ep", "{name: sgd, lr: 0.05, momentum: 0.9}", "lenet-mnist") > 0.975);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_learns_digits),
        cmocka_unit_test(a_linear_model_does_not),
        cmocka_unit_test(lenet_learns_mnist),
    };
    return cmocka_run_group_tests_name("learns", tests, NULL, NULL);
}
