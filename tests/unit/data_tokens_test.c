/* Sets of tokens: which tokens and labels a sample has, what text they stand for, what the loader
 * makes of them, and what is refused. */
#include "tests/unit/data_fixture.h"

#include <fcntl.h>
#include <unistd.h>

static const char *set_of(const char *format, const char *path) {
    static char yaml[2048];
    snprintf(yaml, sizeof yaml, format, path);
    return yaml;
}

static void check_says(const char *yaml, bool train, enum error expected, const char *says) {
    struct dataset *d;
    assert_fails(expected, set_try(yaml, train, &d));
    if (!strstr(error_message(), says)) fail_msg("%s: %s", yaml, error_message());
}

static void test_windows(void **state) {
    (void)state;
    const char *path = file_put("w.txt", "abcdefghijklmnopqrstuvwxyz", 26), *yaml;
    int32_t x[5], label[5];
    yaml = set_of("{set: text, train: %s, val: 2, context: 5, vocabulary: bytes}", path);
    struct dataset *train = set_open(yaml, true), *val = set_open(yaml, false);
    assert_int_equal(train->size, 3); /* 5 windows, of which 2 are held out */
    assert_int_equal(val->size, 2);
    assert_int_equal(train->labels, 5);
    assert_int_equal(train->classes, 256);
    assert_ok(train->ops->read(train, 1, x, label, NULL));
    for (int k = 0; k < 5; k++) {
        assert_int_equal(x[k], 'f' + k);
        assert_int_equal(label[k], 'g' + k);
    }
    assert_ok(val->ops->read(val, 1, x, label, NULL));
    assert_int_equal(x[0], 'u');
    assert_int_equal(label[4], 'z');
    dataset_close(train);
    dataset_close(val);
}

static void test_characters(void **state) {
    (void)state;
    static const char text[] = "b\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
                               "abab"; /* b, e acute, euro, a face, abab */
    const char *path = file_put("c.txt", text, sizeof text - 1);
    struct dataset *d = set_open(set_of("{set: text, train: %s, context: 3, val: 1}", path), true);
    int32_t x[8], label[3];
    int64_t n;
    char out[8];
    assert_int_equal(d->classes, 5); /* a b e euro face */
    assert_int_equal(d->size, 1);
    assert_ok(d->ops->read(d, 0, x, label, NULL));
    assert_int_equal(x[0], 1);
    assert_int_equal(x[1], 2);
    assert_int_equal(x[2], 3);
    assert_int_equal(label[2], 4);
    assert_int_equal(dataset_decode(d, 4, out), 4);
    assert_memory_equal(out, "\xf0\x9f\x98\x80", 4);
    assert_int_equal(dataset_decode(d, 3, out), 3);
    assert_memory_equal(out, "\xe2\x82\xac", 3);
    assert_int_equal(dataset_decode(d, 2, out), 2);
    assert_int_equal(dataset_decode(d, 0, out), 1);
    assert_int_equal(out[0], 'a');
    assert_int_equal(dataset_decode(d, 5, out), 0);
    assert_int_equal(dataset_decode(d, -1, out), 0);
    assert_ok(dataset_encode(d,
                             "a\xe2\x82\xac"
                             "b",
                             5, x, &n));
    assert_int_equal(n, 3);
    assert_int_equal(x[1], 3);
    assert_fails(ERR_DATA, dataset_encode(d, "ax", 2, x, &n));
    assert_non_null(strstr(error_message(), "U+0078"));
    assert_fails(ERR_DATA, dataset_encode(d, "\xe2\x82", 2, x, &n));
    assert_fails(ERR_DATA, dataset_encode(d, "\xff", 1, x, &n));
    dataset_close(d);
}

/* More than 256 characters take two bytes each. */
static void test_many_characters(void **state) {
    (void)state;
    char text[3000];
    size_t n = 0;
    for (int i = 0; i < 900; i++) {
        int code = 0x400 + i % 700;
        text[n++] = (char)(0xc0 | code >> 6), text[n++] = (char)(0x80 | (code & 63));
    }
    const char *path = file_put("m.txt", text, n);
    struct dataset *d = set_open(set_of("{set: text, train: %s, context: 8, val: 3}", path), true);
    int32_t x[8], label[8];
    char out[8];
    assert_int_equal(d->classes, 700);
    assert_ok(d->ops->read(d, 60, x, label, NULL));
    assert_int_equal(x[0], 480);
    assert_int_equal(label[7], 488);
    assert_int_equal(dataset_decode(d, 480, out), 2);
    assert_memory_equal(out, text + 960, 2);
    dataset_close(d);
}

