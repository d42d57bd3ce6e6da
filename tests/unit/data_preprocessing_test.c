/* What a checkpoint tells of its data: nothing is lost on the way there and back, other data are
 * named, and what a file may hold instead is refused. */
#include "tests/unit/data_pictures.h"

#include "engine/data/picture.h"
#include "engine/data/preprocessing.h"

static struct pool *pool;

static int pool_begin(void **state) {
    (void)state;
    return pool_create(&pool) != ERR_NONE;
}

static int pool_end(void **state) {
    (void)state;
    pool_free(pool);
    return 0;
}

/* Writes and reads what is to be known of the training part of a set. */
static struct preprocessing *told(const char *yaml, struct normalization *norm) {
    struct setup s;
    struct dataset *d;
    const char *text;
    struct preprocessing *p;
    setup_make(&s, yaml);
    assert_ok(dataset_open(&s.config, true, 1, &d));
    assert_ok(normalization_find(d, &s.config, norm));
    assert_ok(preprocessing_text(d, norm, pool, &text));
    assert_non_null(text);
    assert_ok(preprocessing_parse(text, "file", pool, &p));
    assert_ok(dataset_check_like(d, &p->set.base));
    assert_true(normalization_equal(norm, &p->norm));
    dataset_close(d);
    setup_free(&s);
    return p;
}

static const char *path_yaml(const char *format, const char *name) {
    static char yaml[2048];
    snprintf(yaml, sizeof yaml, format, scratch_path(name));
    return yaml;
}

/* ---- there and back ---- */

static void moments_keep_their_bits(void **state) {
    (void)state;
    struct fake f = fake_set(8, SAMPLE_U8, (struct shape){3, {3, 4, 4}});
    static const float means[] = {0, 1e-30f, 0.1f, 127.49999f, 3.14159274f, 254.999985f};
    for (int type = 0; type < 2; type++) {
        f.base.type = type ? SAMPLE_F32 : SAMPLE_U8;
        for (size_t i = 0; i < 6 * 6; i++) {
            struct normalization n = {.channels = 3};
            const char *text;
            struct preprocessing *p;
            for (int k = 0; k < 3; k++) {
                n.mean[k] = means[(i + (size_t)k) % 6];
                n.scale[k] = 1 / (means[(i / 6 + (size_t)k) % 6] + 1e-6f);
            }
            assert_ok(preprocessing_text(&f.base, &n, pool, &text));
            assert_ok(preprocessing_parse(text, "file", pool, &p));
            assert_true(normalization_equal(&n, &p->norm));
        }
    }
}

static void sets_of_numbers_are_told(void **state) {
    (void)state;
    struct normalization n;
    struct preprocessing *p = told("digits", &n);
    assert_int_equal(p->set.base.classes, 10);
    assert_true(p->set.base.plane && n.channels == 1);
    p = told("{set: shapes, normalize: {mean: [0.4914, 0.4822, 0.4465], std: [0.2, 0.3, 0.4]}}", &n);
    assert_int_equal(p->norm.channels, 3);
    p = told("{set: spirals, normalize: off}", &n);
    assert_int_equal(p->set.base.type, SAMPLE_F32);
    static const char csv[] = "height,\"a \x1b[31m column\",y\n1,2,0.5\n3,4,1.5\n5,6,7\n";
    file_put("a.csv", csv, sizeof csv - 1);
    p = told(path_yaml("{set: csv, train: %s, val: 1}", "a.csv"), &n);
    assert_int_equal(p->set.base.targets, 1);
    assert_string_equal(dataset_column_name(&p->set.base, 1), "a \x1b[31m column");
    assert_string_equal(dataset_column_name(&p->set.base, 2), "y");
}

