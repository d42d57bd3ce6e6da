/* Every op on every kind of device, through every implementation that takes the case, against plain
 * C. A new case is one line of the table; a new implementation or device is found by itself.
 * Outputs and scratch are filled with NaN first, so that what is not written shows. Images of whole
 * blocks of channels are tried in the blocked layout too, by implementations that take it. */
#include "tests/harness/harness.h"
#include "tests/harness/shapes.h"

#include "engine/base/rng.h"
#include "engine/device/impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct op_case {
    const char *name;
    struct op_desc d;
    bool eval;     /* forward only, not training */
    bool smooth;   /* and small: gradients are checked against finite differences */
    bool by_label; /* losses */
    bool add;      /* the gradient of w0 is added to what is there */
};

#define LINEAR(samples, in, out, ...)                                                              \
    .d = {.kind = OP_LINEAR, .n = samples, .x = F(in), .y = F(out), __VA_ARGS__}
#define LINEAR_ROWS(samples, rows, in, out, ...)                                                   \
    .d = {.kind = OP_LINEAR, .n = samples, .x = ROWS(rows, in), .y = ROWS(rows, out), __VA_ARGS__}
#define CONV(samples, xs, ys, win, g, ...)                                                         \
    .d = {.kind = OP_CONV2D,                                                                       \
          .n = samples,                                                                            \
          .x = xs,                                                                                 \
          .y = ys,                                                                                 \
          .conv = {.window = win, .groups = g, .bias = true},                                      \
          __VA_ARGS__}
#define SAME(op, samples, s, ...) .d = {.kind = op, .n = samples, .x = s, .y = s, __VA_ARGS__}
#define RELU .act = ACT_RELU
#define GELU .act = ACT_GELU
#define FIRST .first = true
#define BF16 .precision = PRECISION_BF16
#define BIAS .linear = {true}
#define TRANSPOSED .linear = {false, true}
#define BIAS_TRANSPOSED .linear = {true, true}
#define NORM .norm = {1e-5f, 0.1f}
#define SEQUENCE(op, samples, xs, ys, ...)                                                         \
    .d = {.kind = op, .n = samples, .x = xs, .y = ys, __VA_ARGS__}
