/* What ops must refuse on every kind of device: shapes that do not fit, labels outside the classes,
 * a variance of one value. */
#include "tests/harness/harness.h"
#include "tests/harness/shapes.h"

#include "engine/device/impl.h"
#include "engine/device/runtime.h"

#include <string.h>

static const struct op_desc wrong[] = {
    {.kind = OP_LINEAR, .n = 0, .x = F(3), .y = F(3)},
    {.kind = OP_LINEAR, .n = 1, .x = F(0), .y = F(3)},
    {.kind = OP_LINEAR, .n = INT64_MAX / 2, .x = F(8), .y = F(8)},
    {.kind = OP_ACTIVATION, .n = 1, .x = F(3), .y = F(4)},
    {.kind = OP_CONV2D, /* places do not fit */
     .n = 1,
     .x = CHW(3, 8, 8),
     .y = CHW(4, 8, 8),
     .conv = {SQUARE(3, 1, 0), 1, true, false}},
    {.kind = OP_CONV2D, /* 3 channels in 2 groups */
     .n = 1,
     .x = CHW(3, 8, 8),
     .y = CHW(4, 6, 6),
     .conv = {SQUARE(3, 1, 0), 2, true, false}},
    {.kind = OP_CONV2D, /* no stride */
     .n = 1,
     .x = CHW(3, 2, 2),
     .y = CHW(4, 1, 1),
     .conv = {SQUARE(3, 0, 0), 1, true, false}},
    {.kind = OP_POOL2D, /* windows that are all padding */
     .n = 1,
     .x = CHW(3, 8, 8),
     .y = CHW(3, 6, 6),
     .pool = {POOL_MAX, SQUARE(2, 2, 2)}},
    {.kind = OP_DROPOUT, .n = 1, .x = F(3), .y = F(3), .dropout = {1, 0}},
    {.kind = OP_EMBEDDING, .n = 1, .x = F(3), .y = {2, {3, 5}}}, /* no vocabulary */
    {.kind = OP_SELECT, .n = 1, .x = {2, {3, 5}}, .y = F(5), .select = {3}},
    {.kind = OP_TOKENS, .n = 1, .x = CHW(3, 2, 2), .y = {2, {3, 4}}},
    {.kind = OP_MEAN, .n = 1, .x = {2, {3, 5}}, .y = F(3)},
    {.kind = OP_ATTENTION, /* 4 features are not 3 heads' */
     .n = 1,
     .x = {2, {2, 12}},
     .y = {2, {2, 4}},
     .attention = {3, false}},
};

/* Calls check with an open device of each kind whose memory is the host's. */
static void on_each_kind(void (*check)(struct device *dev)) {
    int count;
    const struct device_ops *const *kinds = device_kinds(&count);
    for (int k = 0; k < count; k++) {
        struct device_params p = {.index = 0, .count = 1, .threads = 1};
        struct device *dev = NULL;
        if (kinds[k]->runtime->apart) continue;
        assert_ok(kinds[k]->open(&p, &dev));
        check(dev);
        dev->ops->close(dev);
    }
}

static void check_shapes(struct device *dev) {
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct op *op = NULL;
        assert_fails(ERR_CONFIG, op_create(dev, &wrong[i], &op));
        assert_null(op);
    }
}

static void wrong_shapes_are_refused(void **state) {
    (void)state;
    on_each_kind(check_shapes);
}

static void check_labels(struct device *dev) {
    static const struct op_desc losses[] = {
        {.kind = OP_CROSS_ENTROPY, .n = 2, .x = F(4), .y = F(4)},
        {.kind = OP_MSE, .n = 2, .x = F(4), .y = F(4)},
    };
    const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < 2; i++)
        for (int32_t bad = -1; bad <= 4; bad += 5) {
            struct op *op = NULL;
            float y[8];
            double sums[2] = {0};
            int32_t labels[2] = {0, bad};
            struct op_args a = {.x = {x}, .y = y, .labels = labels, .sums = sums, .training = true};
            assert_ok(op_create(dev, &losses[i], &op));
            assert_fails(ERR_DATA, op_forward(op, &a));
            op_free(op);
        }
}

static void labels_outside_the_classes_are_refused(void **state) {
    (void)state;
    on_each_kind(check_labels);
}

static void check_tokens(struct device *dev) {
    static const struct op_desc embedding = {
        .kind = OP_EMBEDDING, .n = 1, .x = F(2), .y = {2, {2, 3}}, .first = true, .embedding = {4}};
    static const float bad[] = {-1, 4, 1.5f, 1e30f, __builtin_nanf(""), __builtin_inff()};
    float w[12] = {0}, y[6];
    struct op *op = NULL;
    assert_ok(op_create(dev, &embedding, &op));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const float x[2] = {3, bad[i]};
        struct op_args a = {.x = {x}, .y = y, .w = {w}, .training = true};
        assert_fails(ERR_DATA, op_forward(op, &a));
        assert_non_null(strstr(error_message(), "vocabulary"));
    }
    op_free(op);
}

static void tokens_outside_the_vocabulary_are_refused(void **state) {
    (void)state;
    on_each_kind(check_tokens);
}

/* The last segment is another thread's, and the message is the caller's. */
static void a_segment_that_fails_says_why(void **state) {
    (void)state;
    static const struct segments segments = {4, {0, 1, 2, 3, 4}};
    static const struct op_desc embedding = {.kind = OP_EMBEDDING,
                                             .n = 4,
                                             .x = F(2),
                                             .y = {2, {2, 3}},
                                             .first = true,
                                             .segments = &segments,
                                             .embedding = {4}};
    const struct device_params p = {.count = 1, .threads = 2};
    const float x[8] = {0, 1, 2, 3, 0, 1, 2, 7};
    float w[12] = {0}, y[24];
    struct device *dev;
    struct op *op = NULL;
    void *scratch;
    assert_ok(device_find("cpu")->open(&p, &dev));
    assert_ok(op_create(dev, &embedding, &op));
    assert_ok(memory_alloc(op->scratch_bytes, &scratch));
    struct op_args a = {.x = {x}, .y = y, .w = {w}, .scratch = scratch, .training = true};
    assert_fails(ERR_DATA, op_forward(op, &a));
    assert_non_null(strstr(error_message(), "token 7"));
    op_free(op);
    memory_free(scratch);
    dev->ops->close(dev);
}

static void check_variance(struct device *dev) {
    static const struct op_desc norm = {.kind = OP_BATCHNORM, .n = 1, .x = F(2), .y = F(2), .norm = {1e-5f, 0.1f}};
    const float x[2] = {1, 2}, w[2] = {1, 1};
    float y[2], saved[4], mean[2] = {0}, var[2] = {1, 1};
    struct op *op = NULL;
    struct op_args a = {.x = {x}, .y = y, .w = {w, w}, .buffer = {mean, var}, .saved = saved, .training = true};
    assert_ok(op_create(dev, &norm, &op));
    assert_fails(ERR_CONFIG, op_forward(op, &a));
    a.training = false; /* the running moments serve one value as well */
    assert_ok(op_forward(op, &a));
    op_free(op);
}

static void a_variance_of_one_value_is_refused(void **state) {
    (void)state;
    on_each_kind(check_variance);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(labels_outside_the_classes_are_refused),
        cmocka_unit_test(tokens_outside_the_vocabulary_are_refused),
        cmocka_unit_test(a_segment_that_fails_says_why),
        cmocka_unit_test(a_variance_of_one_value_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
