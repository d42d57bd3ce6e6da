/* What ops must refuse on every kind of device: shapes that do not fit, labels outside the classes,
 * a variance of one value. */
#include "tests/harness/harness.h"

#include "engine/device/impl.h"

#define F(n)                                                                                       \
    {                                                                                              \
        1, {                                                                                       \
            n                                                                                      \
        }                                                                                          \
    }
#define CHW(c, h, w)                                                                               \
    {                                                                                              \
        3, {                                                                                       \
            c, h, w                                                                                \
        }                                                                                          \
    }
#define SQUARE(k, s, p)                                                                            \
    {                                                                                              \
        {k, k}, {s, s}, {                                                                          \
            p, p                                                                                   \
        }                                                                                          \
    }

static const struct op_desc wrong[] = {
    {.kind = OP_LINEAR, .n = 0, .x = F(3), .y = F(3)},
    {.kind = OP_LINEAR, .n = 1, .x = F(0), .y = F(3)},
    {.kind = OP_LINEAR, .n = INT64_MAX / 2, .x = F(8), .y = F(8)},
    {.kind = OP_RELU, .n = 1, .x = F(3), .y = F(4)},
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
};

/* Calls check with an open device of each kind. */
static void on_each_kind(void (*check)(struct device *dev)) {
    int count;
    const struct device_ops *const *kinds = device_kinds(&count);
    for (int k = 0; k < count; k++) {
        struct device_params p = {.index = 0, .count = 1, .threads = 1};
        struct device *dev = NULL;
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

static void check_variance(struct device *dev) {
    static const struct op_desc norm = {
        .kind = OP_BATCHNORM, .n = 1, .x = F(2), .y = F(2), .norm = {1e-5f, 0.1f}};
    const float x[2] = {1, 2}, w[2] = {1, 1};
    float y[2], saved[4], mean[2] = {0}, var[2] = {1, 1};
    struct op *op = NULL;
    struct op_args a = {
        .x = {x}, .y = y, .w = {w, w}, .buffer = {mean, var}, .saved = saved, .training = true};
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
        cmocka_unit_test(a_variance_of_one_value_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