#define HEADS(samples, positions, heads, size, see_back)                                           \
    .d = {.kind = OP_ATTENTION,                                                                    \
          .n = samples,                                                                            \
          .x = ROWS(positions, 3 * (heads) * (size)),                                              \
          .y = ROWS(positions, (heads) * (size)),                                                  \
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
    {"conv 7x7 stride 3", CONV(1, CHW(3, 23, 20), CHW(5, 8, 7), SQUARE(7, 3, 3), 1, ),
     .smooth = true},
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
    {"conv bf16", CONV(3, CHW(32, 9, 9), CHW(48, 9, 9), SQUARE(3, 1, 1), 1, RELU, BF16)},
    {"conv bf16 stem", CONV(2, CHW(3, 16, 16), CHW(64, 16, 16), SQUARE(3, 1, 1), 1, FIRST, BF16)},
    {"conv bf16 1x1", CONV(2, CHW(32, 8, 8), CHW(64, 4, 4), SQUARE(1, 2, 0), 1, BF16)},
    {"conv bf16 odd", CONV(2, CHW(5, 7, 8), CHW(7, 7, 8), SQUARE(3, 1, 1), 1, BF16)},
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
     .d = {.kind = OP_CONV2D,
           .n = 2,
           .x = CHW(4, 9, 11),
           .y = CHW(8, 4, 5),
           .conv = {SQUARE(3, 1, 1), 1, false, true}}},

    {"max 2x2", .d = {.kind = OP_POOL2D,
                      .n = 3,
                      .x = CHW(5, 8, 10),
                      .y = CHW(5, 4, 5),
                      .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 2x2 odd", .d = {.kind = OP_POOL2D,
                          .n = 2,
                          .x = CHW(3, 7, 37),
                          .y = CHW(3, 3, 18),
                          .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 3x3", .d = {.kind = OP_POOL2D,
                      .n = 2,
                      .x = CHW(4, 9, 8),
                      .y = CHW(4, 5, 4),
                      .pool = {POOL_MAX, SQUARE(3, 2, 1)}}},
    {"max overlapping", .d = {.kind = OP_POOL2D,
                              .n = 2,
                              .x = CHW(4, 9, 8),
                              .y = CHW(4, 7, 6),
                              .pool = {POOL_MAX, SQUARE(3, 1, 0)}}},
    {"max eval", .eval = true,
     .d = {.kind = OP_POOL2D,
           .n = 2,
           .x = CHW(4, 9, 8),
           .y = CHW(4, 3, 2),
           .pool = {POOL_MAX, SQUARE(3, 3, 0)}}},
    {"max 2x2 blocks", .d = {.kind = OP_POOL2D,
                             .n = 3,
                             .x = CHW(32, 8, 10),
                             .y = CHW(32, 4, 5),
                             .pool = {POOL_MAX, SQUARE(2, 2, 0)}}},
    {"max 3x3 blocks", .d = {.kind = OP_POOL2D,
                             .n = 2,
                             .x = CHW(16, 9, 8),
                             .y = CHW(16, 5, 4),
                             .pool = {POOL_MAX, SQUARE(3, 2, 1)}}},
    {"max blocks eval", .eval = true,
     .d = {.kind = OP_POOL2D,
           .n = 2,
           .x = CHW(32, 7, 7),
           .y = CHW(32, 5, 5),
           .pool = {POOL_MAX, SQUARE(3, 1, 0)}}},
    {"mean blocks padded", .d = {.kind = OP_POOL2D,
                                 .n = 2,
                                 .x = CHW(48, 7, 9),
                                 .y = CHW(48, 4, 5),
                                 .pool = {POOL_AVG, SQUARE(3, 2, 1)}}},
    {"reorder", SAME(OP_REORDER, 3, CHW(48, 5, 7), )},
    {"mean global", .smooth = true,
     .d = {.kind = OP_POOL2D,
           .n = 3,
           .x = CHW(16, 4, 4),
           .y = CHW(16, 1, 1),
           .pool = {POOL_AVG, SQUARE(4, 1, 0)}}},
    {"mean padded", .smooth = true,
     .d = {.kind = OP_POOL2D,
           .n = 2,
           .x = CHW(2, 7, 9),
           .y = CHW(2, 4, 5),
           .pool = {POOL_AVG, SQUARE(3, 2, 1)}}},

    {"relu", SAME(OP_ACTIVATION, 3, F(1001), RELU)},
    {"relu planes", SAME(OP_ACTIVATION, 2, CHW(3, 5, 7), RELU)},
    {"gelu", SAME(OP_ACTIVATION, 3, F(333), .act = ACT_GELU), .smooth = true},
    {"gelu threads", SAME(OP_ACTIVATION, 40, F(333), .act = ACT_GELU)},
    {"add", SAME(OP_ADD, 5, CHW(3, 5, 7), ), .smooth = true},
    {"add relu", SAME(OP_ADD, 50, CHW(3, 15, 7), RELU)},
    {"dropout", SAME(OP_DROPOUT, 9, F(1003), .dropout = {0.3f, 2})},
    {"dropout of 1", SAME(OP_DROPOUT, 3, F(1), .dropout = {0.5f, 0})},
    {"dropout of none", SAME(OP_DROPOUT, 3, F(100), .dropout = {0, 1})},
    {"dropout eval", SAME(OP_DROPOUT, 3, F(100), .dropout = {0.5f, 1}), .eval = true},

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
    {"cross-entropy of rows", SAME(OP_CROSS_ENTROPY, 3, ROWS(5, 7), ), .by_label = true,
     .smooth = true},
    {"cross-entropy of many rows", SAME(OP_CROSS_ENTROPY, 4, ROWS(130, 65), ), .by_label = true},
    {"cross-entropy of blocks", SAME(OP_CROSS_ENTROPY, 2, ROWS(3, 5003), ), .by_label = true},
    {"mse of rows", SAME(OP_MSE, 3, ROWS(4, 6), ), .smooth = true},
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
    {"layernorm no bias", SAME(OP_LAYERNORM, 3, ROWS(9, 33), .norm = {1e-3f, 0, false}),
     .smooth = true},
    {"layernorm of one", SAME(OP_LAYERNORM, 3, F(1), .norm = {1e-5f, 0, true})},
    {"layernorm first", SAME(OP_LAYERNORM, 9, F(40), .norm = {1e-5f, 0, true}, FIRST)},
    {"layernorm eval", SAME(OP_LAYERNORM, 3, ROWS(9, 33), .norm = {1e-5f, 0, true}), .eval = true},
    {"rmsnorm", SAME(OP_RMSNORM, 3, ROWS(2, 13), .norm = {1e-6f}), .smooth = true},
    {"rmsnorm rows", SAME(OP_RMSNORM, 5, ROWS(67, 100), .norm = {1e-6f})},
    {"rmsnorm eval", SAME(OP_RMSNORM, 2, F(48), .norm = {1e-6f}), .eval = true},

    {"embedding", SEQUENCE(OP_EMBEDDING, 3, F(7), ROWS(7, 5), FIRST, .embedding = {11}),
     .smooth = true},
    {"embedding of many",
     SEQUENCE(OP_EMBEDDING, 6, F(65), ROWS(65, 96), FIRST, .embedding = {301})},
    {"embedding added", SEQUENCE(OP_EMBEDDING, 4, F(9), ROWS(9, 33), FIRST, .embedding = {17}),
     .add = true},
    {"embedding eval", SEQUENCE(OP_EMBEDDING, 2, F(9), ROWS(9, 3), FIRST, .embedding = {7}),
     .eval = true},
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

