/* The cases that every implementation of the ops is tried on: a new one is one line here. */
#pragma once
#include "tests/harness/shapes.h"

#include "engine/device/impl.h"

struct op_case {
    const char *name;
    struct op_desc d;
    bool eval;       /* forward only, not training */
    bool smooth;     /* and small: gradients are checked against finite differences */
    bool by_label;   /* losses */
    bool mixed;      /* by_label: of two each */
    bool weighted;   /* cross-entropy: by the classes' weights */
    float smoothing; /* cross-entropy */
    bool add;        /* the gradient of w0 is added to what is there */
};

#define LINEAR(samples, in, out, ...) .d = {.kind = OP_LINEAR, .n = samples, .x = F(in), .y = F(out), __VA_ARGS__}
#define LINEAR_ROWS(samples, rows, in, out, ...)                                                                       \
    .d = {.kind = OP_LINEAR, .n = samples, .x = ROWS(rows, in), .y = ROWS(rows, out), __VA_ARGS__}
#define CONV(samples, xs, ys, win, g, ...)                                                                             \
    .d = {.kind = OP_CONV2D,                                                                                           \
          .n = samples,                                                                                                \
          .x = xs,                                                                                                     \
          .y = ys,                                                                                                     \
          .conv = {.window = win, .groups = g, .bias = true},                                                          \
          __VA_ARGS__}
#define SAME(op, samples, s, ...) .d = {.kind = op, .n = samples, .x = s, .y = s, __VA_ARGS__}
#define RELU .act = ACT_RELU
#define LEAKY(slope) .act = ACT_LEAKY_RELU, .act_alpha = slope
#define GELU .act = ACT_GELU
#define FIRST .first = true
#define BF16 .precision = PRECISION_BF16
#define BIAS .linear = {true}
#define TRANSPOSED .linear = {false, true}
#define BIAS_TRANSPOSED .linear = {true, true}
#define NORM .norm = {1e-5f, 0.1f}
#define SEQUENCE(op, samples, xs, ys, ...) .d = {.kind = op, .n = samples, .x = xs, .y = ys, __VA_ARGS__}
#define HEADS(samples, positions, heads, size, see_back)                                                               \
    .d = {.kind = OP_ATTENTION,                                                                                        \
          .n = samples,                                                                                                \
          .x = ROWS(positions, 3 * (heads) * (size)),                                                                  \
          .y = ROWS(positions, (heads) * (size)),                                                                      \
          .attention = {heads, see_back}}

