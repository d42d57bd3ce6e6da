/* CIFAR's binary files: which records are whose, both kinds of labels, and files that are not what
 * they should be. */
#include "tests/unit/data_pictures.h"

enum { PIXELS = 3072 };

/* n records whose pixels are all 'mark' and the number of the record. */
static size_t records(uint8_t *out, int n, int labels, int mark, int label) {
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < labels; k++) out[at++] = (uint8_t)(label + i + 40 * k);
        memset(out + at, mark + i, PIXELS);
        at += PIXELS;
    }
    return at;
}

static uint8_t bytes[1 << 15], x[PIXELS];

static const char *yaml_of(const char *path, const char *more) {
    static char yaml[2048];
    snprintf(yaml, sizeof yaml, "{set: cifar, train: %s, split: end%s}", scratch_path(path), more);
    return yaml;
}

static void check_sample(struct dataset *d, int64_t i, int pixel, int label) {
    int32_t is;
    assert_ok(d->ops->read(d, i, x, &is, NULL));
    assert_int_equal(x[0], pixel);
    assert_int_equal(x[PIXELS - 1], pixel);
    assert_int_equal(is, label);
}

static void check_says(const char *yaml, bool train, enum error expected, const char *says) {
    struct dataset *d;
    assert_fails(expected, set_try(yaml, train, &d));
    if (!strstr(error_message(), says)) fail_msg("%s: %s", yaml, error_message());
}

static void test_ten(void **state) {
    (void)state;
    char name[64];
    folder_put("ten");
    for (int k = 1; k <= 5; k++) {
        snprintf(name, sizeof name, "ten/data_batch_%d.bin", k);
        size_t n = records(bytes, 2, 1, 10 * k, k);
        if (k == 3) /* gzipped ones are taken, too */
            snprintf(name, sizeof name, "ten/data_batch_3.bin.gz"), file_put_gz(name, bytes, n);
        else
            file_put(name, bytes, n);
    }
    file_put("ten/test_batch.bin", bytes, records(bytes, 3, 1, 100, 0));
    struct dataset *train = set_open(yaml_of("ten", ""), true), *val = set_open(yaml_of("ten", ""), false);
    assert_int_equal(train->size, 10);
    assert_int_equal(train->classes, 10);
    for (int i = 0; i < 10; i++) check_sample(train, i, 10 * (i / 2 + 1) + i % 2, i / 2 + 1 + i % 2);
    assert_int_equal(val->size, 3);
    check_sample(val, 2, 102, 2);
    dataset_close(train);
    dataset_close(val);
    train = set_open(yaml_of("ten", ", val: 4"), true); /* held out across files */
    val = set_open(yaml_of("ten", ", val: 4"), false);
    assert_int_equal(train->size, 6);
    check_sample(val, 0, 40, 4);
    dataset_close(train);
    dataset_close(val);
    assert_int_equal(remove(scratch_path("ten/data_batch_4.bin")), 0);
    check_says(yaml_of("ten", ""), true, ERR_INPUT, "no data_batch_4.bin");
}

static void test_hundred(void **state) {
    (void)state;
    folder_put("hundred");
    file_put("hundred/train.bin", bytes, records(bytes, 4, 2, 7, 3));
    file_put("hundred/test.bin", bytes, records(bytes, 2, 2, 9, 5));
    struct dataset *fine = set_open(yaml_of("hundred", ""), true),
                   *coarse = set_open(yaml_of("hundred", ", labels: coarse"), false);
    assert_int_equal(fine->classes, 100);
    assert_int_equal(coarse->classes, 20);
    check_sample(fine, 3, 10, 46);
    check_sample(coarse, 1, 10, 6);
    dataset_close(fine);
    dataset_close(coarse);
    char more[600];
    file_put("data_batch_9.bin", bytes, records(bytes, 2, 1, 9, 5));
    snprintf(more, sizeof more, ", val: %s", scratch_path("data_batch_9.bin"));
    check_says(yaml_of("hundred", more), false, ERR_CONFIG, "not of the same set");
}

static void test_refused(void **state) {
    (void)state;
    size_t n = records(bytes, 2, 1, 1, 1);
    check_says("{set: cifar}", true, ERR_CONFIG, "data.train is missing");
    folder_put("none");
    check_says(yaml_of("none", ""), true, ERR_INPUT, "no train.bin of CIFAR-100");
    file_put("data_batch_2.bin", bytes, n - 1);
    check_says(yaml_of("data_batch_2.bin", ", val: 1"), true, ERR_DATA, "not a multiple");
    file_put("data_batch_2.bin", bytes, 0);
    check_says(yaml_of("data_batch_2.bin", ", val: 1"), true, ERR_DATA, "not a multiple");
    file_put_gz("data_batch_2.bin", bytes, n - 5);
    check_says(yaml_of("data_batch_2.bin", ", val: 1"), true, ERR_DATA, "not a multiple");
    bytes[PIXELS + 1] = 10;
    file_put("data_batch_2.bin", bytes, n);
    check_says(yaml_of("data_batch_2.bin", ", val: 1"), true, ERR_DATA, "record 1 has label 10");
    check_says(yaml_of("data_batch_2.bin", ", val: 2"), true, ERR_CONFIG, "none to train on");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ten), cmocka_unit_test(test_hundred),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
