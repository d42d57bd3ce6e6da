/* Twenty steps of mlp and lenet from the engine's own first weights against the losses that PyTorch
 * gives from the same weights on the same data (tests/reference, written by make_reference.py); plainly, and with
 * groups of weights, frozen ones, and clipping. */
#include "tests/harness/program.h"
#include "tests/unit/data_pictures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64, PIXELS = 784, STEPS = 20 };

static void write_npy(const char *path, const char *dtype, const char *shape, const void *data, size_t n) {
    char header[128];
    int used = snprintf(header + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", dtype, shape);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(header + 10 + used, ' ', (size_t)(117 - used));
    header[127] = '\n';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(header, 1, sizeof header, f), sizeof header);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int setup(void **state) {
    (void)state;
    static float x[SAMPLES * PIXELS];
    int64_t y[SAMPLES];
    for (uint64_t i = 0; i < SAMPLES * PIXELS; i++)
        x[i] = (float)((i * 2654435761u + 12345) % (UINT64_C(1) << 32) >> 8) / (float)(1 << 24);
    for (int i = 0; i < SAMPLES; i++) y[i] = (i * 7 + 3) % 10;
    write_npy(scratch_path("x.npy"), "<f4", "(64, 1, 28, 28)", x, sizeof x);
    write_npy(scratch_path("y.npy"), "<i8", "(64,)", y, sizeof y);
    return 0;
}

/* *last: one more behind them; NULL: there is none. */
static void read_numbers(const char *path, const char *before, double out[STEPS], double *last) {
    char line[1024];
    int n = 0;
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("cannot read %s", path);
    while (n < STEPS && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, before);
        if (at) out[n++] = strtod(at + strlen(before), NULL);
    }
    if (last) assert_int_equal(fscanf(f, "%lf", last), 1);
    fclose(f);
    assert_int_equal(n, STEPS);
}

static struct program p;

struct update { /* what is made of the gradients */
    const char *optimizer, *reference, *ema;
};
static const struct update plain = {"optimizer={name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 1e-4}", "",
                                    "ema=off"};

static void compare(const char *model, const struct update *u, const char *devices, const char *more) {
    char data[2048], set[128], dir[600], path[700];
    double ours[STEPS], theirs[STEPS], averaged = 0, worst = 0;
    snprintf(data, sizeof data,
             "data={set: npy, train: %s/x.npy, labels: %s/y.npy, val: %s/x.npy, val_labels: "
             "%s/y.npy, normalize: off}",
             scratch_folder(), scratch_folder(), scratch_folder(), scratch_folder());
    snprintf(set, sizeof set, "model=%s", model);
    snprintf(path, sizeof path, "%s-%s", model, devices);
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(path));
    program_run(&p, 60, "run", "--json", "--quiet", "--set", data, "--set", set, "--set", "batch=64", "--set",
                "train=20st", "--set", u->optimizer, "--set", devices, "--set",
                strstr(devices, ":1") ? "mode=single" : more, "--set", "checkpoint=off", "--set", "eval=end", "--set",
                u->ema, "--set", "threads=1", "--set", dir, NULL);
    if (p.code != 0) fail_msg("%s", p.err);
    snprintf(path, sizeof path, "%s/metrics.jsonl", program_string(&p, "run_dir"));
    read_numbers(path, "\"loss\":", ours, NULL);
    snprintf(path, sizeof path, "%s/tests/reference/%s%s.txt", ENGINE_SOURCE_DIR, model, u->reference);
    read_numbers(path, "", theirs, *u->reference ? &averaged : NULL);
    for (int i = 0; i < STEPS; i++) worst = fmax(worst, fabs(ours[i] - theirs[i]) / theirs[i]);
    print_message("%s%s on %s: worst relative difference of 20 losses to PyTorch %.1e\n", model, u->reference, devices,
                  worst);
    if (!(worst < 1e-5)) fail_msg("%s%s differs from PyTorch by %g", model, u->reference, worst);
    if (*u->reference && !(fabs(program_number(&p, "val.loss") / averaged - 1) < 1e-6))
        fail_msg("%s: the loss of the averaged weights is %.9g, PyTorch's %.9g", model, program_number(&p, "val.loss"),
                 averaged);
}

static void mlp_equals_pytorch(void **state) {
    (void)state;
    compare("mlp", &plain, "devices=cpu:1", NULL);
    compare("mlp", &plain, "devices=cpu:2", "mode=ddp");
    compare("mlp", &plain, "devices=ref:1", NULL);
}

static void lenet_equals_pytorch(void **state) {
    (void)state;
    compare("lenet", &plain, "devices=cpu:1", NULL);
    compare("lenet", &plain, "devices=cpu:2", "mode=ddp");
}

static const struct update mlp_update = {"optimizer={name: adamw, lr: 1e-3, weight_decay: 0.1, clip: 0.05, freeze: "
                                         "fc2.weight, groups: [{match: \"*.bias\", lr: "
                                         "2e-3, weight_decay: 0}, {match: \"fc1.*\", lr: 3e-4, betas: [0.8, 0.95]}]}",
                                         "_update", "ema=0.9"};
static const struct update lenet_update = {
    "optimizer={name: sgd, lr: 2, momentum: 0.9, nesterov: true, weight_decay: 0.01, clip: 0.01, freeze: [conv1.*, "
    "conv2.weight], groups: [{match: \"*.bias\", weight_decay: 0, momentum: 0.5}]}",
    "_update", "ema=0.9"};