static void vocabularies_are_told(void **state) {
    (void)state;
    struct normalization n;
    int32_t tokens[16];
    int64_t count;
    static const char text[] = "zwölf Boxkämpfer ☃ jagen Viktor quer über den Sylter Deich 🙂\n";
    file_put("a.txt", text, sizeof text - 1);
    struct preprocessing *p = told(path_yaml("{set: text, train: %s, val: 1, context: 4}", "a.txt"), &n);
    char out[8];
    assert_ok(dataset_encode(&p->set.base, "ö🙂", 6, tokens, &count));
    assert_int_equal(count, 2);
    assert_int_equal(dataset_decode(&p->set.base, tokens[1], out), 4);
    assert_memory_equal(out, "🙂", 4);
    assert_fails(ERR_DATA, dataset_encode(&p->set.base, "X", 1, tokens, &count));
    p = told(path_yaml("{set: text, train: %s, val: 1, context: 4, vocabulary: bytes}", "a.txt"), &n);
    assert_true(p->set.bytes && p->text);
    p = told("{set: grammar, context: 8}", &n);
    assert_true(p->text && !p->set.bytes);
    static const uint16_t numbers[] = {7, 8, 9, 7, 8, 9, 7, 8, 9, 9, 9, 9};
    file_put("a.bin", numbers, sizeof numbers);
    p = told(path_yaml("{set: tokens, train: %s, val: 1, context: 3}", "a.bin"), &n);
    assert_false(p->text);
    assert_int_equal(dataset_decode(&p->set.base, 7, out), 0);
}

/* Names of any bytes that a folder may have: text stays, what is no UTF-8 becomes U+FFFD. */
static void names_of_any_bytes_are_told(void **state) {
    (void)state;
    static const char *const names[] = {"a\"b\\", "\x1b[2J", "caf\xe9", "été", "line\nbreak"};
    struct normalization n;
    char file[600];
    folder_put("any");
    for (int i = 0; i < 5; i++) {
        snprintf(file, sizeof file, "any/%s", names[i]);
        folder_put(file);
        for (int k = 0; k < 2; k++) {
            snprintf(file, sizeof file, "any/%s/%d.png", names[i], k);
            png_put(file, i + k, 8, 8, PNG_COLOR_TYPE_RGB, 8);
        }
    }
    char yaml[2048];
    snprintf(yaml, sizeof yaml, "%s", path_yaml("{set: images, train: %s, val: 5, size: 7, resize: 8}", "any"));
    struct preprocessing *p = told(yaml, &n);
    assert_true(p->set.base.part == 7. / 8);
    bool seen = false;
    for (int k = 0; k < 5; k++) seen |= !strcmp(dataset_class_name(&p->set.base, k), "caf\xEF\xBF\xBD");
    assert_true(seen);
    assert_int_equal(told(path_yaml("{set: images, train: %s, val: 5, size: 7, resample: torchvision}", "any"), &n)
                         ->set.base.resample,
                     RESAMPLE_TORCHVISION);
    struct setup s; /* and the folders get the same numbers by these names */
    struct dataset *d[2];
    setup_make(&s, yaml);
    assert_ok(dataset_open(&s.config, true, 1, &d[0]));
    assert_ok(dataset_open_like(&s.config, true, 1, &p->set.base, &d[1]));
    assert_int_equal(d[0]->size, d[1]->size);
    for (int64_t i = 0; i < d[0]->size; i++) {
        uint8_t x[2][3 * 49];
        int32_t label[2];
        for (int k = 0; k < 2; k++) assert_ok(d[k]->ops->read(d[k], i, x[k], &label[k], NULL));
        assert_int_equal(label[0], label[1]);
        assert_memory_equal(x[0], x[1], sizeof x[0]);
    }
    dataset_close(d[0]);
    dataset_close(d[1]);
    setup_free(&s);
}

/* ---- other data ---- */

static void check_other(const char *was, const char *is, const char *says) {
    struct normalization n;
    struct setup s;
    struct dataset *d = NULL;
    struct preprocessing *p = told(was, &n);
    setup_make(&s, is);
    enum error err = dataset_open_like(&s.config, true, 1, &p->set.base, &d);
    if (err == ERR_NONE || !strstr(error_message(), says))
        fail_msg("'%s' after '%s': %s", is, was, err ? error_message() : "is taken");
    setup_free(&s);
}