static void test_types(void **state) {
    (void)state;
    static const uint8_t u16[] = {1, 0, 0xff, 0xff, 2, 1, 3, 0, 4, 0},
                         i32[] = {1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 3, 0, 0, 0};
    const char *path = file_put("a.bin", u16, sizeof u16);
    struct dataset *d;
    int32_t x[2], label[2];
    char out[8];
    int64_t n;
    d = set_open(set_of("{set: tokens, train: %s, context: 2, val: 1}", path), true);
    assert_int_equal(d->classes, 65536);
    assert_ok(d->ops->read(d, 0, x, label, NULL));
    assert_int_equal(x[1], 65535);
    assert_int_equal(label[1], 258);
    assert_int_equal(dataset_decode(d, 1, out), 0);
    assert_fails(ERR_CONFIG, dataset_encode(d, "a", 1, x, &n));
    dataset_close(d);
    path = file_put("b.bin", i32, sizeof i32);
    d = set_open(set_of("{set: tokens, train: %s, type: i32, context: 1, val: 1, vocabulary: 70000}", path), true);
    assert_int_equal(d->classes, 70000);
    assert_ok(d->ops->read(d, 1, x, label, NULL));
    assert_int_equal(x[0], 65536);
    dataset_close(d);
}

/* What the network sees are the tokens themselves, whatever 'normalize' does by itself. */
static void test_loader(void **state) {
    (void)state;
    char text[400];
    for (int i = 0; i < 400; i++) text[i] = (char)('a' + i * i % 23);
    struct setup s;
    struct loader *l;
    const struct step_batch *b;
    const char *path = file_put("l.txt", text, sizeof text),
               *yaml = set_of("{set: text, train: %s, context: 10, val: 5, vocabulary: bytes}", path);
    struct dataset *d = set_open(yaml, true);
    setup_make(&s, yaml);
    struct loader_params p = {.data = d,
                              .config = &s.config,
                              .sampler = {.size = d->size, .batch = 4, .shards = 2},
                              .shards = (int[]){1},
                              .nshards = 1,
                              .training = true,
                              .workers = 2,
                              .depth = 2};
    assert_ok(loader_open(&p, &l));
    for (int64_t step = 0; step < 3; step++) {
        assert_ok(loader_next(l, &b));
        for (int64_t i = 0; i < b->shards[0].n; i++)
            for (int64_t k = 0; k < 10; k++) {
                int64_t at = (step * 4 + i * 2 + 1) * 10 + k;
                assert_true(b->shards[0].x[i * 10 + k] == (float)text[at]);
                assert_int_equal(b->shards[0].labels[i * 10 + k], text[at + 1]);
            }
    }
    loader_close(l);
    dataset_close(d);
    setup_free(&s);
}

static void test_no_pictures(void **state) {
    (void)state;
    char yaml[2048];
    const char *path = file_put("p.txt", "to be or not to be", 18);
    static const char *const wrong[] = {"augment: flip", "normalize: {mean: 1, std: 2}"};
    for (int i = 0; i < 2; i++) {
        struct setup s;
        struct normalization n;
        struct loader *l;
        snprintf(yaml, sizeof yaml, "{set: text, train: %s, context: 2, val: 2, %s}", path, wrong[i]);
        struct dataset *d = set_open(yaml, true);
        setup_make(&s, yaml);
        struct loader_params p = {.data = d,
                                  .config = &s.config,
                                  .sampler = {.size = d->size, .batch = 1, .shards = 1},
                                  .shards = (int[]){0},
                                  .nshards = 1,
                                  .training = true,
                                  .workers = 1,
                                  .depth = 1};
        if (i == 1) assert_fails(ERR_CONFIG, normalization_find(d, &s.config, &n));
        assert_fails(ERR_CONFIG, loader_open(&p, &l));
        assert_non_null(strstr(error_message(), i ? "tokens" : "pictures"));
        dataset_close(d);
        setup_free(&s);
    }
}

/* A part of more than 256 MB stays in its file. When that shrinks, or is written over, a visit
 * fails by name. */
static void test_large(void **state) {
    (void)state;
    const char *path = file_put("large.bin", "", 0);
    const int64_t size = 300 << 20, context = 3000;
    int32_t x[3000], label[3000];
    static const uint8_t mark[] = {7, 0, 9, 1};
    int fd = open(path, O_WRONLY);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(pwrite(fd, mark, sizeof mark, 2 * (2 * context - 1)), sizeof mark);
    const char *yaml = set_of("{set: tokens, train: %s, context: 3000, val: 10}", path);
    struct dataset *d = set_open(yaml, true);
    assert_int_equal(d->classes, 266);
    assert_ok(d->ops->read(d, 1, x, label, NULL));
    assert_int_equal(x[context - 1], 7);
    assert_int_equal(label[context - 2], 7);
    assert_int_equal(label[context - 1], 265);
    assert_ok(d->ops->read(d, d->size - 1, x, label, NULL));
    count_allocations_begin();
    assert_ok(d->ops->read(d, 2, x, label, NULL));
    assert_int_equal(count_allocations_end(), 0);
    assert_int_equal(x[0], 265);
    assert_int_equal(pwrite(fd, "\xff\xff", 2, 100), 2);
    assert_fails(ERR_DATA, d->ops->read(d, 0, x, label, NULL));
    assert_non_null(strstr(error_message(), "65535"));
    assert_int_equal(ftruncate(fd, 2 * context), 0);
    assert_fails(ERR_DATA, d->ops->read(d, 1, x, label, NULL));
    assert_non_null(strstr(error_message(), "large.bin"));
    close(fd);
    (void)remove(path);
    dataset_close(d);
}

