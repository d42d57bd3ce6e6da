/* Writing sets down: what is read back is what was there, for every kind of sample; and tokens keep
 * their text. */
#include "tests/unit/data_fixture.h"

#include "engine/data/prepare.h"

#include <unistd.h>

enum { ROOM = 4096 };

static void same_samples(struct dataset *a, struct dataset *b) {
    static char x[2][ROOM];
    int32_t labels[2][64] = {{0}};
    float target[2][4] = {{0}};
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->classes, b->classes);
    assert_int_equal(a->labels, b->labels);
    assert_int_equal(a->targets, b->targets);
    assert_true(shape_equal(&a->shape, &b->shape));
    assert_true(dataset_sample_bytes(a) <= ROOM && a->labels <= 64 && a->targets <= 4);
    for (int64_t i = 0; i < a->size; i++) {
        assert_ok(a->ops->read(a, i, x[0], labels[0], target[0]));
        assert_ok(b->ops->read(b, i, x[1], labels[1], target[1]));
        assert_memory_equal(x[0], x[1], dataset_sample_bytes(a));
        assert_memory_equal(labels[0], labels[1], (size_t)a->labels * sizeof **labels);
        assert_memory_equal(target[0], target[1], (size_t)a->targets * sizeof **target);
    }
}

static void check_round(const char *yaml, const char *name, const char *back) {
    char text[2048], folder[512];
    struct dataset *part[2] = {set_open(yaml, true), set_open(yaml, false)};
    snprintf(folder, sizeof folder, "%s", scratch_path(name));
    assert_ok(dataset_prepare(part[0], folder, "train"));
    assert_ok(dataset_prepare(part[1], folder, "val"));
    if (part[0]->ops->decode && !dataset_prepared_bytes(part[0]))
        assert_ok(dataset_prepare_characters(part[0], folder));
    snprintf(text, sizeof text, back, folder, folder, folder);
    for (int k = 0; k < 2; k++) {
        struct dataset *again = set_open(text, k == 0);
        same_samples(part[k], again);
        for (int32_t t = 0; part[k]->ops->decode && t < part[k]->classes; t++) {
            char a[8] = {0}, b[8] = {0};
            assert_int_equal(dataset_decode(part[k], t, a), dataset_decode(again, t, b));
            assert_memory_equal(a, b, 8);
        }
        dataset_close(again);
        dataset_close(part[k]);
    }
}

static const char pair[] = "{set: npy, train: %s/train-images.npy, val: %s/val-images.npy}";

static void test_numbers(void **state) {
    (void)state;
    check_round("{set: shapes, train: 40, val: 60}", "bytes",
                "{set: npy, train: %s/train-images.npy, val: %s/val-images.npy, classes: 10}");
    check_round("{set: spirals, train: 40, val: 20}", "floats", pair);
    char text[800] = "a,b,c\n", yaml[1024];
    size_t n = strlen(text);
    for (int i = 0; i < 30; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d,%g,%g\n", i, i * 0.3, i * 1.5 + 0.25);
    snprintf(yaml, sizeof yaml, "{set: csv, train: %s}", file_put("p.csv", text, n));
    check_round(yaml, "targets", pair);
}

static void test_text(void **state) {
    (void)state;
    char text[2000], yaml[1024];
    size_t n = 0;
    for (int i = 0; n < sizeof text - 16; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, i % 3 ? "%d, " : "\u00e9%d\u20ac", i * i);
    const char *path = file_put("p.txt", text, n);
    snprintf(yaml, sizeof yaml, "{set: text, train: %s, context: 16}", path);
    check_round(yaml, "characters",
                "{set: tokens, train: %s/train.bin, val: %s/val.bin, context: 16, characters: "
                "%s/characters.txt}");
    snprintf(yaml, sizeof yaml, "{set: text, train: %s, context: 16, vocabulary: bytes}", path);
    check_round(yaml, "byte",
                "{set: tokens, train: %s/train.bin, val: %s/val.bin, context: 16, vocabulary: 256, "
                "characters: bytes}");
    uint8_t wide[400] = {0};
    for (int i = 0; i < 100; i++) wide[4 * i] = (uint8_t)i, wide[4 * i + 2] = i % 2;
    snprintf(yaml, sizeof yaml, "{set: tokens, train: %s, type: i32, context: 7}",
             file_put("wide.bin", wide, sizeof wide));
    check_round(yaml, "wide",
                "{set: tokens, train: %s/train.bin, val: %s/val.bin, type: i32, context: 7, "
                "vocabulary: 65636}");
}

static void check_characters(const char *characters, size_t n, enum error expected) {
    static const uint8_t tokens[] = {0, 0, 1, 0, 2, 0, 0, 0, 1, 0};
    char yaml[2048];
    struct dataset *d;
    const char *path = file_put("c.bin", tokens, sizeof tokens);
    snprintf(yaml, sizeof yaml, "{set: tokens, train: %s, context: 1, val: 1, characters: %s}", path,
             file_put("c.txt", characters, n));
    enum error err = set_try(yaml, true, &d);
    if (err != expected) fail_msg("'%s': %s", characters, error_message());
    if (err == ERR_NONE) dataset_close(d);
}

static void test_characters(void **state) {
    (void)state;
    check_characters("abc", 3, ERR_NONE);
    check_characters("ab\xc3\xa9", 4, ERR_NONE);
    check_characters("ab", 2, ERR_DATA);
    check_characters("abcd", 4, ERR_DATA);
    check_characters("acb", 3, ERR_DATA);
    check_characters("aab", 3, ERR_DATA);
    check_characters("ab\xc3", 3, ERR_DATA);
    check_characters("a\xff"
                     "b",
                     3, ERR_DATA);
}

/* Nothing is left of what could not be written whole. */
static void test_refused(void **state) {
    (void)state;
    struct dataset *d = set_open("{set: spirals, train: 40, val: 20}", true);
    const char *path = file_put("file", "", 0);
    assert_fails(ERR_CREATE, dataset_prepare(d, path, "train"));
    dataset_close(d);
    struct fake f = fake_set(60, SAMPLE_F32, (struct shape){1, {4}});
    f.broken = 50;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", scratch_path("broken"));
    assert_fails(ERR_DATA, dataset_prepare(&f.base, folder, "train"));
    assert_int_equal(rmdir(folder), 0); /* it is empty */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