static void other_data_are_named(void **state) {
    (void)state;
    check_other("digits", "shapes", "3x32x32 bytes, and the network was trained on 1x28x28 bytes");
    check_other("{set: spirals, classes: 3}", "{set: spirals, classes: 4}",
                "4 classes, and the network was trained on 3");
    check_other("{set: grammar, context: 8}", "{set: grammar, context: 9}", "trained on 8 tokens");
    static const char a[] = "height,weight,y\n1,2,0.5\n3,4,1.5\n", b[] = "weight,size,y\n1,2,0.5\n3,4,1.5\n";
    file_put("was.csv", a, sizeof a - 1);
    file_put("is.csv", b, sizeof b - 1);
    char was[2048];
    snprintf(was, sizeof was, "%s", path_yaml("{set: csv, train: %s, val: 1}", "was.csv"));
    check_other(was, path_yaml("{set: csv, train: %s, val: 1}", "is.csv"),
                "is.csv has no column 'height', which the network was trained on");
    static const char text[] = "abcdefgh abcdefgh abcdefgh", less[] = "abcdefgh abcdefgh abcdefgX";
    file_put("was.txt", text, sizeof text - 1);
    file_put("is.txt", less, sizeof less - 1);
    snprintf(was, sizeof was, "%s", path_yaml("{set: text, train: %s, val: 1, context: 4}", "was.txt"));
    check_other(was, path_yaml("{set: text, train: %s, val: 1, context: 4}", "is.txt"), "U+0058");
    check_other(was, path_yaml("{set: text, train: %s, val: 1, context: 4, vocabulary: bytes}", "was.txt"),
                "256 classes");
}

/* The vocabulary is the network's, so a text that lacks one of its characters is no other. */
static void a_text_with_fewer_characters_keeps_the_numbers(void **state) {
    (void)state;
    static const char text[] = "abcdefgh abcdefgh abcdefgh", less[] = "bcdefgh bcdefgh bcdefgh b";
    struct normalization n;
    struct setup s;
    struct dataset *d;
    int32_t x[4], labels[4];
    file_put("all.txt", text, sizeof text - 1);
    file_put("less.txt", less, sizeof less - 1);
    struct preprocessing *p = told(path_yaml("{set: text, train: %s, val: 1, context: 4}", "all.txt"), &n);
    setup_make(&s, path_yaml("{set: text, train: /no/such.txt, val: %s, context: 4}", "less.txt"));
    assert_ok(dataset_open_like(&s.config, false, 1, &p->set.base, &d));
    assert_ok(d->ops->read(d, 0, x, labels, NULL));
    assert_int_equal(x[0], 2); /* ' ', 'a', 'b' */
    dataset_close(d);
    setup_free(&s);
}

/* Validation data in files of their own are the same set whether or not the training files are
 * there. */
static void validation_files_need_no_training_files(void **state) {
    (void)state;
    static struct blob b;
    static const uint16_t numbers[] = {7, 8, 9, 7, 8, 9, 7, 8, 9, 9};
    static const char text[] = "one two three four five";
    static uint8_t records[6 * 3073];
    for (size_t i = 0; i < sizeof records; i++) records[i] = (uint8_t)(i % 3073 ? i % 251 : i / 3073);
    blob_images(&b, 6, 5);
    file_put("t-images-idx3", b.bytes, b.n), file_put("v-images-idx3", b.bytes, b.n);
    blob_labels(&b, 6, 4);
    file_put("t-labels-idx1", b.bytes, b.n);
    blob_labels(&b, 6, 3); /* one class fewer */
    file_put("v-labels-idx1", b.bytes, b.n);
    file_put("t.bin", numbers, sizeof numbers), file_put("v.bin", numbers, sizeof numbers - 6);
    file_put("t.txt", text, sizeof text - 1), file_put("v.txt", text + 4, sizeof text - 5);
    file_put("t.rec", records, sizeof records), file_put("v.rec", records, 4 * 3073);
    static const struct {
        const char *yaml, *train;
    } sets[] = {
        {"{set: idx, train: %s/t-images-idx3, val: %s/v-images-idx3}", "t-images-idx3"},
        {"{set: tokens, train: %s/t.bin, val: %s/v.bin, context: 2}", "t.bin"},
        {"{set: text, train: %s/t.txt, val: %s/v.txt, context: 4}", "t.txt"},
        {"{set: text, train: %s/t.txt, val: %s/v.txt, context: 4, vocabulary: bytes}", "t.txt"},
        {"{set: cifar, train: %s/t.rec, val: %s/v.rec}", "t.rec"},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        char yaml[2048], hidden[600];
        struct normalization n;
        struct setup s;
        struct dataset *with, *without;
        uint8_t x[2][4 * 3072];
        int32_t labels[2][8];
        snprintf(yaml, sizeof yaml, sets[i].yaml, scratch_folder(), scratch_folder());
        struct preprocessing *p = told(yaml, &n);
        setup_make(&s, yaml);
        assert_ok(dataset_open(&s.config, false, 1, &with));
        snprintf(hidden, sizeof hidden, "%s", scratch_path("hidden"));
        assert_int_equal(rename(scratch_path(sets[i].train), hidden), 0);
        assert_ok(dataset_open_like(&s.config, false, 1, &p->set.base, &without));
        assert_int_equal(rename(hidden, scratch_path(sets[i].train)), 0);
        assert_int_equal(without->size, with->size);
        assert_int_equal(without->classes, p->set.base.classes);
        for (int64_t k = 0; k < with->size; k++) {
            assert_ok(with->ops->read(with, k, x[0], labels[0], NULL));
            assert_ok(without->ops->read(without, k, x[1], labels[1], NULL));
            assert_memory_equal(x[0], x[1], dataset_sample_bytes(with));
            assert_memory_equal(labels[0], labels[1], (size_t)with->labels * sizeof **labels);
        }
        dataset_close(with);
        dataset_close(without);
        setup_free(&s);
    }
}

