/* Columns of a CSV: text, categories, missing values, which are read; and that a checkpoint holds all that another file
 * needs to be read in the same way. */
#include "tests/unit/data_fixture.h"

#include <math.h>

#include "engine/data/columns.h"
#include "engine/data/preprocessing.h"

static const char table[] = "id,age,city,kind\n"
                            "1,10,Rome,good\n"
                            "2,,\"Bern, CH\",bad\n"
                            "3,30,Oslo,\"so \"\"so\"\"\"\n"
                            "4,NA,null,good\n"
                            "5,1000,Rome,bad\n";

static const char *yaml_of(const char *name, const char *rest) {
    static char yaml[2048];
    snprintf(yaml, sizeof yaml, "{set: csv, train: %s, split: end%s}", scratch_path(name), rest);
    return yaml;
}

static void put(const char *name, const char *text) {
    file_put(name, text, strlen(text));
}

static void check_row(struct dataset *d, int64_t i, int n, const float *want, int32_t class) {
    float x[16], target;
    int32_t label = -1;
    assert_int_equal(shape_count(&d->shape), n);
    assert_ok(d->ops->read(d, i, x, &label, &target));
    for (int k = 0; k < n; k++)
        if (x[k] != want[k]) fail_msg("row %d, value %d: %g, not %g", (int)i, k, (double)x[k], (double)want[k]);
    assert_int_equal(label, class);
}

/* The mean is that of the training rows (10 and 30), not of the row that is held out. */
static void text_becomes_categories(void **state) {
    (void)state;
    put("t.csv", table);
    struct dataset *d = set_open(yaml_of("t.csv", ", val: 1, without: id"), true);
    static const char *const classes[] = {"bad", "good", "so \"so\""};
    static const char *const names[] = {"age", "city=Bern, CH", "city=Oslo", "city=Rome", "kind"};
    assert_int_equal(d->size, 4);
    assert_int_equal(d->classes, 3);
    for (int k = 0; k < 3; k++) assert_string_equal(dataset_class_name(d, k), classes[k]);
    for (int k = 0; k < 5; k++) assert_string_equal(dataset_column_name(d, k), names[k]);
    check_row(d, 0, 4, (float[]){10, 0, 0, 1}, 1);
    check_row(d, 1, 4, (float[]){20, 1, 0, 0}, 0);
    check_row(d, 2, 4, (float[]){30, 0, 1, 0}, 2);
    check_row(d, 3, 4, (float[]){20, 0, 0, 0}, 1);
    assert_non_null(strstr(d->note, "missing values"));
    assert_non_null(strstr(d->note, ": 3 (the first: line 3, column 2 'age': '')"));
    dataset_close(d);
    d = set_open(yaml_of("t.csv", ", val: 1, without: id"), false);
    assert_int_equal(d->size, 1);
    check_row(d, 0, 4, (float[]){1000, 0, 0, 1}, 0);
    dataset_close(d);
}

static void columns_are_chosen(void **state) {
    (void)state;
    static const struct {
        const char *rest;
        int n;
        float first[8];
        int32_t class;
    } asked[] = {
        {", columns: [age]", 1, {10}, 1},
        {", columns: [3, age]", 4, {10, 0, 0, 1}, 1}, /* by number; in the order of the file */
        {", columns: [age, id, kind], without: 1", 1, {10}, 1},
        {", columns: age, missing: 7.5", 1, {10}, 1},
        {", columns: [id], target: city, categorical: [id]", 5, {1}, 2},
    };
    put("t.csv", table);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        char rest[200];
        struct dataset *d;
        snprintf(rest, sizeof rest, ", val: 1%s", asked[i].rest);
        enum error err = set_try(yaml_of("t.csv", rest), true, &d);
        if (i == 4) { /* the fourth row has no city */
            assert_int_equal(err, ERR_DATA);
            assert_non_null(strstr(error_message(), "t.csv:5: column 3 'city': 'null': the target is missing"));
            continue;
        }
        assert_int_equal(err, ERR_NONE);
        check_row(d, 0, asked[i].n, asked[i].first, asked[i].class);
        if (i == 3) check_row(d, 1, 1, (float[]){7.5}, 0);
        dataset_close(d);
    }
    put("n.csv", "1,7,x\n2,9,y\n2,7,x\n1,9,y\n"); /* numbers that are categories, and no header */
    struct dataset *d = set_open(yaml_of("n.csv", ", val: 1, categorical: 2"), true);
    check_row(d, 1, 3, (float[]){2, 0, 1}, 1);
    assert_null(dataset_column_name(d, 0));
    dataset_close(d);
    put("h.csv", "2019,2020,y\n1,2,0\n3,4,1\n");
    d = set_open(yaml_of("h.csv", ", val: 1, header: true, columns: [2020]"), true);
    check_row(d, 0, 1, (float[]){2}, 0);
    dataset_close(d);
    put("q.csv", "\"a, in m\";b;y\n1;2;0\n3;4;1\n"); /* what separates columns does not stand in quotes */
    d = set_open(yaml_of("q.csv", ", val: 1, columns: [\"a, in m\"]"), true);
    check_row(d, 0, 1, (float[]){1}, 0);
    dataset_close(d);
}