/* ---- one run of a case ---------------------------------------------------------------------- */
/* What a run reads and writes; 'out' are what is compared. */
enum { X0, X1, W0, W1, DY, TARGET, INPUTS, Y = 0, DX0, DX1, DW0, DW1, MEAN, VAR, OUTPUTS };
static const char *const output_names[] = {"y", "dx[0]", "dx[1]", "dw[0]", "dw[1]", "mean", "var"};

struct run {
    const struct op_case *c;
    int64_t in_size[INPUTS], out_size[OUTPUTS];
    float *in[INPUTS], *out[OUTPUTS];
    int32_t *labels;
    uint64_t *ids;
    double sums[2];
};

static int64_t weight_count(const struct op_desc *d, int which) {
    const struct window *w = &d->conv.window;
    switch (d->kind) {
    case OP_LINEAR:
        if (which) return d->linear.bias ? shape_last(&d->y) : 0;
        return shape_last(&d->x) * shape_last(&d->y);
    case OP_CONV2D:
        if (which) return d->conv.bias ? d->y.dim[0] : 0;
        return d->y.dim[0] * d->x.dim[0] / d->conv.groups * w->kernel[0] * w->kernel[1];
    case OP_BATCHNORM:
        return d->x.dim[0];
    case OP_LAYERNORM:
    case OP_RMSNORM:
        return !which || d->norm.bias ? shape_last(&d->x) : 0;
    case OP_EMBEDDING:
        return which ? 0 : d->embedding.vocabulary * shape_last(&d->y);
    case OP_POSITION:
        return which ? 0 : shape_count(&d->x);
    case OP_PREPEND:
        return which ? 0 : shape_last(&d->x);
    default:
        return 0;
    }
}

static void *memory(int64_t bytes) {
    void *p = NULL;
    assert_ok(memory_alloc((size_t)bytes, &p));
    return p;
}

static void sizes(struct run *r) {
    const struct op_desc *d = &r->c->d;
    bool loss = d->kind == OP_CROSS_ENTROPY || d->kind == OP_MSE, back = !r->c->eval;
    int64_t xs = op_xs(d), ys = op_ys(d), second = d->kind == OP_ADD ? xs : 0;
    int64_t w0 = weight_count(d, 0), w1 = weight_count(d, 1);
    const int64_t in[INPUTS] = {xs, second, w0, w1, loss ? 0 : ys, d->kind == OP_MSE ? xs : 0};
    int64_t moments = d->kind == OP_BATCHNORM ? d->x.dim[0] : 0;
    const int64_t out[OUTPUTS] = {d->kind == OP_MSE ? 0 : ys,
                                  back && !d->first ? xs : 0,
                                  back ? second : 0,
                                  back ? w0 : 0,
                                  back ? w1 : 0,
                                  moments,
                                  moments};
    memcpy(r->in_size, in, sizeof in);
    memcpy(r->out_size, out, sizeof out);
}