/* ---- files that lie ---- */

static void lies_are_refused(void **state) {
    (void)state;
    static const char good[] = "{\"data\":\"x\",\"shape\":[2],\"values\":\"floats\",\"plane\":false,"
                               "\"mean\":[0],\"std\":[1],\"classes\":2,\"labels\":1,\"targets\":0}";
    static const char *const changes[][2] = {
        {"{\"data\"", "[\"data\""},
        {"\"x\"", "7"},
        {"[2],", "[],"},
        {"[2],", "[2,2,2,2,2],"},
        {"[2],", "[0],"},
        {"[2],", "[-2],"},
        {"[2],", "[1.5],"},
        {"[2],", "[268435457],"},
        {"[2],", "[65536,65536],"},
        {"[2],", "[9223372036854775807,3],"},
        {"\"floats\"", "\"doubles\""},
        {"\"floats\"", "\"tokens\""},
        {"false", "true"},
        {"false", "1"},
        {"false", "false,\"part\":0"},
        {"false", "false,\"part\":1.5"},
        {"false", "false,\"part\":\"all\""},
        {"false", "false,\"resample\":\"torchvision\""},
        {"false", "false,\"part\":0.5,\"resample\":\"pillow\""},
        {"[0]", "[0,0]"},
        {"[0]", "[]"},
        {"[0]", "[1e39]"},
        {"[0]", "[null]"},
        {"[1]", "[0]"},
        {"[1]", "[-1]"},
        {"[1]", "[1e60]"},
        {"\"mean\":[0],", ""},
        {"\"classes\":2", "\"classes\":0"},
        {"\"classes\":2", "\"classes\":16777217"},
        {"\"classes\":2", "\"classes\":\"2\""},
        {"\"labels\":1", "\"labels\":0"},
        {"\"labels\":1", "\"labels\":3"},
        {"\"targets\":0", "\"targets\":1"},
        {"\"targets\":0", "\"targets\":0,\"class_names\":[\"a\"]"},
        {"\"targets\":0", "\"targets\":0,\"class_names\":[\"a\",3]"},
        {"\"targets\":0", "\"targets\":0,\"class_names\":{\"a\":\"b\"}"},
        {"\"targets\":0", "\"targets\":0,\"class_counts\":[1]"},
        {"\"targets\":0", "\"targets\":0,\"class_counts\":[1,-1]"},
        {"\"targets\":0", "\"targets\":0,\"class_counts\":[1,1.5]"},
        {"\"targets\":0", "\"targets\":0,\"class_counts\":[0,0]"},
        {"\"targets\":0", "\"targets\":0,\"class_counts\":[9223372036854775807,1]"},
        {"\"targets\":0", "\"targets\":0,\"class_counts\":3"},
        {"\"targets\":0", "\"targets\":0,\"columns\":[\"a\",\"b\"]"},
        {"\"targets\":0", "\"targets\":0,\"text\":\"bytes\""},
        {"\"targets\":0", "\"targets\":0,\"characters\":[1,2]"},
        {"\"targets\":0", "\"targets\":0,\"targets\":0"},
        {"\"targets\":0", "\"targets\":0,\"target_mean\":[1],\"target_std\":[1]"},
        {"\"targets\":0", "\"targets\":0,\"split\":-1"},
        {"\"targets\":0", "\"targets\":0,\"split\":4294967296"},
        {"\"targets\":0", "\"targets\":0,\"split\":\"end\""},
        {"0}", "0}}"},
    };
    struct preprocessing *p;
    assert_ok(preprocessing_parse(good, "file", pool, &p));
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char text[512];
        const char *at = strstr(good, changes[i][0]);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, changes[i][1], at + strlen(changes[i][0]));
        if (preprocessing_parse(text, "file", pool, &p) != ERR_DATA) fail_msg("taken: %s", text);
        assert_non_null(strstr(error_message(), "file: "));
    }
}