static void what_is_wrong_is_named(void **state) {
    (void)state;
    static const struct {
        enum error err;
        const char *text, *rest, *says, *hint;
    } wrong[] = {
        {ERR_DATA, "a,b\n1,x\n1O,y\n", "", "t.csv:3: column 1 'a': '1O' is no number", "categorical"},
        {ERR_DATA, "a,b\nx,1\n7,2\n", "", "t.csv:3: column 1 'a': '7' is a number, where line 2 has text", "header"},
        {ERR_DATA, "a;b\n1,5;x\n2,5;y\n", "", "t.csv:2: column 1 'a': '1,5' has a decimal comma", "categorical"},
        {ERR_DATA, "a,b\n1,2\n,3\n", ", missing: error", "t.csv:3: column 1 'a': '': the value is missing", "mean"},
        {ERR_DATA, "a,b\n,2\n,3\n", "", "column 1 'a' has no value at all", "without"},
        {ERR_DATA, "a,b\n\xe9t\xe9,2\n1,3\n", "", "t.csv:2: column 1 'a': its text is no UTF-8", "UTF-8"},
        {ERR_CONFIG, "a,b\n1,2\n1,3\n", ", without: c", "data.without: ", "numbers from 1 to 2"},
        {ERR_CONFIG, "a,b\n1,2\n1,3\n", ", columns: [a, 3]", "has no column '3'", "numbers from 1 to 2"},
        {ERR_CONFIG, "a,b\n1,2\n1,3\n", ", columns: b", "no column is left", ""},
        {ERR_CONFIG, "a,b,c\n1,2,3\n1,3,4\n", ", without: a, categorical: a", "column 'a' is not read", ""},
        {ERR_CONFIG, "a,b\n1,2\n1,3\n", ", target: 0", "no column '0'", ""},
        {ERR_DATA, "a,b\n\"1\n2\",2\n", "", "t.csv:2: a quote is not closed: \"1", "next line"},
        {ERR_DATA, "a,y\n\"1,1\n2,0\n", "", "t.csv:2: a quote is not closed: \"1,1", "next line"},
        {ERR_DATA, "a,\"y\n1,1\n2,0\n", "", "t.csv:1: a quote is not closed: \"y", "next line"},
    };
    struct dataset *d;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("t.csv", wrong[i].text);
        char rest[200];
        snprintf(rest, sizeof rest, ", val: 1%s", wrong[i].rest);
        enum error err = set_try(yaml_of("t.csv", rest), true, &d);
        if (err != wrong[i].err || !strstr(error_message(), wrong[i].says) || !strstr(error_hint(), wrong[i].hint))
            fail_msg("'%s': %s: %s\n%s", wrong[i].text, error_text(err), error_message(), error_hint());
    }
    struct setup s;
    assert_false(setup_try(&s, yaml_of("t.csv", ", missing: often")));
    assert_non_null(strstr(config_errors_text(s.errors, s.pool), "neither mean nor error nor a number"));
    setup_free(&s);
}

