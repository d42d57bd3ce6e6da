/* Products whose rows begin anywhere are slow on a GPU: every row of every factor and result, in each model of the zoo,
 * must begin at a multiple of 16 bytes. What the library is told of each matrix is looked at; nothing is computed. */
#include "tests/gpu/gpu.h"
#include "tests/unit/model_fixture.h"

#include "engine/device/cuda/matmul.h"
#include "engine/model/graph_plan.h"

static struct cublaslt_library real;
static int matrices, slow, known;
static int adds, joins;   /* steps of the last plan that add alone, and that add as a part of what they do */
static double moved[2];   /* bytes of the first of these, forward and backward */
static int64_t known_row; /* the length of rows that are known to be slow; 0: there are none */
static char words[256];   /* the last slow one */

static cublasStatus_t layout_create(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols,
                                    int64_t ld) {
    matrices++;
    if (ld * (type == CUDA_R_32F ? 4 : 2) % MATMUL_ALIGNMENT) {
        slow += ld != known_row;
        known += ld == known_row;
        snprintf(words, sizeof words, "a matrix of %lld rows of %lld, %lld apart", (long long)cols, (long long)rows,
                 (long long)ld);
    }
    return real.MatrixLayoutCreate(out, type, rows, cols, ld);
}

static struct device *watched_open(void) {
    struct device *dev = gpu_open(0);
    if (blaslt.MatrixLayoutCreate != layout_create) real = blaslt; /* else a test before has failed */
    blaslt.MatrixLayoutCreate = layout_create;
    matrices = slow = 0;
    return dev;
}

static void watched_close(struct device *dev) {
    blaslt = real;
    dev->ops->close(dev);
}

static void plan_shaped(const char *name, const struct shape *input, int64_t classes, struct device *dev,
                        enum precision precision) {
    struct model *m;
    struct plan *plan;
    char *report;
    if (model_try(name, input, classes, &m, &report) != ERR_NONE) fail_msg("%s: %s %s", name, error_message(), report);
    const struct model_part whole = model_part(m, 0, m->nnodes);
    const struct plan_work work = {.m = m, .part = &whole, .dev = dev, .precision = precision, .stretches = 1};
    assert_ok(plan_create(&work, &(struct segments){1, {0, 2}}, &plan));
    adds = joins = 0;
    for (int s = 0; s < plan->nsteps; s++) {
        adds += plan->steps[s].desc.kind == OP_ADD;
        if (plan->steps[s].desc.joins && joins++ == 0) plan_step_bytes(m, &plan->steps[s], plan->n, 2, moved);
    }
    plan_free(plan);
    model_free(m);
    free(report);
}

static void plan_model(const struct zoo_model *zoo, struct device *dev, enum precision precision) {
    struct pool *pool;
    struct zoo_about about;
    assert_ok(pool_create(&pool));
    assert_ok(zoo_about(zoo, pool, &about));
    plan_shaped(zoo->name, &about.input, about.classes, dev, precision);
    pool_free(pool);
}

/* LeNet's second layer but one gives 84 numbers, which in two bytes each are no whole packs of 16: its last two products
 * have so few numbers that their time is that of a launch. */
static int64_t known_row_of(const char *name, enum precision precision) {
    return !strcmp(name, "lenet") && precision == PRECISION_BF16 ? 84 : 0;
}

static void rows_of_products_are_aligned(void **state) {
    static const enum precision precisions[] = {PRECISION_F32, PRECISION_BF16};
    struct device *dev = watched_open();
    int count;
    const struct zoo_model *zoo = zoo_models(&count);
    (void)state;
    for (int i = 0; i < 2 * count; i++) {
        const struct zoo_model *z = &zoo[i / 2];
        const char *precision = i % 2 ? "bf16" : "f32";
        known_row = known_row_of(z->name, precisions[i % 2]), slow = known = 0;
        plan_model(z, dev, precisions[i % 2]);
        if (slow) fail_msg("%s in %s: %d slow matrices; the last is %s", z->name, precision, slow, words);
        if (known_row && !known) fail_msg("%s in %s: what is known to be slow is no more", z->name, precision);
    }
    known_row = 0;
    print_message("%d matrices of %d models\n", matrices, count);
    assert_true(matrices > 9 * count);
    watched_close(dev);
}

/* The check sees what it is for: the last layer of GPT-2 with rows as plain C has them. */
static void a_row_that_begins_anywhere_is_seen(void **state) {
    const struct op_desc head = {
        .kind = OP_LINEAR, .n = 2, .x = {2, {3, 768}}, .y = {2, {3, 50257}}, .precision = PRECISION_BF16};
    struct device *dev = watched_open();
    (void)state;
    for (int aligned = 0; aligned < 2; aligned++) {
        struct op_desc d = head;
        struct op *op = NULL;
        slow = 0;
        d.y_layout = aligned ? LAYOUT_ALIGNED : LAYOUT_PLAIN;
        assert_ok(op_create(dev, &d, &op));
        assert_int_equal(slow, aligned ? 0 : 3); /* y, and dy in the products for dx and dw */
        op_free(op);
    }
    assert_string_equal(words, "a matrix of 6 rows of 50257, 50257 apart");
    watched_close(dev);
}

/* So is a model with a hidden layer of 83, whose rows begin anywhere in the products of both layers beside it. */
static void a_model_with_odd_rows_is_seen(void **state) {
    struct device *dev = watched_open();
    const struct shape input = {3, {1, 28, 28}};
    (void)state;
    plan_shaped("{zoo: mlp, hidden: [80]}", &input, 16, dev, PRECISION_BF16);
    assert_int_equal(slow, 0);
    plan_shaped("{zoo: mlp, hidden: [83]}", &input, 16, dev, PRECISION_BF16);
    assert_true(slow >= 5);
    watched_close(dev);
}

/* A residual connection costs no pass of its own: a ResNet's is added by the batchnorm before it, a transformer's by the
 * product before it. */
static void adds_are_parts_of_other_steps(void **state) {
    static const struct {
        const char *model;
        int joins;
    } of[] = {{"resnet50", 16}, {"resnet20", 9}, {"gpt2", 24}, {"vit-b-16", 24}};
    struct device *dev = gpu_open(0);
    int count;
    const struct zoo_model *zoo = zoo_models(&count);
    (void)state;
    for (int k = 0; k < 4; k++) {
        int i = 0;
        while (strcmp(zoo[i].name, of[k].model) != 0) i++;
        plan_model(&zoo[i], dev, PRECISION_BF16);
        if (adds || joins != of[k].joins) fail_msg("%s: %d adds, %d joined", of[k].model, adds, joins);
        if (k > 0) continue; /* of ResNet-50 the shortcut's batchnorm: x and what joins; y, dy, and both dx */
        const double image = 2 * 256 * 56 * 56 * 2, weights = 2 * 256;
        assert_true(moved[0] == 3 * image + weights * 2);
        assert_true(moved[1] == 4 * image + weights * 6);
    }
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_are_parts_of_other_steps),
        cmocka_unit_test(rows_of_products_are_aligned),
        cmocka_unit_test(a_row_that_begins_anywhere_is_seen),
        cmocka_unit_test(a_model_with_odd_rows_is_seen),
    };
    return gpu_run_tests(tests);
}