static void run_init(struct run *r, const struct op_case *c) {
    struct rng_key key = rng_key(7, RNG_TEST);
    *r = (struct run){.c = c};
    sizes(r);
    for (int t = 0; t < INPUTS; t++) {
        r->in[t] = memory(r->in_size[t] * 4);
        for (int64_t k = 0; k < r->in_size[t]; k++)
            r->in[t][k] = rng_normal(key, (uint64_t)t, (uint64_t)k);
    }
    for (int t = 0; t < OUTPUTS; t++) r->out[t] = memory(r->out_size[t] * 4);
    for (int64_t k = 0; k < r->in_size[X0] && c->d.kind == OP_EMBEDDING; k++)
        r->in[X0][k] = (float)(k * k % c->d.embedding.vocabulary); /* some twice, some never */
    r->labels = memory(op_rows(&c->d) * 4);
    r->ids = memory(c->d.n * 8);
    for (int64_t i = 0; i < op_rows(&c->d); i++)
        r->labels[i] = (int32_t)(i * 7 % shape_last(&c->d.x));
    for (int64_t i = 0; i < c->d.n; i++) r->ids[i] = 1000003u * (uint64_t)(i + 1);
}

static void run_fini(struct run *r) {
    for (int t = 0; t < INPUTS; t++) memory_free(r->in[t]);
    for (int t = 0; t < OUTPUTS; t++) memory_free(r->out[t]);
    memory_free(r->labels);
    memory_free(r->ids);
}

static float *or_null(float *p, int64_t size) {
    return size ? p : NULL;
}

static struct op_args args_of(struct run *r, void *saved, void *scratch) {
    const struct op_case *c = r->c;
    struct op_args a = {.y = or_null(r->out[Y], r->out_size[Y]),
                        .saved = c->eval ? NULL : saved,
                        .scratch = scratch,
                        .add_dw = c->add,
                        .training = !c->eval,
                        .update_buffers = !c->eval,
                        .seed = 5,
                        .ids = r->ids,
                        .labels = c->by_label ? r->labels : NULL,
                        .target = c->by_label ? NULL : r->in[TARGET],
                        .scale = 0.25f,
                        .sums = r->sums};
    a.dy = or_null(r->in[DY], r->in_size[DY]);
    for (int i = 0; i < 2; i++) {
        a.x[i] = or_null(r->in[X0 + i], r->in_size[X0 + i]);
        a.w[i] = or_null(r->in[W0 + i], r->in_size[W0 + i]);
        a.dx[i] = or_null(r->out[DX0 + i], r->out_size[DX0 + i]);
        a.dw[i] = or_null(r->out[DW0 + i], r->out_size[DW0 + i]);
        a.buffer[i] = or_null(r->out[MEAN + i], r->out_size[MEAN + i]);
    }
    return a;
}

/* What dw[0] holds before it is added to. */
static const float added = 0.5f;
/* An image between plain (as it is kept here) and blocked, in place. */
static void image_relayout(int64_t n, const struct shape *s, float *image, bool to_blocked) {
    int64_t area = s->dim[1] * s->dim[2], channels = s->dim[0], each = channels * area;
    float *copy = memory(n * each * 4);
    memcpy(copy, image, (size_t)(n * each) * 4);
    for (int64_t k = 0; k < n * each; k++) {
        int64_t c = k / area % channels, place = k % area;
        int64_t blocked = k / each * each + c / LAYOUT_BLOCK * LAYOUT_BLOCK * area +
                          place * LAYOUT_BLOCK + c % LAYOUT_BLOCK;
        image[to_blocked ? blocked : k] = copy[to_blocked ? k : blocked];
    }
    memory_free(copy);
}

/* Which tensors lie as x and as y. */
static const struct sides { int x[2], y; } inputs_at = {{X0, X1}, DY}, outputs_at = {{DX0, DX1}, Y};