static void targets_that_lie_are_refused(void **state) {
    (void)state;
    static const char *const ends[] = {
        "\"target_mean\":[1,2]",
        "\"target_std\":[1,2]",
        "\"target_mean\":[1,2],\"target_std\":[1]",
        "\"target_mean\":[1,2,3],\"target_std\":[1,2,3]",
        "\"target_mean\":[],\"target_std\":[]",
        "\"target_mean\":[1,2],\"target_std\":[1,0]",
        "\"target_mean\":[1,2],\"target_std\":[1,-1]",
        "\"target_mean\":[1,2],\"target_std\":[1,1e-60]",
        "\"target_mean\":[1,1e60],\"target_std\":[1,1]",
        "\"target_mean\":[1,\"2\"],\"target_std\":[1,1]",
        "\"target_mean\":1,\"target_std\":1",
        "\"target_mean\":[1,2],\"target_std\":[1,2]", /* this one is right */
    };
    enum { WRONG = sizeof ends / sizeof *ends - 1 };
    struct preprocessing *p;
    for (int i = 0; i <= WRONG; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"data\":\"x\",\"shape\":[3],\"values\":\"floats\",\"plane\":false,\"mean\":[0],\"std\":[1],"
                 "\"classes\":0,\"labels\":0,\"targets\":2,%s}",
                 ends[i]);
        if (preprocessing_parse(text, "file", pool, &p) != (i < WRONG ? ERR_DATA : ERR_NONE)) fail_msg("%s", text);
    }
    assert_int_equal(p->norm.targets, 2);
}

static void vocabularies_that_lie_are_refused(void **state) {
    (void)state;
    static const char *const ends[] = {
        "\"text\":\"words\"",
        "\"text\":\"characters\"",
        "\"text\":\"characters\",\"characters\":[1]",
        "\"text\":\"characters\",\"characters\":[2,1]",
        "\"text\":\"characters\",\"characters\":[1,1]",
        "\"text\":\"characters\",\"characters\":[-1,1]",
        "\"text\":\"characters\",\"characters\":[1,55296]",
        "\"text\":\"characters\",\"characters\":[1,1114112]",
        "\"text\":\"characters\",\"characters\":[1,\"b\"]",
        "\"text\":\"bytes\",\"characters\":[1,2]",
        "\"mean\":[0],\"std\":[1]",
    };
    struct preprocessing *p;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"data\":\"x\",\"shape\":[3],\"values\":\"tokens\",\"plane\":false,\"classes\":2,"
                 "\"labels\":3,\"targets\":0,%s}",
                 ends[i]);
        if (preprocessing_parse(text, "file", pool, &p) != ERR_DATA) fail_msg("taken: %s", text);
    }
}

