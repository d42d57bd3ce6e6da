/* Which samples are held out: each class and each range of targets has its share in both parts, whatever the order of the
 * file, and no sample is in both. */
#include "engine/data/preprocessing.h"
#include "engine/data/transform.h"
#include "tests/unit/data_fixture.h"

#include <math.h>

enum { SAMPLES = 400 };

static const char *yaml_of(const char *rest) {
    static char yaml[2048];
    snprintf(yaml, sizeof yaml, "{set: csv, train: %s%s}", scratch_path("t.csv"), rest);
    return yaml;
}

/* Row i has the number i and this class, or the target value_of(i). */
static void write_classes(const char *const *class_of, int n) {
    FILE *f = fopen(scratch_path("t.csv"), "w");
    assert_non_null(f);
    fprintf(f, "number,kind\n");
    for (int i = 0; i < n; i++) fprintf(f, "%d,%s\n", i, class_of[i]);
    fclose(f);
}

static void write_values(int n, int step) {
    FILE *f = fopen(scratch_path("t.csv"), "w");
    assert_non_null(f);
    fprintf(f, "number,price\n");
    for (int i = 0; i < n; i++) fprintf(f, "%d,%d.5\n", i, i * step % n);
    fclose(f);
}

struct seen { /* of a part: the rows, and samples of each class */
    int64_t n, row[SAMPLES], of_class[8];
    float target[SAMPLES];
};

static void look(struct dataset *d, struct seen *s) {
    *s = (struct seen){.n = d->size};
    for (int64_t i = 0; i < d->size; i++) {
        float x[2];
        int32_t label = 0;
        assert_ok(d->ops->read(d, i, x, &label, &s->target[i]));
        s->row[i] = (int64_t)x[0];
        if (d->classes) s->of_class[label]++;
        if (i) assert_true(s->row[i] > s->row[i - 1]); /* in the order of the file */
    }
}

static void open_part(const char *rest, bool train, struct seen *s) {
    struct dataset *d = set_open(yaml_of(rest), train);
    look(d, s);
    dataset_close(d);
}

static void assert_parts(const struct seen *train, const struct seen *val, int n) {
    int times[SAMPLES] = {0};
    assert_int_equal(train->n + val->n, n);
    for (int64_t i = 0; i < train->n; i++) times[train->row[i]]++;
    for (int64_t i = 0; i < val->n; i++) times[val->row[i]]++;
    for (int i = 0; i < n; i++) assert_int_equal(times[i], 1);
}

static bool same_rows(const struct seen *a, const struct seen *b) {
    return a->n == b->n && !memcmp(a->row, b->row, (size_t)a->n * sizeof *a->row);
}

/* 200 of a, 120 of b, 60 of c, 19 of d, 1 of e: sorted, or mixed. */
static void five_classes(bool sorted, const char **class_of) {
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    static const int count[] = {200, 120, 60, 19, 1};
    int at = 0;
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < count[k]; i++, at++) class_of[sorted ? at : at * 171 % SAMPLES] = names[k];
}

static void each_class_has_its_share(void **state) {
    (void)state;
    static const int share[] = {50, 30, 15, 5, 0}; /* of a quarter, to within one */
    for (int sorted = 0; sorted < 2; sorted++) {
        const char *class_of[SAMPLES];
        struct seen train, val, other;
        five_classes(sorted, class_of);
        write_classes(class_of, SAMPLES);
        open_part(", val: 25%", true, &train);
        open_part(", val: 25%", false, &val);
        assert_int_equal(val.n, 100);
        assert_parts(&train, &val, SAMPLES);
        for (int k = 0; k < 5; k++) assert_true(labs(val.of_class[k] - share[k]) <= 1);
        assert_int_equal(train.of_class[4], 1); /* the only one stays */
        open_part(", val: 25%", false, &other);
        assert_true(same_rows(&val, &other));
        open_part(", val: 25%, split: 7", false, &other);
        assert_false(same_rows(&val, &other));
        for (int k = 0; k < 5; k++) assert_true(labs(other.of_class[k] - share[k]) <= 1);
    }
}

/* The seed of training is not asked. */
static void the_seed_changes_nothing(void **state) {
    (void)state;
    const char *class_of[SAMPLES];
    struct seen of[2];
    five_classes(true, class_of);
    write_classes(class_of, SAMPLES);
    for (int i = 0; i < 2; i++) {
        struct setup s;
        struct dataset *d;
        setup_make(&s, yaml_of(", val: 25%"));
        assert_ok(dataset_open(&s.config, false, (uint64_t)i, &d));
        look(d, &of[i]);
        dataset_close(d);
        setup_free(&s);
    }
    assert_true(same_rows(&of[0], &of[1]));
}

static void each_tenth_of_the_targets_has_its_share(void **state) {
    (void)state;
    for (int step = 1; step < 200; step += 56) { /* in order, and not */
        struct seen train, val;
        int of_tenth[10] = {0};
        write_values(200, step);
        open_part(", val: 10%", true, &train);
        open_part(", val: 10%", false, &val);
        assert_parts(&train, &val, 200);
        for (int i = 0; i < val.n; i++) of_tenth[(int)val.target[i] / 20]++;
        for (int k = 0; k < 10; k++) assert_int_equal(of_tenth[k], 2);
    }
}

static void the_end_is_the_end(void **state) {
    (void)state;
    struct seen train, val;
    write_values(50, 1);
    open_part(", val: 7, split: end, limit: 5", true, &train);
    open_part(", val: 7, split: end", false, &val);
    for (int i = 0; i < 5; i++) assert_int_equal(train.row[i], i);
    for (int i = 0; i < 7; i++) assert_int_equal(val.row[i], 43 + i);
    assert_int_equal(train.n, 5);
}

