/* What outputs are worth, against plain computations: ranks by sorting, counts one by one. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
#include "engine/data/loader.h"
#include "engine/device/impl.h"
#include "engine/tell/score.h"

#include <math.h>
#include <string.h>

enum { ROWS = 257, CLASSES_MOST = 130 };
static float y[ROWS * CLASSES_MOST];
static int32_t labels[ROWS];

/* Few values, so that many are equal. */
static void draw(int64_t classes, uint64_t salt) {
    struct rng_key key = rng_key(salt, RNG_TEST);
    for (int64_t i = 0; i < ROWS * classes; i++) y[i] = (float)rng_below(key, 0, (uint64_t)i, 7) / 4 - 1;
    for (int64_t r = 0; r < ROWS; r++) labels[r] = (int32_t)rng_below(key, 1, (uint64_t)r, (uint64_t)classes);
}

/* The label's place when equals keep their order. */
static int64_t place(const float *row, int64_t classes, int64_t label) {
    int64_t before = 0;
    for (int64_t k = 0; k < classes; k++)
        if (row[k] > row[label] || (row[k] == row[label] && k < label)) before++;
    return before;
}

static void top_is_the_place_among_the_sorted(void **state) {
    (void)state;
    for (int64_t classes = 1; classes <= CLASSES_MOST; classes += classes < 20 ? 1 : 11) {
        draw(classes, (uint64_t)classes);
        for (int64_t r = 0; r < ROWS; r++) {
            const float *row = y + r * classes;
            bool expected = place(row, classes, labels[r]) < SCORE_TOP;
            assert_int_equal(label_in_top(row, classes, labels[r]), expected);
            if (classes <= SCORE_TOP) assert_true(expected);
        }
    }
}

static void what_is_no_number_is_never_right(void **state) {
    (void)state;
    for (int k = 0; k < 8; k++) y[k] = NAN;
    labels[0] = 3;
    assert_false(label_in_top(y, 8, labels[0]));
    y[3] = 1;
    for (int k = 0; k < 8; k++)
        if (k != 3) y[k] = 0;
    assert_true(label_in_top(y, 8, labels[0]));
}

static void confusions_are_counted_by_label_and_answer(void **state) {
    (void)state;
    enum { CLASSES = 9 };
    double counts[CLASSES * CLASSES] = {0}, expected[CLASSES * CLASSES] = {0}, right = 0;
    draw(CLASSES, 77);
    for (int r = 0; r < ROWS; r++) {
        int64_t answer = 0;
        while (place(y + r * CLASSES, CLASSES, answer) != 0) answer++;
        expected[labels[r] * CLASSES + answer]++;
    }
    score_confusion(y, labels, ROWS, CLASSES, counts);
    assert_memory_equal(counts, expected, sizeof counts);
    for (int64_t k = 0; k < CLASSES; k++) {
        struct class_score s = confusion_class(counts, CLASSES, k);
        double samples = 0, answers = 0;
        for (int r = 0; r < ROWS; r++) {
            samples += labels[r] == k;
            answers += score_best(y + r * CLASSES, CLASSES) == k;
        }
        assert_true(s.samples == samples && s.answers == answers);
        assert_true(s.recall == s.right / samples && s.precision == s.right / answers);
        right += s.right;
    }
    assert_true(right == counts[0] + counts[10] + counts[20] + counts[30] + counts[40] + counts[50] + counts[60] +
                             counts[70] + counts[80]);
}

static void a_class_that_is_not_there_has_no_share(void **state) {
    (void)state;
    const double counts[] = {3, 0, 0, 0};
    struct class_score s = confusion_class(counts, 2, 1);
    assert_true(isnan(s.precision) && isnan(s.recall) && s.samples == 0);
    s = confusion_class(counts, 2, 0);
    assert_true(s.precision == 1 && s.recall == 1);
}