static void relayout(struct run *r, float *const *tensors, struct sides at, enum layout x,
                     enum layout y, bool to_blocked) {
    const struct op_desc *d = &r->c->d;
    const int64_t *size = tensors == r->in ? r->in_size : r->out_size;
    for (int i = 0; i < 2; i++)
        if (x == LAYOUT_BLOCKED && size[at.x[i]])
            image_relayout(d->n, &d->x, tensors[at.x[i]], to_blocked);
    if (y == LAYOUT_BLOCKED && size[at.y]) image_relayout(d->n, &d->y, tensors[at.y], to_blocked);
}

/* Gives how many allocations forward and backward made. */
static long run_op(struct run *r, struct op *op) {
    enum layout x = op->desc.x_layout, y = op->desc.y_layout;
    relayout(r, r->in, inputs_at, x, y, true);
    void *saved = memory((int64_t)op->saved_bytes), *scratch = memory((int64_t)op->scratch_bytes);
    memset(saved, 0xff, op->saved_bytes);
    memset(scratch, 0xff, op->scratch_bytes);
    for (int t = 0; t < MEAN; t++) memset(r->out[t], 0xff, (size_t)r->out_size[t] * 4);
    for (int64_t k = 0; k < r->out_size[MEAN]; k++) r->out[MEAN][k] = 0.5f, r->out[VAR][k] = 2;
    for (int64_t k = 0; k < r->out_size[DW0] && r->c->add; k++) r->out[DW0][k] = added;
    r->sums[0] = r->sums[1] = 1;
    struct op_args a = args_of(r, saved, scratch);
    count_allocations_begin();
    enum error forward = op_forward(op, &a);
    enum error backward = r->c->eval ? ERR_NONE : op_backward(op, &a);
    long allocations = count_allocations_end();
    assert_ok(forward);
    assert_ok(backward);
    memory_free(saved);
    memory_free(scratch);
    relayout(r, r->in, inputs_at, x, y, false);
    relayout(r, r->out, outputs_at, x, y, false);
    return allocations;
}

/* ---- implementations against plain C -------------------------------------------------------- */
static double error_of(const float *got, const float *expected, int64_t n) {
    double off = 0, all = 0;
    for (int64_t k = 0; k < n; k++) {
        off += pow((double)got[k] - (double)expected[k], 2);
        all += pow((double)expected[k], 2);
    }
    return all > 0 ? off / all : off;
}

/* The mean squared error, as a part of the mean square, that implementations may have. In bf16 too:
 * the factors are rounded alike, their products are whole in f32, and only sums differ. */
static double bound_of(enum op_kind kind) {
    switch (kind) {
    case OP_CONV2D:
        return 1e-11; /* Winograd's */
    case OP_DROPOUT:
    case OP_ADD:
    case OP_REORDER:
        return 0;
    default:
        return 1e-12;
    }
}

static void compare(const struct run *got, const struct run *expected, const char *device,
                    const char *impl) {
    const struct op_case *c = got->c;
    for (int t = 0; t < OUTPUTS; t++) {
        double e = error_of(got->out[t], expected->out[t], got->out_size[t]);
        if (!(e <= bound_of(c->d.kind)))
            fail_msg("%s on %s by %s: %s is off by %g", c->name, device, impl, output_names[t], e);
    }
    assert_true(fabs(got->sums[0] - expected->sums[0]) <= 1e-6 * fabs(expected->sums[0]));
    assert_true(fabs(got->sums[1] - expected->sums[1]) <= 1e-12 * fabs(expected->sums[1]));
}

static void compare_bits(const struct run *a, const struct run *b, const char *impl) {
    for (int t = 0; t < OUTPUTS; t++)
        if (memcmp(a->out[t], b->out[t], (size_t)a->out_size[t] * 4))
            fail_msg("%s by %s: two runs give different bits in %s", a->c->name, impl,
                     output_names[t]);
    assert_memory_equal(a->sums, b->sums, sizeof a->sums);
}

static struct device *open_device(const char *name, int threads) {
    struct device_params p = {.index = 0, .count = 1, .threads = threads};
    const struct device_ops *ops = device_find(name);
    struct device *dev = NULL;
    assert_non_null(ops);
    assert_ok(ops->open(&p, &dev));
    return dev;
}