/* A frozen weight in the middle, and one behind which backward has nothing to do; neither counts in the norm. */
static void groups_and_frozen_weights_equal_pytorch(void **state) {
    (void)state;
    compare("mlp", &mlp_update, "devices=cpu:1", NULL);
    compare("mlp", &mlp_update, "devices=cpu:2", "mode=dp");
    compare("lenet", &lenet_update, "devices=cpu:1", NULL);
    compare("lenet", &lenet_update, "devices=cpu:2", "mode=ddp");
    compare("lenet", &lenet_update, "devices=ref:1", NULL);
}

/* Picture k of class c: 'seed' 9 c + k, (40 + 3 k) x (36 + 5 c) pixels. */
static void make_pictures(void) {
    static const char *const parts[] = {"train", "val"};
    char name[64];
    folder_put("pictures");
    for (int part = 0; part < 2; part++) {
        snprintf(name, sizeof name, "pictures/%s", parts[part]);
        folder_put(name);
        for (int c = 0; c < 3; c++) {
            snprintf(name, sizeof name, "pictures/%s/%d", parts[part], c);
            folder_put(name);
            for (int k = 0; k < (part ? 1 : 9); k++) {
                snprintf(name, sizeof name, "pictures/%s/%d/%d.png", parts[part], c, k);
                png_put(name, 9 * c + k, 40 + 3 * k, 36 + 5 * c, PNG_COLOR_TYPE_RGB, 8);
            }
        }
    }
}

/* Five epochs of a folder through torchvision's ImageFolder, Resize and CenterCrop, in the order of DistributedSampler. */
static void pictures_equal_torchvision(void **state) {
    (void)state;
    char data[700], dir[600], path[700];
    double ours[STEPS], theirs[STEPS], worst = 0;
    make_pictures();
    snprintf(data, sizeof data,
             "data={set: images, train: %s, size: 28, resize: 32, resample: torchvision, order: pytorch, "
             "normalize: {mean: 0.5, std: 0.25}}",
             scratch_path("pictures"));
    static const char *const ways[][2] = {{"cpu:1", "mode=single"}, {"cpu:2", "mode=ddp"}};
    for (int way = 0; way < 2; way++) {
        snprintf(path, sizeof path, "pictures-%d", way);
        snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(path));
        snprintf(path, sizeof path, "devices=%s", ways[way][0]);
        program_run(&p, 60, "run", "--json", "--quiet", "--set", data, "--set",
                    "model={layers: [{conv2d: {out: 8, kernel: 3, stride: 2}}, relu, {conv2d: {out: 16, kernel: 3, "
                    "stride: 2}}, relu, flatten, {linear: 3}]}",
                    "--set", "batch=8", "--set", "train=20st", "--set",
                    "optimizer={name: sgd, lr: 0.05, momentum: 0.9, weight_decay: 1e-4}", "--set", path, "--set",
                    ways[way][1], "--set", "checkpoint=off", "--set", "eval=end", "--set", "threads=1", "--set", dir,
                    NULL);
        if (p.code != 0) fail_msg("%s", p.err);
        snprintf(path, sizeof path, "%s/metrics.jsonl", program_string(&p, "run_dir"));
        read_numbers(path, "\"loss\":", ours, NULL);
        read_numbers(ENGINE_SOURCE_DIR "/tests/reference/pictures.txt", "", theirs, NULL);
        for (int i = 0; i < STEPS; i++) worst = fmax(worst, fabs(ours[i] - theirs[i]));
    }
    print_message("pictures: worst difference of 20 losses to torchvision and PyTorch %.1e\n", worst);
    if (!(worst < 1e-4)) fail_msg("pictures differ from torchvision by %g", worst);
}

/* Eighteen steps at once, and nine and then nine in the middle of an epoch: the same weights, in that order alone. */
static void an_order_goes_on(void **state) {
    (void)state;
    char whole[80], dir[600], name[16], resume[600];
    static const char data[] = "data={set: digits, train: 100, val: 20, order: pytorch}";
    const char *const keys[][3] = {{data, "train=18st", "checkpoint=off"},
                                   {data, "train=9st", "checkpoint=9st"},
                                   {data, "train=18st", resume},
                                   {"data={set: digits, train: 100, val: 20}", "train=18st", resume},
                                   {"data={set: digits, train: 100, val: 20, order: file}", "train=18st", "eval=end"}};
    snprintf(resume, sizeof resume, "checkpoint.resume=%s", scratch_path("order-1"));
    for (int i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "order-%d", i);
        snprintf(dir, sizeof dir, "log.dir=%s", scratch_path(name));
        program_run(&p, 60, "run", "--json", "--quiet", "--set", "mode=single", "--set", "devices=cpu:1", "--set",
                    "model={layers: [flatten, {linear: 10}]}", "--set", "batch=16", "--set", "eval=end", "--set",
                    keys[i][0], "--set", keys[i][1], "--set", keys[i][2], "--set", dir, NULL);
        if (p.code != (i == 3 ? 78 : 0)) fail_msg("%d: code %d: %s", i, p.code, p.err);
        if (i == 3) continue; /* another order is another run */
        const char *weights = program_string(&p, "weights_sha256");
        if (i == 0) snprintf(whole, sizeof whole, "%s", weights);
        assert_true((i == 1 || i == 4) == (strcmp(weights, whole) != 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mlp_equals_pytorch), cmocka_unit_test(lenet_equals_pytorch),
                                       cmocka_unit_test(groups_and_frozen_weights_equal_pytorch),
                                       cmocka_unit_test(pictures_equal_torchvision),
                                       cmocka_unit_test(an_order_goes_on)};
    return cmocka_run_group_tests_name("PyTorch", tests, setup, NULL);
}