static void recalls_are_balanced_over_classes_that_are_there(void **state) {
    (void)state;
    enum { CLASSES = 9 };
    double counts[2 * CLASSES] = {0}, confusion[CLASSES * CLASSES] = {0}, sum = 0;
    draw(CLASSES, 78);
    for (int r = 0; r < ROWS; r++) labels[r] = labels[r] == 4 ? 5 : labels[r];
    score_recalls(y, labels, 100, CLASSES, counts);
    score_recalls(y + 100 * CLASSES, labels + 100, ROWS - 100, CLASSES, counts);
    score_confusion(y, labels, ROWS, CLASSES, confusion);
    for (int64_t k = 0; k < CLASSES; k++) {
        struct class_score s = confusion_class(confusion, CLASSES, k);
        assert_true(counts[2 * k] == s.samples && counts[2 * k + 1] == s.right);
        sum += k == 4 ? 0 : s.recall;
    }
    assert_true(fabs(score_balance(counts, CLASSES) - sum / (CLASSES - 1)) < 1e-15);
    memset(counts, 0, sizeof counts);
    assert_true(isnan(score_balance(counts, CLASSES)));
}

enum { TARGETS = 3, PARTS = 4 };
static float predicted[ROWS * TARGETS], target[ROWS * TARGETS];

/* Residuals of the rows in parts of unequal size, one of them empty, and what follows from them. */
static struct val_result regression(const double *scale) {
    static const int64_t cut[PARTS + 1] = {0, 1, 1, 97, ROWS};
    struct residuals of[PARTS * TARGETS] = {{0}};
    double samples[2 * PARTS];
    static struct normalization norm;
    struct val_result v;
    norm.targets = scale ? TARGETS : 0;
    for (int k = 0; k < norm.targets; k++) norm.target_scale[k] = (float)(1 / scale[k]);
    for (int p = 0; p < PARTS; p++) {
        int64_t rows = cut[p + 1] - cut[p], half = rows / 2;
        const float *from = predicted + cut[p] * TARGETS, *t = target + cut[p] * TARGETS;
        score_residuals(from, t, half, TARGETS, 0, of + p * TARGETS);
        score_residuals(from + half * TARGETS, t + half * TARGETS, rows - half, TARGETS, half, of + p * TARGETS);
        samples[2 * p] = (double)rows;
    }
    val_result_clear(&v);
    score_regression(&(struct residual_parts){of, samples, 2, PARTS, TARGETS}, &norm, &v);
    return v;
}

/* As scikit-learn's r2_score, root_mean_squared_error and mean_absolute_error: two passes in more digits. */
static void errors_of_values_keep_their_digits_far_from_zero(void **state) {
    (void)state;
    static const double scale[TARGETS] = {1, 8, 0.5};
    struct rng_key key = rng_key(3, RNG_TEST);
    long double rmse = 0, mae = 0, r2 = 0, rmse_scaled = 0, mae_scaled = 0;
    for (int64_t i = 0; i < ROWS * TARGETS; i++) {
        target[i] = (float)(rng_normal(key, 0, (uint64_t)i) + (i % TARGETS == 1 ? 1e6 : i % TARGETS));
        predicted[i] = target[i] + (float)(0.5 * rng_normal(key, 1, (uint64_t)i));
    }
    for (int k = 0; k < TARGETS; k++) {
        long double mean = 0, squares = 0, absolute = 0, spread = 0;
        for (int r = 0; r < ROWS; r++) mean += (long double)target[r * TARGETS + k] / ROWS;
        for (int r = 0; r < ROWS; r++) {
            long double t = (long double)target[r * TARGETS + k], e = (long double)predicted[r * TARGETS + k] - t;
            squares += e * e, absolute += fabsl(e), spread += (t - mean) * (t - mean);
        }
        rmse += sqrtl(squares / ROWS) / TARGETS, rmse_scaled += (long double)scale[k] * sqrtl(squares / ROWS) / TARGETS;
        mae += absolute / ROWS / TARGETS, mae_scaled += (long double)scale[k] * absolute / ROWS / TARGETS;
        r2 += (1 - squares / spread) / TARGETS;
    }
    struct val_result v = regression(NULL), scaled = regression(scale);
    assert_true(r2 > 0.5L && r2 < 0.9L);
    assert_true(fabs(v.rmse - (double)rmse) < 1e-12 && fabs(v.mae - (double)mae) < 1e-12);
    assert_true(fabs(v.r2 - (double)r2) < 1e-9);
    assert_true(fabs(scaled.rmse - (double)rmse_scaled) < 1e-12 && fabs(scaled.mae - (double)mae_scaled) < 1e-12);
    assert_true(scaled.r2 == v.r2);
}