static void test_refused(void **state) {
    (void)state;
    char yaml[2048], good[512];
    snprintf(good, sizeof good, "%s", file_put("good.txt", "abcabcabcabc", 12));
    check_says("{set: text}", true, ERR_CONFIG, "data.train is missing");
    check_says("{set: tokens}", true, ERR_CONFIG, "data.train is missing");
    check_says("{set: text, train: /tmp}", true, ERR_INPUT, "is a folder, not a file");
    check_says("{set: text, train: /dev/zero}", true, ERR_INPUT, "no regular file");
    check_says(set_of("{set: text, train: %s}", good), true, ERR_DATA, "12 tokens make 0");
    check_says(set_of("{set: text, train: %s, context: 8}", good), true, ERR_DATA, "1 windows of 8");
    check_says(set_of("{set: text, train: %s, context: 2, val: 99}", good), true, ERR_CONFIG, "none to train on");
    check_says(set_of("{set: text, train: %s, context: 2, val: 1}", file_put("empty.txt", "", 0)), true, ERR_DATA,
               "0 tokens");
    check_says(set_of("{set: text, train: %s, context: 2, val: 1}", file_put("l1.txt", "ab\xe9 cdefg", 9)), true,
               ERR_DATA, "byte 3 (0x20) is not UTF-8");
    check_says(set_of("{set: text, train: %s, context: 2, val: 1}", file_put("l2.txt", "abcdefgh\xed\xa0\x80", 11)),
               true, ERR_DATA, "byte 10 (0x80) is not UTF-8");
    check_says(set_of("{set: text, train: %s, context: 2, val: 1}", file_put("l3.txt", "abcdefgh\xc3", 9)), true,
               ERR_DATA, "ends inside a character");
    snprintf(yaml, sizeof yaml, "{set: text, train: %s, val: %s, context: 2}", good, file_put("other.txt", "abcd", 4));
    check_says(yaml, false, ERR_DATA, "U+0064 before byte 4");
    check_says(set_of("{set: tokens, train: %s, context: 2, type: i32}", file_put("o.bin", "abcde", 5)), true, ERR_DATA,
               "not a multiple of tokens");
    check_says(set_of("{set: tokens, train: %s, val: 1, context: 1, type: i32}",
                      file_put("n.bin", "\1\0\0\0\xff\xff\xff\xff\1\0\0\0", 12)),
               true, ERR_DATA, "token -1 at place 1");
    check_says(set_of("{set: tokens, train: %s, val: 1, context: 1, type: i32}",
                      file_put("h.bin", "\1\0\0\0\xff\xff\xff\x7f\1\0\0\0", 12)),
               true, ERR_DATA, "token 2147483647");
    check_says(
        set_of("{set: tokens, train: %s, val: 1, context: 1, vocabulary: 5}", file_put("v.bin", "\1\0\5\0\1\0", 6)),
        true, ERR_DATA, "not in the vocabulary of 5");
}

/* The generated text is the same on every machine, its parts differ, and it reads as its comment
 * says. */
static void test_grammar(void **state) {
    (void)state;
    static const char begin[] = "one old old clever brave brave brave old sailor believes that one "
                                "robot swims.\nthe robot sees two uncles.\n";
    struct dataset *d = set_open("{set: grammar, train: 100, context: 64}", true);
    int32_t x[64], label[64];
    char text[6400 + 1] = {0}, out[8];
    for (int64_t i = 0; i < 100; i++) {
        assert_ok(d->ops->read(d, i, x, label, NULL));
        for (int k = 0; k < 64; k++) {
            assert_int_equal(dataset_decode(d, x[k], out), 1);
            text[i * 64 + k] = out[0];
        }
    }
    text[sizeof begin - 1] = '\0';
    assert_string_equal(text, begin);
    dataset_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows), cmocka_unit_test(test_characters), cmocka_unit_test(test_many_characters),
        cmocka_unit_test(test_types),   cmocka_unit_test(test_loader),     cmocka_unit_test(test_no_pictures),
        cmocka_unit_test(test_large),   cmocka_unit_test(test_refused),    cmocka_unit_test(test_grammar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