/* A library of its own may allocate a little in each call; our kernels may not. */
static bool may_allocate(const struct op_impl *impl) {
    return !strcmp(impl->name, "dnnl");
}

static void check_impl(struct device *dev, const struct op_impl *impl, const struct op_case *c,
                       const struct op_desc *d, const struct run *expected) {
    struct op *op = NULL;
    enum error err = impl->create(dev, d, &op);
    if (err == ERR_DEVICE) return; /* it said that it cannot, after all */
    assert_ok(err);
    struct run first, again;
    run_init(&first, c);
    run_init(&again, c);
    run_op(&first, op);
    long allocations = run_op(&again, op);
    if (allocations && !may_allocate(impl))
        fail_msg("%s by %s: %ld allocations", c->name, impl->name, allocations);
    compare(&first, expected, dev->ops->name, impl->name);
    compare_bits(&first, &again, impl->name);
    run_fini(&first);
    run_fini(&again);
    op_free(op);
}

static bool has_blocks(const struct shape *s) {
    return s->ndim == 3 && s->dim[0] % LAYOUT_BLOCK == 0;
}

/* Whether the case can be had with its images in these layouts. */
static bool layouts_fit(const struct op_desc *d, enum layout x, enum layout y) {
    if (x == LAYOUT_BLOCKED && !has_blocks(&d->x)) return false;
    if (y == LAYOUT_BLOCKED && !has_blocks(&d->y)) return false;
    return x == y || d->kind == OP_CONV2D || d->kind == OP_REORDER || d->y.ndim != 3;
}

/* Gives how many implementations there are; those that take a layout are checked in it. */
static int check_impls(struct device *dev, const struct op_case *c, enum layout x, enum layout y,
                       const struct run *expected) {
    struct op_desc d = c->d;
    d.x_layout = x, d.y_layout = y;
    int count = 0;
    for (const struct op_impl *const *i = dev->ops->impls(dev, d.kind); *i; i++, count++)
        if ((*i)->takes(&d)) check_impl(dev, *i, c, &d, expected);
    if (op_takes(dev, &d)) { /* one of those that say so must be right */
        struct op *op = NULL;
        if (op_create(dev, &d, &op) != ERR_NONE)
            fail_msg("%s in layouts %d, %d: %s", c->name, (int)x, (int)y, error_message());
        op_free(op);
    }
    return count;
}

static void check_case(struct device *dev, struct device *ref, const struct op_case *c) {
    struct op *op = NULL;
    struct run expected;
    assert_ok(op_create(ref, &c->d, &op));
    run_init(&expected, c);
    run_op(&expected, op);
    for (enum layout x = LAYOUT_PLAIN; x <= LAYOUT_BLOCKED; x++)
        for (enum layout y = LAYOUT_PLAIN; y <= LAYOUT_BLOCKED; y++)
            if (layouts_fit(&c->d, x, y)) assert_true(check_impls(dev, c, x, y, &expected) > 0);
    run_fini(&expected);
    op_free(op);
}

static void every_implementation_agrees(void **state) {
    (void)state;
    int count;
    const struct device_ops *const *kinds = device_kinds(&count);
    struct device *ref = open_device("ref", 1);
    for (int k = 0; k < count; k++)
        for (int threads = 1; threads <= (kinds[k] == ref->ops ? 1 : 2); threads++) {
            struct device *dev = open_device(kinds[k]->name, threads);
            for (int i = 0; i < CASES; i++) check_case(dev, ref, &cases[i]);
            dev->ops->close(dev);
        }
    ref->ops->close(ref);
}

/* ---- sequences: neither threads nor other samples change a bit ------------------------------ */
static void sequence_run(struct device *dev, const struct op_case *c, struct run *r) {
    struct op *op = NULL;
    assert_ok(op_create(dev, &c->d, &op));
    run_init(r, c);
    run_op(r, op);
    op_free(op);
}

