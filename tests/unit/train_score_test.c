/* What outputs are worth, against plain computations: ranks by sorting, counts one by one. */
#include "tests/harness/harness.h"

#include "engine/base/rng.h"
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

static void metrics_have_a_direction(void **state) {
    (void)state;
    struct val_result v = {.loss = 2, .accuracy = 0.5, .top5 = 0.75, .perplexity = 7.5};
    static const struct {
        const char *name;
        double value;
        bool rises;
    } all[] = {{"val.accuracy", 0.5, true},
               {"val.top5", 0.75, true},
               {"val.loss", 2, false},
               {"val.perplexity", 7.5, false},
               {"train.loss", 9, false}};
    const char *const *names = metric_names();
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct metric *m = metric_find(all[i].name);
        assert_non_null(m);
        assert_string_equal(names[i], all[i].name);
        assert_true(m->of(&v, 9) == all[i].value);
        assert_int_equal(metric_better(m, 3, 2), all[i].rises);
        assert_int_equal(metric_better(m, 2, 3), !all[i].rises);
        assert_false(metric_better(m, 2, 2));
    }
    assert_null(names[sizeof all / sizeof *all]);
    assert_null(metric_find("off"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_is_the_place_among_the_sorted),
        cmocka_unit_test(what_is_no_number_is_never_right),
        cmocka_unit_test(confusions_are_counted_by_label_and_answer),
        cmocka_unit_test(a_class_that_is_not_there_has_no_share),
        cmocka_unit_test(metrics_have_a_direction),
    };
    return cmocka_run_group_tests_name("score", tests, NULL, NULL);
}