static void tables_that_lie_are_refused(void **state) {
    (void)state;
#define COLUMNS(list) "{\"width\":3,\"columns\":[" list "]}"
#define NUMBER "{\"column\":1,\"missing\":2}"
#define CITY "{\"column\":2,\"missing\":\"none\",\"categories\":[\"a\",\"b\"]}"
#define TARGET "{\"column\":3}"
    static const char *const tables[] = {
        COLUMNS(NUMBER "," CITY "," TARGET),
        "7",
        "[]",
        "{}",
        "{\"width\":3}",
        "{\"width\":-3,\"columns\":[" NUMBER "," CITY "," TARGET "]}",
        "{\"width\":2,\"columns\":[" NUMBER "," CITY "," TARGET "]}",
        COLUMNS(TARGET),
        COLUMNS(NUMBER "," TARGET),
        COLUMNS(NUMBER "," CITY ","
                       "7"),
        COLUMNS(NUMBER "," CITY ","
                       "{\"column\":4}"),
        COLUMNS(NUMBER "," CITY ","
                       "{\"column\":0}"),
        COLUMNS(NUMBER "," CITY "," CITY),
        COLUMNS("{\"column\":1,\"missing\":1e99}"
                "," CITY "," TARGET),
        COLUMNS("{\"column\":1,\"missing\":\"none\"}"
                "," CITY "," TARGET),
        COLUMNS("{\"column\":1,\"name\":7}"
                "," CITY "," TARGET),
        COLUMNS(NUMBER ","
                       "{\"column\":2,\"categories\":[\"b\",\"a\"]}"
                       "," TARGET),
        COLUMNS(NUMBER ","
                       "{\"column\":2,\"categories\":[\"a\",\"a\"]}"
                       "," TARGET),
        COLUMNS(NUMBER ","
                       "{\"column\":2,\"categories\":[\"a\",3]}"
                       "," TARGET),
        COLUMNS(NUMBER ","
                       "{\"column\":2,\"categories\":[]}"
                       "," NUMBER "," TARGET),
        COLUMNS(NUMBER ","
                       "{\"column\":2,\"missing\":3,\"categories\":[\"a\",\"b\"]}"
                       "," TARGET),
    };
    struct preprocessing *p;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        char text[700];
        snprintf(text, sizeof text,
                 "{\"data\":\"x\",\"shape\":[3],\"values\":\"floats\",\"plane\":false,\"mean\":[0],\"std\":[1],"
                 "\"classes\":2,\"labels\":1,\"targets\":0,\"table\":%s}",
                 tables[i]);
        enum error err = preprocessing_parse(text, "file", pool, &p);
        if (err != (i ? ERR_DATA : ERR_NONE)) fail_msg("%s: %s", text, err ? error_message() : "is taken");
    }
    struct dataset *d; /* two columns of one place: one of them is nowhere in a file */
    static const char twice[] =
        "{\"data\":\"x\",\"shape\":[2],\"values\":\"floats\",\"plane\":false,\"mean\":[0],"
        "\"std\":[1],\"classes\":2,\"labels\":1,\"targets\":0,\"table\":" COLUMNS(NUMBER "," NUMBER "," TARGET) "}";
    assert_ok(preprocessing_parse(twice, "file", pool, &p));
    file_put("twice.csv", "1,2,1\n", 6);
    assert_fails(ERR_CONFIG, dataset_samples(scratch_path("twice.csv"), &p->set.base, &d));
}

static const char *long_name(const struct dataset *d, int64_t k) {
    static char name[101];
    (void)d;
    snprintf(name, sizeof name, "%0100lld", (long long)k);
    return name;
}

/* More than a reader takes is not written. */
static void too_much_is_left_out(void **state) {
    (void)state;
    static const struct dataset_ops named = {.class_name = long_name};
    const struct normalization n = {.channels = 1, .scale = {1}};
    struct fake f = fake_set(1, SAMPLE_F32, (struct shape){1, {2}});
    const char *text;
    f.base.ops = &named;
    for (int i = 0; i < 2; i++) {
        f.base.classes = i ? 50000 : 30000;
        assert_ok(preprocessing_text(&f.base, &n, pool, &text));
        assert_true((text != NULL) == (i == 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_keep_their_bits),
        cmocka_unit_test(sets_of_numbers_are_told),
        cmocka_unit_test(vocabularies_are_told),
        cmocka_unit_test(names_of_any_bytes_are_told),
        cmocka_unit_test(other_data_are_named),
        cmocka_unit_test(a_text_with_fewer_characters_keeps_the_numbers),
        cmocka_unit_test(validation_files_need_no_training_files),
        cmocka_unit_test(lies_are_refused),
        cmocka_unit_test(targets_that_lie_are_refused),
        cmocka_unit_test(vocabularies_that_lie_are_refused),
        cmocka_unit_test(tables_that_lie_are_refused),
        cmocka_unit_test(too_much_is_left_out),
    };
    return cmocka_run_group_tests_name("preprocessing", tests, pool_begin, pool_end);
}