static void check_sequence(struct device *one, struct device *three, const struct op_case *c) {
    struct run a, b, first;
    struct op_case alone = *c;
    alone.d.n = 1;
    sequence_run(one, c, &a);
    sequence_run(three, c, &b);
    compare_bits(&a, &b, "1 and 3 threads");
    sequence_run(one, &alone, &first);
    for (int t = Y; t <= DX0; t++)
        if (memcmp(a.out[t], first.out[t], (size_t)first.out_size[t] * 4))
            fail_msg("%s: other samples change %s", c->name, output_names[t]);
    run_fini(&a);
    run_fini(&b);
    run_fini(&first);
}

static bool is_of_sequences(enum op_kind kind) {
    return kind == OP_ACTIVATION || kind == OP_MEAN || kind == OP_CROSS_ENTROPY ||
           (kind >= OP_LAYERNORM && kind <= OP_ATTENTION && kind != OP_ADD);
}

static void a_sequence_keeps_its_bits(void **state) {
    (void)state;
    struct device *one = open_device("cpu", 1), *three = open_device("cpu", 3);
    for (int i = 0; i < CASES; i++)
        if (is_of_sequences(cases[i].d.kind)) check_sequence(one, three, &cases[i]);
    one->ops->close(one);
    three->ops->close(three);
}

/* ---- plain C against finite differences ----------------------------------------------------- */
/* What backward is the gradient of: sum of y dy, or the losses times their scale. */
static double objective(struct run *r, struct op *op) {
    double sum = 0;
    run_op(r, op);
    for (int64_t k = 0; k < r->in_size[DY]; k++) sum += (double)r->out[Y][k] * (double)r->in[DY][k];
    return r->in_size[DY] ? sum : (r->sums[0] - 1) * 0.25;
}

static void check_slope(struct run *r, struct op *op, int in, int out, int64_t at) {
    const float step = 0x1p-8f;
    float old = r->in[in][at];
    run_op(r, op);
    double slope = (double)r->out[out][at];
    if (r->c->add && out == DW0) slope -= (double)added;
    r->in[in][at] = old + step;
    double above = objective(r, op);
    r->in[in][at] = old - step;
    double below = objective(r, op);
    r->in[in][at] = old;
    double expected = (above - below) / (2 * (double)step);
    if (!(fabs(slope - expected) <= 2e-3 * (fabs(expected) + 1)))
        fail_msg("%s: %s[%d] is %g, the slope is %g", r->c->name, output_names[out], (int)at, slope,
                 expected);
}

static void gradients_are_slopes(void **state) {
    (void)state;
    static const int pairs[][2] = {{X0, DX0}, {X1, DX1}, {W0, DW0}, {W1, DW1}};
    struct device *ref = open_device("ref", 1);
    for (int i = 0; i < CASES; i++) {
        struct op *op = NULL;
        struct run r;
        if (!cases[i].smooth) continue;
        assert_ok(op_create(ref, &cases[i].d, &op));
        run_init(&r, &cases[i]);
        for (int p = 0; p < 4; p++)
            for (int64_t k = 0; k < 5 && r.out_size[pairs[p][1]] > 0; k++)
                check_slope(&r, op, pairs[p][0], pairs[p][1], k * 31 % r.out_size[pairs[p][1]]);
        run_fini(&r);
        op_free(op);
    }
    ref->ops->close(ref);
}