static const struct op_case cases[] = {
    {"linear", LINEAR(7, 13, 5, BIAS), .smooth = true},
    {"linear of one", LINEAR(1, 1, 1, BIAS), .smooth = true},
    {"linear one sample", LINEAR(1, 33, 17, BIAS, RELU)},
    {"linear without bias", LINEAR(16, 48, 96, RELU)},
    {"linear first", LINEAR(64, 392, 256, BIAS, RELU, FIRST)},
    {"linear wide", LINEAR(40, 256, 272, BIAS, RELU)},
    {"linear head", LINEAR(128, 512, 10, BIAS)},
    {"linear deep", LINEAR(3, 2500, 19, BIAS)},
    {"linear tall", LINEAR(130, 31, 49, BIAS, RELU)},
    {"linear eval", LINEAR(9, 24, 10, BIAS, RELU), .eval = true},

    {"linear transposed", LINEAR(6, 11, 7, BIAS_TRANSPOSED), .smooth = true},
    {"linear transposed one sample", LINEAR(1, 70, 33, TRANSPOSED, RELU)},
    {"linear transposed first", LINEAR(40, 90, 130, BIAS_TRANSPOSED, RELU, FIRST)},
    {"linear transposed deep", LINEAR(5, 2100, 50, BIAS_TRANSPOSED)},
    {"linear of rows", LINEAR_ROWS(3, 5, 9, 4, BIAS), .smooth = true},
    {"linear of many rows", LINEAR_ROWS(4, 33, 48, 144, BIAS, RELU)},
    {"linear of rows transposed", LINEAR_ROWS(3, 17, 64, 50, BIAS_TRANSPOSED), .smooth = true},
    {"linear of rows eval", LINEAR_ROWS(2, 7, 40, 65, ), .eval = true},
    {"linear gelu", LINEAR(6, 9, 5, BIAS, GELU), .smooth = true},
    {"linear gelu transposed", LINEAR_ROWS(3, 17, 64, 50, TRANSPOSED, GELU), .smooth = true},
    {"linear bf16", LINEAR(7, 13, 5, BIAS, BF16)},
    {"linear bf16 one sample", LINEAR(1, 99, 33, BIAS, RELU, BF16)},
    {"linear bf16 first", LINEAR(64, 392, 256, BIAS, RELU, FIRST, BF16)},
    {"linear bf16 wide", LINEAR(40, 256, 1000, RELU, BF16)},
    {"linear bf16 deep", LINEAR(3, 2501, 19, BIAS, BF16)},
    {"linear bf16 of rows", LINEAR_ROWS(5, 131, 48, 144, BIAS, BF16)},
    {"linear bf16 transposed", LINEAR_ROWS(3, 17, 65, 51, BIAS_TRANSPOSED, BF16)},
    {"linear bf16 added", LINEAR_ROWS(2, 9, 33, 65, TRANSPOSED, BF16), .add = true},
    {"linear bf16 eval", LINEAR(9, 24, 10, BIAS, RELU, BF16), .eval = true},
    {"linear added", LINEAR(7, 20, 30, BIAS), .add = true, .smooth = true},
    {"linear gelu tanh", LINEAR(9, 40, 56, BIAS, .act = ACT_GELU_TANH)},
    {"linear gelu tanh odd", LINEAR_ROWS(3, 11, 33, 21, BIAS_TRANSPOSED, .act = ACT_GELU_TANH)},
    {"linear gelu tanh eval", LINEAR(9, 40, 56, BIAS, .act = ACT_GELU_TANH), .eval = true},
    {"linear gelu tanh eval odd", LINEAR(70, 40, 57, .act = ACT_GELU_TANH), .eval = true},
    {"linear of rows added", LINEAR_ROWS(2, 9, 33, 65, RELU), .add = true},
    {"linear transposed added", LINEAR_ROWS(2, 9, 33, 65, TRANSPOSED), .add = true, .smooth = true},

    {"conv 3x3", CONV(2, CHW(3, 6, 7), CHW(4, 4, 5), SQUARE(3, 1, 0), 1, ), .smooth = true},
    {"conv padded", CONV(3, CHW(16, 9, 9), CHW(32, 9, 9), SQUARE(3, 1, 1), 1, RELU)},
    {"conv 64", CONV(4, CHW(64, 8, 8), CHW(64, 8, 8), SQUARE(3, 1, 1), 1, )},
    {"conv 4x4 maps", CONV(2, CHW(64, 4, 4), CHW(96, 4, 4), SQUARE(3, 1, 1), 1, RELU)},
    {"conv stride 2", CONV(2, CHW(16, 9, 11), CHW(24, 5, 6), SQUARE(3, 2, 1), 1, RELU)},
    {"conv 1x1 stride 2", CONV(3, CHW(32, 8, 8), CHW(48, 4, 4), SQUARE(1, 2, 0), 1, )},
    {"conv 5x5 lenet 1", CONV(5, CHW(1, 28, 28), CHW(6, 28, 28), SQUARE(5, 1, 2), 1, RELU, FIRST)},
    {"conv 5x5 lenet 2", CONV(5, CHW(6, 14, 14), CHW(16, 10, 10), SQUARE(5, 1, 0), 1, RELU)},
    {"conv stem", CONV(2, CHW(3, 32, 32), CHW(64, 32, 32), SQUARE(3, 1, 1), 1, FIRST)},
    {"conv 7x7 stride 3", CONV(1, CHW(3, 23, 20), CHW(5, 8, 7), SQUARE(7, 3, 3), 1, ), .smooth = true},
    {"conv groups", CONV(2, CHW(12, 7, 7), CHW(20, 7, 7), SQUARE(3, 1, 1), 4, RELU)},
    {"conv depthwise", CONV(2, CHW(8, 7, 6), CHW(8, 7, 6), SQUARE(3, 1, 1), 8, ), .smooth = true},
    {"conv patches", CONV(2, CHW(3, 32, 32), CHW(32, 2, 2), SQUARE(16, 16, 0), 1, FIRST)},
    {"conv oblong", .d = {.kind = OP_CONV2D,
                          .n = 2,
                          .x = CHW(5, 9, 8),
                          .y = CHW(7, 4, 9),
                          RELU,
                          .conv = {.window = {{3, 2}, {2, 1}, {0, 1}}, .groups = 1}}},
    {"conv eval", CONV(3, CHW(16, 5, 5), CHW(16, 5, 5), SQUARE(3, 1, 1), 1, RELU), .eval = true},
    {"conv whole blocks", CONV(2, CHW(32, 9, 8), CHW(48, 9, 8), SQUARE(3, 1, 1), 1, RELU)},
    {"conv blocks by panel", CONV(2, CHW(144, 7, 9), CHW(176, 7, 9), SQUARE(3, 1, 1), 1, RELU)},
    {"conv blocks many tiles", CONV(9, CHW(32, 20, 17), CHW(48, 18, 15), SQUARE(3, 1, 0), 1, )},
    {"conv blocks stride 2", CONV(3, CHW(64, 8, 8), CHW(128, 4, 4), SQUARE(3, 2, 1), 1, )},
    {"conv blocks 1x1", CONV(2, CHW(48, 5, 7), CHW(32, 5, 7), SQUARE(1, 1, 0), 1, )},
    {"conv blocks 4x4 maps", CONV(5, CHW(64, 4, 4), CHW(64, 4, 4), SQUARE(3, 1, 1), 1, )},
    {"conv blocks from 1", CONV(2, CHW(1, 6, 8), CHW(32, 6, 8), SQUARE(3, 1, 1), 1, )},
    {"conv blocks from 2", CONV(2, CHW(2, 6, 8), CHW(32, 3, 4), SQUARE(3, 2, 1), 1, BF16)},
    {"conv blocks from 3, 7x7", CONV(2, CHW(3, 23, 24), CHW(64, 12, 12), SQUARE(7, 2, 3), 1, )},
    {"conv blocks from 4", CONV(2, CHW(4, 6, 8), CHW(32, 6, 8), SQUARE(3, 1, 1), 1, )},
    {"conv blocks in groups", CONV(2, CHW(64, 6, 6), CHW(32, 6, 6), SQUARE(3, 1, 1), 2, RELU)},
    {"conv blocks depthwise", CONV(3, CHW(32, 9, 7), CHW(32, 9, 7), SQUARE(3, 1, 1), 32, )},
    {"conv depthwise stride 2", CONV(2, CHW(48, 9, 8), CHW(48, 5, 4), SQUARE(3, 2, 1), 48, RELU)},
    {"conv stride 3, even kernel", CONV(2, CHW(20, 11, 14), CHW(37, 4, 5), SQUARE(4, 3, 1), 1, RELU)},
    {"conv 1x1 stride 3", CONV(1, CHW(17, 8, 10), CHW(33, 3, 4), SQUARE(1, 3, 0), 1, )},
    {"conv 1x1 padded", CONV(2, CHW(16, 4, 5), CHW(32, 6, 7), SQUARE(1, 1, 1), 1, )},
    {"conv blocks of many", CONV(3, CHW(304, 5, 6), CHW(96, 3, 3), SQUARE(3, 2, 1), 1, RELU)},
    {"conv blocks 5x5", CONV(2, CHW(32, 9, 12), CHW(80, 5, 6), SQUARE(5, 2, 2), 1, )},
    {"conv blocks left over", CONV(2, CHW(16, 10, 9), CHW(16, 3, 3), SQUARE(2, 3, 0), 1, )},
    {"conv blocks patches", CONV(3, CHW(32, 8, 12), CHW(48, 2, 3), SQUARE(4, 4, 0), 1, )},
    {"conv blocks of large images", CONV(1, CHW(16, 60, 70), CHW(32, 30, 35), SQUARE(3, 2, 1), 1, )},
    {"conv groups of parts", CONV(2, CHW(48, 6, 7), CHW(96, 3, 4), SQUARE(3, 2, 1), 6, RELU)},
    {"conv depthwise of 20", CONV(2, CHW(20, 9, 8), CHW(20, 3, 2), SQUARE(5, 3, 1), 20, RELU)},
    {"conv bf16", CONV(3, CHW(32, 9, 9), CHW(48, 9, 9), SQUARE(3, 1, 1), 1, RELU, BF16)},
    {"conv bf16 stem", CONV(2, CHW(3, 16, 16), CHW(64, 16, 16), SQUARE(3, 1, 1), 1, FIRST, BF16)},
    {"conv bf16 1x1", CONV(2, CHW(32, 8, 8), CHW(64, 4, 4), SQUARE(1, 2, 0), 1, BF16)},
    {"conv bf16 odd", CONV(2, CHW(5, 7, 8), CHW(7, 7, 8), SQUARE(3, 1, 1), 1, BF16)},
    {"conv bf16 stride", CONV(5, CHW(32, 9, 8), CHW(32, 5, 4), SQUARE(3, 2, 1), 1, RELU, BF16)},
    {"conv bf16 one sample", CONV(1, CHW(48, 8, 8), CHW(16, 4, 4), SQUARE(3, 2, 1), 1, RELU, BF16)},
    {"conv bf16 groups", CONV(3, CHW(32, 7, 8), CHW(64, 7, 8), SQUARE(3, 1, 1), 2, BF16)},
    {"conv bf16 depthwise", CONV(2, CHW(32, 7, 7), CHW(32, 7, 7), SQUARE(3, 1, 1), 32, BF16)},
    {"conv pool lenet 1", .d = {.kind = OP_CONV2D,
                                .n = 5,
                                .x = CHW(1, 28, 28),
                                .y = CHW(6, 14, 14),
                                RELU,
                                FIRST,
                                .conv = {SQUARE(5, 1, 2), 1, true, true}}},
    {"conv pool lenet 2", .d = {.kind = OP_CONV2D,
                                .n = 5,
                                .x = CHW(6, 14, 14),
                                .y = CHW(16, 5, 5),
                                RELU,
                                .conv = {SQUARE(5, 1, 0), 1, true, true}}},
    {"conv pool odd, eval", .eval = true,
     .d =
         {.kind = OP_CONV2D, .n = 2, .x = CHW(4, 9, 11), .y = CHW(8, 4, 5), .conv = {SQUARE(3, 1, 1), 1, false, true}}},

    {"max 2x2",
     .d = {.kind = OP_POOL2D, .n = 3, .x = CHW(5, 8, 10), .y = CHW(5, 4, 5), .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 2x2 odd",
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(3, 7, 37), .y = CHW(3, 3, 18), .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 3x3",
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(4, 9, 8), .y = CHW(4, 5, 4), .pool = {POOL_MAX, SQUARE(3, 2, 1)}}},
    {"max overlapping",
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(4, 9, 8), .y = CHW(4, 7, 6), .pool = {POOL_MAX, SQUARE(3, 1, 0)}}},
    {"max eval", .eval = true,
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(4, 9, 8), .y = CHW(4, 3, 2), .pool = {POOL_MAX, SQUARE(3, 3, 0)}}},
    {"max 2x2 blocks",
     .d = {.kind = OP_POOL2D, .n = 3, .x = CHW(32, 8, 10), .y = CHW(32, 4, 5), .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 3x3 blocks",
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(16, 9, 8), .y = CHW(16, 5, 4), .pool = {POOL_MAX, SQUARE(3, 2, 1)}}},
    {"max blocks eval", .eval = true,
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(32, 7, 7), .y = CHW(32, 5, 5), .pool = {POOL_MAX, SQUARE(3, 1, 0)}}},
    {"mean blocks padded",
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(48, 7, 9), .y = CHW(48, 4, 5), .pool = {POOL_AVG, SQUARE(3, 2, 1)}}},
    {"reorder", SAME(OP_REORDER, 3, CHW(48, 5, 7), )},
    {"mean global", .smooth = true,
     .d = {.kind = OP_POOL2D, .n = 3, .x = CHW(16, 4, 4), .y = CHW(16, 1, 1), .pool = {POOL_AVG, SQUARE(4, 1, 0)}}},
    {"mean padded", .smooth = true,
     .d = {.kind = OP_POOL2D, .n = 2, .x = CHW(2, 7, 9), .y = CHW(2, 4, 5), .pool = {POOL_AVG, SQUARE(3, 2, 1)}}},

    {"relu", SAME(OP_ACTIVATION, 3, F(1001), RELU)},
    {"relu planes", SAME(OP_ACTIVATION, 2, CHW(3, 5, 7), RELU)},
    {"leaky relu", SAME(OP_ACTIVATION, 3, F(1001), LEAKY(0.2f))},
    {"leaky relu threads", SAME(OP_ACTIVATION, 30, F(1333), LEAKY(0.01f))},
    {"leaky relu planes", SAME(OP_ACTIVATION, 9, CHW(16, 31, 3), LEAKY(1.5f))},
    {"leaky relu after linear", LINEAR(9, 40, 56, BIAS, LEAKY(0.1f))},
    {"gelu", SAME(OP_ACTIVATION, 3, F(333), .act = ACT_GELU), .smooth = true},
    {"gelu threads", SAME(OP_ACTIVATION, 40, F(333), .act = ACT_GELU)},
    {"gelu first", SAME(OP_ACTIVATION, 3, F(77), .act = ACT_GELU, FIRST)},
    {"add", SAME(OP_ADD, 5, CHW(3, 5, 7), ), .smooth = true},
    {"add relu", SAME(OP_ADD, 50, CHW(3, 15, 7), RELU)},
    {"add first", SAME(OP_ADD, 3, F(77), RELU, FIRST)},
    {"dropout", SAME(OP_DROPOUT, 9, F(1003), .dropout = {0.3f, 2})},
    {"dropout of 1", SAME(OP_DROPOUT, 3, F(1), .dropout = {0.5f, 0})},
    {"dropout of none", SAME(OP_DROPOUT, 3, F(100), .dropout = {0, 1})},
    {"dropout eval", SAME(OP_DROPOUT, 3, F(100), .dropout = {0.5f, 1}), .eval = true},
    {"dropout planes", SAME(OP_DROPOUT, 3, CHW(6, 5, 4), .dropout = {0.4f, 3})},
    {"dropout of packs", SAME(OP_DROPOUT, 5, F(96), .dropout = {0.2f, 1})},
    {"dropout first", SAME(OP_DROPOUT, 3, F(77), .dropout = {0.2f, 1}, FIRST)},

    {"batchnorm", SAME(OP_BATCHNORM, 4, CHW(3, 5, 7), NORM), .smooth = true},
    {"batchnorm relu", SAME(OP_BATCHNORM, 8, CHW(17, 8, 8), NORM, RELU)},
    {"batchnorm blocks", SAME(OP_BATCHNORM, 4, CHW(48, 5, 7), NORM)},
    {"batchnorm blocks eval", SAME(OP_BATCHNORM, 3, CHW(32, 3, 3), NORM, RELU), .eval = true},
    {"batchnorm blocks relu", SAME(OP_BATCHNORM, 5, CHW(32, 9, 8), NORM, RELU)},
    {"batchnorm features", SAME(OP_BATCHNORM, 33, F(50), NORM, RELU)},
    {"batchnorm of three", SAME(OP_BATCHNORM, 3, F(7), NORM)},
    {"batchnorm one sample", SAME(OP_BATCHNORM, 1, CHW(3, 5, 5), NORM)},
    {"batchnorm eval", SAME(OP_BATCHNORM, 1, F(9), NORM, RELU), .eval = true},
    {"batchnorm eval planes", SAME(OP_BATCHNORM, 3, CHW(4, 3, 3), NORM), .eval = true},

    {"cross-entropy", SAME(OP_CROSS_ENTROPY, 13, F(10), ), .by_label = true, .smooth = true},
    {"cross-entropy of many", SAME(OP_CROSS_ENTROPY, 5, F(1003), ), .by_label = true},
    {"cross-entropy of one", SAME(OP_CROSS_ENTROPY, 2, F(1), ), .by_label = true},
    {"mse", SAME(OP_MSE, 5, F(12), ), .smooth = true},
    {"mse by label", SAME(OP_MSE, 5, F(12), ), .by_label = true},
    {"cross-entropy of rows", SAME(OP_CROSS_ENTROPY, 3, ROWS(5, 7), ), .by_label = true, .smooth = true},
    {"cross-entropy of many rows", SAME(OP_CROSS_ENTROPY, 4, ROWS(130, 65), ), .by_label = true},
    {"cross-entropy of blocks", SAME(OP_CROSS_ENTROPY, 2, ROWS(3, 5003), ), .by_label = true},
    {"cross-entropy of packs", SAME(OP_CROSS_ENTROPY, 2, ROWS(3, 4096), ), .by_label = true},
    {"cross-entropy eval", SAME(OP_CROSS_ENTROPY, 3, F(1300), ), .by_label = true, .eval = true},
    {"mse wide", SAME(OP_MSE, 3, F(1501), )},
    {"mse wide by label", SAME(OP_MSE, 3, ROWS(2, 2304), ), .by_label = true},
    {"mse of rows", SAME(OP_MSE, 3, ROWS(4, 6), ), .smooth = true},
    {"cross-entropy smoothed", SAME(OP_CROSS_ENTROPY, 13, F(10), ), .smoothing = 0.1f, .by_label = true,
     .smooth = true},
    {"cross-entropy smoothed of one", SAME(OP_CROSS_ENTROPY, 3, F(1), ), .smoothing = 0.3f, .by_label = true},
    {"cross-entropy weighted", SAME(OP_CROSS_ENTROPY, 5, F(7), ), .by_label = true, .weighted = true, .smooth = true},
    {"cross-entropy mixed", SAME(OP_CROSS_ENTROPY, 6, F(11), ), .by_label = true, .mixed = true, .smooth = true},
    {"cross-entropy of all", SAME(OP_CROSS_ENTROPY, 5, ROWS(3, 9), ), .smoothing = 0.2f, .by_label = true,
     .mixed = true, .weighted = true, .smooth = true},
    {"cross-entropy of all, many", SAME(OP_CROSS_ENTROPY, 5, F(1003), ), .smoothing = 0.2f, .by_label = true,
     .mixed = true, .weighted = true},
    {"cross-entropy of all, blocks", SAME(OP_CROSS_ENTROPY, 2, ROWS(3, 4096), ), .smoothing = 0.1f, .by_label = true,
     .mixed = true, .weighted = true},
    {"mse mixed", SAME(OP_MSE, 5, ROWS(2, 12), ), .by_label = true, .mixed = true, .smooth = true},
    {"bce", SAME(OP_BCE, 5, F(12), ), .smooth = true},
    {"bce of one", SAME(OP_BCE, 7, F(1), ), .smooth = true},
    {"bce wide", SAME(OP_BCE, 3, F(1501), )},
    {"bce by label", SAME(OP_BCE, 4, F(10), ), .by_label = true, .smooth = true},
    {"bce of rows mixed", SAME(OP_BCE, 4, ROWS(3, 6), ), .by_label = true, .mixed = true, .smooth = true},
    {"bce wide mixed", SAME(OP_BCE, 3, ROWS(2, 2304), ), .by_label = true, .mixed = true},
    {"mse of rows by label", SAME(OP_MSE, 3, ROWS(4, 6), ), .by_label = true, .smooth = true},

    {"gelu tanh", SAME(OP_ACTIVATION, 3, F(333), .act = ACT_GELU_TANH), .smooth = true},
    {"gelu tanh rows", SAME(OP_ACTIVATION, 5, ROWS(40, 333), .act = ACT_GELU_TANH)},
    {"silu", SAME(OP_ACTIVATION, 3, F(333), .act = ACT_SILU), .smooth = true},
    {"silu planes", SAME(OP_ACTIVATION, 9, CHW(16, 31, 3), .act = ACT_SILU)},
    {"sigmoid", SAME(OP_ACTIVATION, 3, F(333), .act = ACT_SIGMOID), .smooth = true},
    {"sigmoid threads", SAME(OP_ACTIVATION, 30, F(1333), .act = ACT_SIGMOID)},
    {"tanh", SAME(OP_ACTIVATION, 3, F(333), .act = ACT_TANH), .smooth = true},
    {"tanh threads", SAME(OP_ACTIVATION, 30, F(1333), .act = ACT_TANH)},

    {"layernorm", SAME(OP_LAYERNORM, 3, ROWS(2, 13), .norm = {1e-5f, 0, true}), .smooth = true},
    {"layernorm features", SAME(OP_LAYERNORM, 7, F(192), .norm = {1e-5f, 0, true})},
    {"layernorm rows", SAME(OP_LAYERNORM, 5, ROWS(67, 100), .norm = {1e-5f, 0, true})},
    {"layernorm wide", SAME(OP_LAYERNORM, 2, ROWS(70, 768), .norm = {1e-5f, 0, true})},
    {"layernorm wider", SAME(OP_LAYERNORM, 2, ROWS(5, 1304), .norm = {1e-5f, 0, true})},
    {"layernorm wider, odd", SAME(OP_LAYERNORM, 2, ROWS(5, 1291), .norm = {1e-5f, 0, false})},
    {"layernorm wide first", SAME(OP_LAYERNORM, 4, F(1304), .norm = {1e-5f, 0, true}, FIRST)},
    {"layernorm many rows", SAME(OP_LAYERNORM, 2, ROWS(900, 24), .norm = {1e-5f, 0, true})},
    {"layernorm no bias", SAME(OP_LAYERNORM, 3, ROWS(9, 33), .norm = {1e-3f, 0, false}), .smooth = true},
    {"layernorm of one", SAME(OP_LAYERNORM, 3, F(1), .norm = {1e-5f, 0, true})},
    {"layernorm first", SAME(OP_LAYERNORM, 9, F(40), .norm = {1e-5f, 0, true}, FIRST)},
    {"layernorm eval", SAME(OP_LAYERNORM, 3, ROWS(9, 33), .norm = {1e-5f, 0, true}), .eval = true},
    {"rmsnorm", SAME(OP_RMSNORM, 3, ROWS(2, 13), .norm = {1e-6f}), .smooth = true},
    {"rmsnorm rows", SAME(OP_RMSNORM, 5, ROWS(67, 100), .norm = {1e-6f})},
    {"rmsnorm wide", SAME(OP_RMSNORM, 2, ROWS(9, 512), .norm = {1e-6f})},
    {"rmsnorm wider", SAME(OP_RMSNORM, 3, F(2056), .norm = {1e-6f})},
    {"rmsnorm eval", SAME(OP_RMSNORM, 2, F(48), .norm = {1e-6f}), .eval = true},

    {"embedding", SEQUENCE(OP_EMBEDDING, 3, F(7), ROWS(7, 5), FIRST, .embedding = {11}), .smooth = true},
    {"embedding of many", SEQUENCE(OP_EMBEDDING, 6, F(65), ROWS(65, 96), FIRST, .embedding = {301})},
    {"embedding added", SEQUENCE(OP_EMBEDDING, 4, F(9), ROWS(9, 33), FIRST, .embedding = {17}), .add = true},
    {"embedding of few", SEQUENCE(OP_EMBEDDING, 8, F(65), ROWS(65, 40), FIRST, .embedding = {3})},
    {"embedding of few added", SEQUENCE(OP_EMBEDDING, 8, F(65), ROWS(65, 41), FIRST, .embedding = {3}), .add = true},
    {"embedding of all words", SEQUENCE(OP_EMBEDDING, 8, F(120), ROWS(120, 5), FIRST, .embedding = {70001})},
    {"embedding eval", SEQUENCE(OP_EMBEDDING, 2, F(9), ROWS(9, 3), FIRST, .embedding = {7}), .eval = true},
    {"position", SAME(OP_POSITION, 4, ROWS(5, 6), ), .smooth = true},
    {"position of many", SAME(OP_POSITION, 9, ROWS(65, 99), )},
    {"position first", SAME(OP_POSITION, 2, ROWS(5, 6), FIRST)},
    {"prepend", SEQUENCE(OP_PREPEND, 4, ROWS(5, 6), ROWS(6, 6), ), .smooth = true},
    {"prepend to many", SEQUENCE(OP_PREPEND, 9, ROWS(64, 99), ROWS(65, 99), )},
    {"select", SEQUENCE(OP_SELECT, 4, ROWS(5, 6), F(6), .select = {3}), .smooth = true},
    {"select first row", SEQUENCE(OP_SELECT, 9, ROWS(65, 99), F(99), )},
    {"tokens", SEQUENCE(OP_TOKENS, 3, CHW(5, 2, 3), ROWS(6, 5), ), .smooth = true},
    {"tokens of many", SEQUENCE(OP_TOKENS, 6, CHW(48, 14, 15), ROWS(210, 48), )},
    {"mean of image", SEQUENCE(OP_MEAN, 3, CHW(5, 2, 3), F(5), ), .smooth = true},
    {"mean of images", SEQUENCE(OP_MEAN, 9, CHW(40, 7, 9), F(40), )},
    {"mean of blocks", SEQUENCE(OP_MEAN, 3, CHW(48, 5, 7), F(48), )},
    {"mean of rows", SEQUENCE(OP_MEAN, 3, ROWS(4, 5), F(5), ), .smooth = true},
    {"mean of many rows", SEQUENCE(OP_MEAN, 9, ROWS(65, 77), F(77), )},

    {"attention", HEADS(2, 5, 3, 4, false), .smooth = true},
    {"attention causal", HEADS(2, 7, 2, 8, true), .smooth = true},
    {"attention of one", HEADS(3, 1, 2, 8, true), .smooth = true},
    {"attention 32 x 128", HEADS(2, 128, 2, 32, true)},
    {"attention 64 x 96", HEADS(1, 96, 3, 64, false)},
    {"attention of patches", HEADS(2, 197, 2, 64, false)},
    {"attention odd causal", HEADS(3, 77, 2, 20, true)},
    {"attention odd", HEADS(1, 149, 1, 72, false)},
    {"attention large", HEADS(1, 70, 1, 128, true)},
    {"attention long causal", HEADS(1, 300, 2, 16, true)},
    {"attention eval", HEADS(2, 40, 2, 24, true), .eval = true},
};
enum { CASES = sizeof cases / sizeof *cases };