static void targets_that_do_not_vary_have_no_r2(void **state) {
    (void)state;
    for (int i = 0; i < ROWS * TARGETS; i++) target[i] = 0.1f, predicted[i] = (float)(i % 5);
    struct val_result v = regression(NULL);
    assert_true(isnan(v.r2) && v.rmse > 0 && v.mae > 0);
    for (int r = 0; r < ROWS; r++) target[r * TARGETS] = (float)(r % 7), predicted[r * TARGETS] = target[r * TARGETS];
    assert_true(regression(NULL).r2 == 1);
}

static void equal_values_go_to_the_lower_loss_and_then_to_the_later(void **state) {
    (void)state;
    const struct metric *rising = metric_find("val.accuracy"), *falling = metric_find("val.loss");
    const double none = (double)NAN;
    const struct {
        const struct metric *m;
        struct best now, best;
        bool beats;
    } all[] = {
        {rising, {0.5, 1}, {none, none}, true},  {rising, {none, 1}, {0.5, 1}, false},
        {rising, {0.6, 9}, {0.5, 1}, true},      {rising, {0.4, 0}, {0.5, 1}, false},
        {rising, {0.5, 0.9}, {0.5, 1}, true},    {rising, {0.5, 1}, {0.5, 1}, true},
        {rising, {0.5, 1.1}, {0.5, 1}, false},   {rising, {0.5, none}, {0.5, 1}, false},
        {rising, {0.5, 1.1}, {0.5, none}, true}, {falling, {1, 1}, {1, 1}, true},
        {falling, {1.1, 1.1}, {1, 1}, false},    {falling, {0.9, 0.9}, {1, 1}, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(metric_beats(all[i].m, all[i].now, all[i].best), all[i].beats);
}

static void metrics_have_a_direction(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool rises;
    } all[] = {{"val.loss", false},
               {"val.accuracy", true},
               {"val.top5", true},
               {"val.perplexity", false},
               {"val.balanced_accuracy", true},
               {"val.rmse", false},
               {"val.mae", false},
               {"val.r2", true},
               {"val.bits_per_byte", false},
               {"train.loss", false}};
    struct val_result v;
    const char *const *names = metric_names();
    val_result_clear(&v);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct metric *m = metric_find(all[i].name);
        assert_non_null(m);
        assert_string_equal(names[i], all[i].name);
        assert_int_equal(metric_is_val(m), strcmp(m->name, "train.loss") != 0);
        if (metric_is_val(m)) assert_true(isnan(metric_value(m, &v, 9)));
        if (metric_is_val(m)) v.of[i] = (double)i + 0.5;
        assert_true(metric_value(m, &v, 9.5) == (double)i + 0.5);
        assert_int_equal(metric_better(m, 3, 2), all[i].rises);
        assert_int_equal(metric_better(m, 2, 3), !all[i].rises);
        assert_false(metric_better(m, 2, 2));
    }
    assert_true(v.loss == 0.5 && v.balanced_accuracy == 4.5 && v.bits_per_byte == 8.5);
    assert_null(names[sizeof all / sizeof *all]);
    assert_null(metric_find("off"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_is_the_place_among_the_sorted),
        cmocka_unit_test(what_is_no_number_is_never_right),
        cmocka_unit_test(confusions_are_counted_by_label_and_answer),
        cmocka_unit_test(a_class_that_is_not_there_has_no_share),
        cmocka_unit_test(recalls_are_balanced_over_classes_that_are_there),
        cmocka_unit_test(errors_of_values_keep_their_digits_far_from_zero),
        cmocka_unit_test(targets_that_do_not_vary_have_no_r2),
        cmocka_unit_test(equal_values_go_to_the_lower_loss_and_then_to_the_later),
        cmocka_unit_test(metrics_have_a_direction),
    };
    return cmocka_run_group_tests_name("score", tests, NULL, NULL);
}