static void too_many_categories_are_refused(void **state) {
    (void)state;
    static char text[40000] = "name,y\n";
    struct dataset *d;
    size_t n = strlen(text);
    for (int i = 0; i <= CATEGORIES_MOST; i++) n += (size_t)snprintf(text + n, 32, "somebody %d,%d\n", i, i % 2);
    put("t.csv", text);
    assert_fails(ERR_DATA, set_try(yaml_of("t.csv", ""), true, &d));
    assert_non_null(strstr(error_message(), "t.csv:1002: column 1 'name': more than 1000 categories"));
    assert_non_null(strstr(error_hint(), "data.without"));
    put("t.csv", strcpy(text, "name,y\na,1\nb,2\nc,1\n"));
    d = set_open(yaml_of("t.csv", ", val: 1"), true);
    dataset_close(d);
}

/* A validation file has its columns in another order, more of them, and cells that training does not know. */
static void other_files_are_read_as_training_was(void **state) {
    (void)state;
    char rest[700];
    put("t.csv", table);
    put("v.csv", "kind,more,city,age\ngood,,Rome,5\nbad,,Paris,6\nbad,,12,NA\n");
    snprintf(rest, sizeof rest, ", val: %s, without: id", scratch_path("v.csv"));
    struct dataset *d = set_open(yaml_of("t.csv", rest), false);
    check_row(d, 0, 4, (float[]){5, 0, 0, 1}, 1);
    check_row(d, 1, 4, (float[]){6, 0, 0, 0}, 0);
    check_row(d, 2, 4, (float[]){1040.f / 3, 0, 0, 0}, 0); /* all rows of the file are to train on */
    assert_non_null(strstr(d->note, ": 2 (the first: line 3, column 3 'city': 'Paris'); "));
    dataset_close(d);
    static const char *const wrong[][2] = {
        {"kind,age\ngood,5\n", "v.csv has no column 'city', which "},
        {"kind,city,age\nbest,Rome,5\n", "v.csv:2: column 1 'kind': 'best' is no class of the training file"},
        {"kind,city,age\ngood,Rome,old\n", "v.csv:2: column 3 'age': 'old' is no number"},
        {"1,2,Rome\n", "v.csv has 3 columns, and "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("v.csv", wrong[i][0]);
        enum error err = set_try(yaml_of("t.csv", rest), false, &d);
        if (err != ERR_DATA || !strstr(error_message(), wrong[i][1])) fail_msg("%s: %s", wrong[i][0], error_message());
    }
}

/* What a checkpoint keeps of the set, read back. */
static struct preprocessing *kept(struct dataset *d, const struct normalization *n, struct pool *pool) {
    struct preprocessing *p;
    const char *text;
    assert_ok(preprocessing_text(d, n, pool, &text));
    assert_non_null(text);
    assert_ok(preprocessing_parse(text, "file", pool, &p));
    return p;
}

static void a_checkpoint_reads_other_files(void **state) {
    (void)state;
    struct setup s;
    struct dataset *d;
    struct normalization n;
    struct pool *pool;
    struct preprocessing *p;
    assert_ok(pool_create(&pool));
    put("t.csv", table);
    setup_make(&s, yaml_of("t.csv", ", val: 1, without: id"));
    assert_ok(dataset_open(&s.config, true, 1, &d));
    assert_ok(normalization_find(d, &s.config, &n));
    p = kept(d, &n, pool);
    assert_ok(dataset_check_like(d, &p->set.base));
    dataset_close(d);
    setup_free(&s);
    char rest[700];
    put("v.csv", "age,kind,city\n5,good,Oslo\n,bad,Paris\n");
    snprintf(rest, sizeof rest, ", val: %s", scratch_path("v.csv"));
    setup_make(&s, yaml_of("none.csv", rest));
    assert_ok(dataset_open_like(&s.config, false, 1, &p->set.base, &d));
    check_row(d, 0, 4, (float[]){5, 0, 1, 0}, 1);
    check_row(d, 1, 4, (float[]){20, 0, 0, 0}, 0);
    dataset_close(d);
    setup_free(&s);
    snprintf(rest, sizeof rest, ", val: %s, target: city", scratch_path("v.csv"));
    setup_make(&s, yaml_of("none.csv", rest));
    assert_fails(ERR_CONFIG, dataset_open_like(&s.config, false, 1, &p->set.base, &d));
    assert_non_null(strstr(error_message(), "data.target is 'city', and the network was trained on column 4 'kind'"));
    setup_free(&s);
    put("s.csv", "city;age\nRome;1\nOslo;\n"); /* samples alone */
    assert_ok(dataset_samples(scratch_path("s.csv"), &p->set.base, &d));
    check_row(d, 0, 4, (float[]){1, 0, 0, 1}, 0);
    check_row(d, 1, 4, (float[]){20, 0, 1, 0}, 0);
    dataset_close(d);
    put("s.csv", "city;height\nRome;1\n");
    assert_fails(ERR_CONFIG, dataset_samples(scratch_path("s.csv"), &p->set.base, &d));
    assert_non_null(strstr(error_message(), "s.csv has no column 'age', which the network was trained on"));
    pool_free(pool);
}

/* More columns than a picture has channels, of scales from 1 to 1e6: each has its own mean and deviation, which a checkpoint
 * keeps. */
static void columns_are_normalised_apart(void **state) {
    (void)state;
    enum { COLUMNS = 40, ROWS = 30 };
    struct setup s;
    struct dataset *d;
    struct normalization n;
    struct pool *pool;
    struct preprocessing *p;
    FILE *f = fopen(scratch_path("wide.csv"), "w");
    assert_non_null(f);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLUMNS; c++) fprintf(f, "%d,", (c % 7 + 1) * (r * 7 % 11 + c) * (c % 3 ? 1 : 10000));
        fprintf(f, "%d\n", r % 2);
    }
    fclose(f);
    setup_make(&s, yaml_of("wide.csv", ", val: 5"));
    assert_ok(dataset_open(&s.config, true, 1, &d));
    assert_ok(normalization_find(d, &s.config, &n));
    assert_int_equal(n.channels, COLUMNS);
    for (int c = 0; c < COLUMNS; c++) {
        double sum = 0, square = 0, mean, std;
        for (int r = 0; r < ROWS - 5; r++) sum += (c % 7 + 1) * (r * 7 % 11 + c) * (c % 3 ? 1 : 10000);
        for (int r = 0; r < ROWS - 5; r++) {
            double off = (c % 7 + 1) * (r * 7 % 11 + c) * (c % 3 ? 1 : 10000) - sum / (ROWS - 5);
            square += off * off;
        }
        normalization_tell(d, &n, c, &mean, &std);
        assert_true(fabs(mean - sum / (ROWS - 5)) <= 1e-5 * mean + 1e-6);
        assert_true(fabs(std - sqrt(square / (ROWS - 5))) <= 1e-4 * std);
    }
    assert_ok(pool_create(&pool));
    p = kept(d, &n, pool);
    assert_true(normalization_equal(&n, &p->norm));
    char words[640];
    assert_non_null(strstr(normalization_words(d, &n, words), " ..., deviation"));
    dataset_close(d);
    setup_free(&s);
    pool_free(pool);
}