/* ---- a sample's result does not depend on the others, nor a result on threads ---------------- */
#define BLOCKS .x_layout = LAYOUT_BLOCKED, .y_layout = LAYOUT_BLOCKED
static const struct op_case alone[] = {
    {"linear", LINEAR(1, 100, 70, BIAS, RELU)},
    {"linear of rows", LINEAR_ROWS(1, 3, 100, 70, BIAS, RELU)},
    {"linear transposed", LINEAR_ROWS(1, 3, 100, 70, BIAS_TRANSPOSED)},
    {"linear bf16", LINEAR_ROWS(1, 3, 101, 70, BIAS, BF16)},
    {"linear bf16 deep", LINEAR(1, 1001, 70, BIAS, BF16)},
    {"conv", CONV(1, CHW(32, 9, 9), CHW(48, 9, 9), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"conv many", CONV(1, CHW(160, 7, 7), CHW(160, 7, 7), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"conv stride", CONV(1, CHW(32, 8, 8), CHW(32, 4, 4), SQUARE(3, 2, 1), 1, BLOCKS)},
    {"conv bf16", CONV(1, CHW(32, 8, 8), CHW(32, 8, 8), SQUARE(3, 1, 1), 1, BLOCKS, BF16)},
    {"conv depthwise", CONV(1, CHW(32, 8, 8), CHW(32, 8, 8), SQUARE(3, 1, 1), 32, BLOCKS)},
};

/* The first sample of n is run alone too. */
static void check_bits(struct device *dev, const struct op_case *one, int64_t n) {
    struct op_case many = *one;
    struct op *a = NULL, *b = NULL;
    struct run ra, rb;
    many.d.n = n;
    if (!op_takes(dev, &one->d)) return; /* blocks, on a machine without their vectors */
    assert_ok(op_create(dev, &one->d, &a));
    assert_ok(op_create(dev, &many.d, &b));
    run_init(&ra, one);
    run_init(&rb, &many);
    run_op(&ra, a);
    run_op(&rb, b);
    for (int t = Y; t <= DX0; t++)
        if (memcmp(ra.out[t], rb.out[t], (size_t)ra.out_size[t] * 4))
            fail_msg("%s: %s of a sample changes in a batch of %d", one->name, output_names[t],
                     (int)n);
    run_fini(&ra);
    run_fini(&rb);
    op_free(a);
    op_free(b);
}

static void a_sample_keeps_its_bits(void **state) {
    (void)state;
    struct device *dev = open_device("cpu", 1);
    for (size_t k = 0; k < sizeof alone / sizeof *alone; k++)
        for (int64_t n = 1; n <= 200; n += 33) check_bits(dev, &alone[k], n);
    dev->ops->close(dev);
}

/* Own kernels of blocked images: sums over samples too. */
static const struct op_case threaded[] = {
    {"conv", CONV(8, CHW(48, 17, 16), CHW(32, 17, 16), SQUARE(3, 1, 1), 1, RELU, BLOCKS)},
    {"conv by panel", CONV(3, CHW(144, 8, 8), CHW(176, 8, 8), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"conv of many", CONV(50, CHW(144, 8, 8), CHW(128, 8, 8), SQUARE(3, 1, 1), 1, BLOCKS)},
    {"batchnorm", SAME(OP_BATCHNORM, 9, CHW(80, 5, 7), NORM, RELU, BLOCKS)},
};

static void check_threads(const struct op_case *c) {
    struct run r[2];
    for (int k = 0; k < 2; k++) {
        struct device *dev = open_device("cpu", k + 1);
        struct op *op = NULL;
        run_init(&r[k], c);
        if (op_takes(dev, &c->d)) {
            assert_ok(op_create(dev, &c->d, &op));
            run_op(&r[k], op);
            op_free(op);
        }
        dev->ops->close(dev);
    }
    compare_bits(&r[0], &r[1], "1 and 2 threads");
    for (int k = 0; k < 2; k++) run_fini(&r[k]);
}

static void threads_keep_the_bits(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx512bw")) skip(); /* oneDNN's sums may be split by threads */
    for (size_t k = 0; k < sizeof threaded / sizeof *threaded; k++) check_threads(&threaded[k]);
}

/* What is blocked between convolutions has to be taken everywhere. */
static void blocked_images_are_taken(void **state) {
    (void)state;
    static const enum op_kind kinds[] = {OP_POOL2D, OP_BATCHNORM, OP_ADD, OP_REORDER};
    struct device *dev = open_device("cpu", 1);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct op_desc d = {.kind = kinds[k], .n = 2, .x = CHW(16, 4, 4), .y = CHW(16, 4, 4)};
        d.x_layout = d.y_layout = LAYOUT_BLOCKED;
        assert_true(op_choice(dev, &d) >= 0);
        d.y_layout = LAYOUT_PLAIN;
        assert_true((op_choice(dev, &d) >= 0) == (kinds[k] == OP_REORDER));
    }
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),    cmocka_unit_test(every_implementation_agrees),
        cmocka_unit_test(a_sample_keeps_its_bits), cmocka_unit_test(a_sequence_keeps_its_bits),
        cmocka_unit_test(threads_keep_the_bits),   cmocka_unit_test(blocked_images_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
