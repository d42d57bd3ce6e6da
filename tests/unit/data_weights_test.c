/* Weights of training samples: by class, from a column of the table, from a file, whatever is held out; and what is refused. */
#include "tests/unit/data_fixture.h"

#include "engine/data/weights.h"

#include <math.h>

enum { ROWS = 12 };

/* Row i has the input i, the class of its letter, and the weight i % 4. */
static void put_table(void) {
    static const char kinds[ROWS + 1] = "aabaabaabaca";
    char text[400] = "x,share,kind\n";
    for (int i = 0; i < ROWS; i++) snprintf(text + strlen(text), 32, "%d,%d,%c\n", i, i % 4, kinds[i]);
    file_put("rows.csv", text, strlen(text));
}

static enum error weights_try(const char *rest, struct dataset **d, struct sample_weights *w) {
    char yaml[1200];
    struct setup s;
    snprintf(yaml, sizeof yaml, "{set: csv, train: %s%s}", scratch_path("rows.csv"), rest);
    setup_make(&s, yaml);
    enum error err = dataset_open(&s.config, true, 1, d);
    if (err == ERR_NONE) err = sample_weights_open(&s.config, *d, w);
    if (err != ERR_NONE) sample_weights_close(w), dataset_close(*d);
    setup_free(&s);
    return err;
}

static int row_of(struct dataset *d, int64_t i, int32_t *label) {
    float x[4];
    assert_ok(d->ops->read(d, i, x, label, NULL));
    return (int)x[0];
}

/* Each class has the same sum, and each of its samples the same part of it; the sums go on from sample to sample. */
static void classes_are_balanced(void **state) {
    (void)state;
    double of[3] = {0}, all = 0, squares = 0;
    struct dataset *d = NULL;
    struct sample_weights w = {0};
    put_table();
    assert_ok(weights_try(", val: 25%, without: share, sampling: balanced", &d, &w));
    int64_t counts[3];
    assert_int_equal(d->size, 9);
    assert_ok(dataset_counts(d, counts));
    for (int64_t i = 0; i < d->size; i++) {
        int32_t label;
        (void)row_of(d, i, &label);
        double own = w.upto[i] - (i ? w.upto[i - 1] : 0);
        assert_true(fabs(own - 1.0 / (double)counts[label]) < 1e-12);
        of[label] += own, all += own, squares += own * own;
    }
    for (int k = 0; k < 3; k++) assert_true(fabs(of[k] - 1) < 1e-12);
    assert_true(fabs(w.worth - all * all / squares) < 1e-9 && w.crc == 0);
    sample_weights_close(&w);
    dataset_close(d);
}

/* Held out or not, each sample keeps the weight of its row. */
static void rows_have_their_weights(void **state) {
    (void)state;
    char lines[ROWS * 4 + 1] = "", from_file[700];
    for (int i = 0; i < ROWS; i++) snprintf(lines + strlen(lines), 5, "%d%s", i % 4, i % 2 ? "\r\n" : "\n");
    snprintf(from_file, sizeof from_file, "without: share, weights: %s", file_put("weights.txt", lines, strlen(lines)));
    put_table();
    const char *const sources[] = {"weight: share", "weight: 2", from_file};
    const char *const parts[] = {"", "split: end, ", "limit: 5, ", "val: 4, "};
    for (int i = 0; i < 3; i++)
        for (int p = 0; p < 4; p++) {
            char rest[900];
            struct dataset *d = NULL;
            struct sample_weights w = {0};
            snprintf(rest, sizeof rest, ", sampling: weights, %s%s", parts[p], sources[i]);
            assert_ok(weights_try(rest, &d, &w));
            assert_int_equal(shape_count(&d->shape), 1); /* nothing is predicted from it */
            assert_true(d->size < ROWS && w.crc != 0);
            for (int64_t k = 0; k < d->size; k++) {
                int32_t label;
                double own = w.upto[k] - (k ? w.upto[k - 1] : 0);
                assert_true(own == row_of(d, k, &label) % 4);
            }
            sample_weights_close(&w);
            dataset_close(d);
        }
}

/* Weights are read for themselves: values that other columns lack are the mean of the training rows. */
static void what_other_columns_lack_does_not_matter(void **state) {
    (void)state;
    static const char text[] = "x,share,kind\n,1,a\n2,3,a\n4,5,b\n6,7,b\n";
    struct dataset *d = NULL;
    struct sample_weights w = {0};
    file_put("rows.csv", text, sizeof text - 1);
    assert_ok(weights_try(", val: 1, split: end, sampling: weights, weight: share", &d, &w));
    assert_true(w.upto[0] == 1 && w.upto[1] == 4 && w.upto[2] == 9);
    sample_weights_close(&w);
    dataset_close(d);
}

static void what_is_wrong_is_told(void **state) {
    (void)state;
    static const struct {
        const char *lines, *rest, *words;
        enum error err;
    } bad[] = {
        {"1\n2\n", "weights: %s", "has 2 weights, and the training file has 12 samples", ERR_DATA},
        {"1\n-2\n", "weights: %s", ":2: '-2' is no weight", ERR_DATA},
        {"1\n2\nmany\n", "weights: %s", ":3: 'many' is no weight", ERR_DATA},
        {"0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n0\n", "weights: %s", "all weights are 0", ERR_DATA},
        {"", "weight: kind, target: share", "holds what is no weight", ERR_DATA},
        {"", "weight: shares", "data.weight: ", ERR_CONFIG},
        {"", "without: share", "needs the weights", ERR_CONFIG},
        {"", "weights: /nowhere/at/all", "/nowhere/at/all", ERR_INPUT},
    };
    put_table();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char rest[900] = ", sampling: weights, ";
        size_t used = strlen(rest);
        struct dataset *d = NULL;
        struct sample_weights w = {0};
        const char *path = file_put("bad.txt", bad[i].lines, strlen(bad[i].lines));
        const char *hole = strstr(bad[i].rest, "%s");
        int before = hole ? (int)(hole - bad[i].rest) : (int)strlen(bad[i].rest);
        snprintf(rest + used, sizeof rest - used, "%.*s%s", before, bad[i].rest, hole ? path : "");
        assert_fails(bad[i].err, weights_try(rest, &d, &w));
        if (!strstr(error_message(), bad[i].words)) fail_msg("%s: %s", bad[i].words, error_message());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_are_balanced),
        cmocka_unit_test(rows_have_their_weights),
        cmocka_unit_test(what_other_columns_lack_does_not_matter),
        cmocka_unit_test(what_is_wrong_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