/* Without a header, columns are known by their places, with or without the target. */
static void samples_without_a_header(void **state) {
    (void)state;
    struct pool *pool;
    struct normalization n = {.channels = 1, .scale = {1}};
    struct preprocessing *p;
    struct dataset *d;
    assert_ok(pool_create(&pool));
    put("t.csv", "1,x,10\n2,y,20\n1,x,30\n");
    d = set_open(yaml_of("t.csv", ", val: 1, target: 2"), true);
    p = kept(d, &n, pool);
    dataset_close(d);
    static const char *const files[] = {"7,70\n", "7,whatever,70\n"};
    for (int i = 0; i < 2; i++) {
        put("s.csv", files[i]);
        assert_ok(dataset_samples(scratch_path("s.csv"), &p->set.base, &d));
        check_row(d, 0, 2, (float[]){7, 70}, 0);
        dataset_close(d);
    }
    put("s.csv", "7\n");
    assert_fails(ERR_CONFIG, dataset_samples(scratch_path("s.csv"), &p->set.base, &d));
    pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_becomes_categories),
        cmocka_unit_test(columns_are_chosen),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(too_many_categories_are_refused),
        cmocka_unit_test(other_files_are_read_as_training_was),
        cmocka_unit_test(a_checkpoint_reads_other_files),
        cmocka_unit_test(columns_are_normalised_apart),
        cmocka_unit_test(samples_without_a_header),
    };
    return cmocka_run_group_tests_name("csv", tests, NULL, NULL);
}