static void a_limit_takes_from_everywhere(void **state) {
    (void)state;
    const char *class_of[SAMPLES];
    struct seen all, val, few;
    five_classes(true, class_of);
    write_classes(class_of, SAMPLES);
    open_part(", val: 25%", true, &all);
    open_part(", val: 25%", false, &val);
    open_part(", val: 25%, limit: 60", true, &few);
    assert_int_equal(few.n, 60);
    for (int k = 0; k < 4; k++) assert_true(fabs((double)few.of_class[k] - (double)all.of_class[k] / 5) <= 1);
    for (int64_t i = 0; i < few.n; i++)
        for (int64_t k = 0; k < val.n; k++) assert_int_not_equal(few.row[i], val.row[k]);
}

/* What a network of the data asks for is what was held out, though it numbers the classes from the beginning. */
static void a_network_finds_its_own_part(void **state) {
    (void)state;
    const char *class_of[SAMPLES], *text;
    struct normalization n;
    struct preprocessing *p;
    struct dataset *d;
    struct setup s;
    struct seen val, again;
    five_classes(false, class_of);
    write_classes(class_of, SAMPLES);
    setup_make(&s, yaml_of(", val: 25%, split: 3"));
    assert_ok(dataset_open(&s.config, true, 1, &d));
    assert_ok(normalization_find(d, &s.config, &n));
    assert_ok(preprocessing_text(d, &n, s.pool, &text));
    assert_ok(preprocessing_parse(text, "file", s.pool, &p));
    dataset_close(d);
    open_part(", val: 25%, split: 3", false, &val);
    s.config.split = 0; /* the network knows better */
    assert_ok(dataset_open_like(&s.config, false, 9, &p->set.base, &d));
    look(d, &again);
    assert_true(same_rows(&val, &again));
    dataset_close(d);
    setup_free(&s);
}

/* ---- targets ---- */

static void targets_are_learned_as_deviations(void **state) {
    (void)state;
    struct setup s;
    struct dataset *d;
    struct normalization n;
    struct transform t;
    struct preprocessing *p;
    const char *text;
    struct seen train;
    double sum = 0, square = 0;
    FILE *f = fopen(scratch_path("t.csv"), "w");
    fprintf(f, "number,price\n");
    for (int i = 0; i < SAMPLES; i++) fprintf(f, "%d,%d\n", i, 1000000 + i * 37 % 401);
    fclose(f);
    setup_make(&s, yaml_of(", val: 25%"));
    s.config.values = true;
    assert_ok(dataset_open(&s.config, true, 1, &d));
    look(d, &train);
    for (int i = 0; i < train.n; i++) sum += (double)train.target[i] - 1e6;
    double mean = sum / (double)train.n;
    for (int i = 0; i < train.n; i++) square += pow((double)train.target[i] - 1e6 - mean, 2);
    double deviation = sqrt(square / (double)train.n);
    assert_ok(normalization_find(d, &s.config, &n));
    assert_int_equal(n.targets, 1);
    assert_true(fabs((double)n.target_mean[0] - 1e6 - mean) < 0.1); /* of a float */
    assert_true(fabs(1 / (double)n.target_scale[0] - deviation) < 1e-3 * deviation);
    assert_ok(transform_init(&t, d, &s.config, &n, false, 0));
    float y = 1000123;
    transform_target(&t, &y, 1);
    assert_true(fabs((double)y - (123 - mean) / deviation) < 1e-3);
    normalization_undo(&n, &y, 1);
    assert_true(fabsf(y - 1000123) <= 0.125f);
    assert_ok(preprocessing_text(d, &n, s.pool, &text));
    assert_ok(preprocessing_parse(text, "file", s.pool, &p));
    assert_true(normalization_equal(&p->norm, &n));
    s.config.normalize_target = false;
    assert_ok(normalization_find(d, &s.config, &n));
    assert_int_equal(n.targets, 0);
    s.config.normalize_target = true, s.config.values = false; /* bce: fractions stay fractions */
    assert_ok(normalization_find(d, &s.config, &n));
    assert_int_equal(n.targets, 0);
    dataset_close(d);
    setup_free(&s);
}

/* As checkpoints say it from before there was a choice. */
static void what_says_nothing_held_out_the_end(void **state) {
    (void)state;
    struct pool *pool;
    struct preprocessing *p;
    assert_ok(pool_create(&pool));
    assert_ok(preprocessing_parse("{\"data\":\"csv\",\"shape\":[2],\"values\":\"floats\",\"plane\":false,\"mean\":[0],"
                                  "\"std\":[1],\"classes\":0,\"labels\":0,\"targets\":1}",
                                  "file", pool, &p));
    assert_int_equal(p->set.base.split, SPLIT_END);
    assert_int_equal(p->norm.targets, 0);
    pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_class_has_its_share),
        cmocka_unit_test(the_seed_changes_nothing),
        cmocka_unit_test(each_tenth_of_the_targets_has_its_share),
        cmocka_unit_test(the_end_is_the_end),
        cmocka_unit_test(a_limit_takes_from_everywhere),
        cmocka_unit_test(a_network_finds_its_own_part),
        cmocka_unit_test(targets_are_learned_as_deviations),
        cmocka_unit_test(what_says_nothing_held_out_the_end),
    };
    return cmocka_run_group_tests_name("split", tests, NULL, NULL);
}
