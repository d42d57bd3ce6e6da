/* What every registered set promises, over all of sets.def: same samples at any time and from any
 * thread, labels within the classes, both parts alike, errors by name, and no allocation when a
 * sample is read. A new set needs a line in 'examples'. */
#include "tests/unit/data_pictures.h"

#include "engine/base/digest.h"

#include <pthread.h>

struct example {
    const char *set, *yaml; /* with the folder of the example files for each %s */
    const char *missing;    /* the same for a file that is not there; NULL: reads none */
    const char *files[4];   /* that it reads */
    const char *folder;     /* that it is given; NULL: the first file */
    bool decodes;           /* by a library that takes memory; errors may come late */
};
static const struct example examples[] = {
    {"digits", "{set: digits, train: 150, val: 60}", NULL, {0}},
    {"shapes", "{set: shapes, train: 150, val: 60}", NULL, {0}},
    {"grammar", "{set: grammar, train: 150, val: 60, context: 40}", NULL, {0}},
    {"spirals", "{set: spirals, train: 150, val: 60}", NULL, {0}},
    {"idx",
     "{set: idx, train: %s/train-images-idx3-ubyte, val: 20%%}",
     "{set: idx, train: %s/none-images-idx3-ubyte, labels: %s/none}",
     {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}},
    {"npy",
     "{set: npy, train: %s/x.npy, val: 12}",
     "{set: npy, train: %s/none.npy, labels: %s/y.npy}",
     {"x.npy", "y.npy"}},
    {"images",
     "{set: images, train: %s/pictures, size: 16, val: 2}",
     "{set: images, train: %s/none}",
     {"pictures/a/1.png", "pictures/b/2.jpg", "pictures/b/3.jpeg", "pictures/a/2.JPG"},
     .folder = "pictures",
     .decodes = true},
    {"text",
     "{set: text, train: %s/t.txt, val: 12%%, context: 16}",
     "{set: text, train: %s/none.txt, context: 16}",
     {"t.txt"}},
    {"tokens",
     "{set: tokens, train: %s/t.bin, val: 5, context: 10}",
     "{set: tokens, train: %s/none.bin, context: 10}",
     {"t.bin"}},
    {"cifar",
     "{set: cifar, train: %s/data_batch_1.bin, val: 1}",
     "{set: cifar, train: %s/data_batch_none.bin, val: 1}",
     {"data_batch_1.bin"}},
    {"csv", "{set: csv, train: %s/t.csv, val: 12}", "{set: csv, train: %s/none.csv}", {"t.csv"}},
};
enum { EXAMPLES = sizeof examples / sizeof *examples, SAMPLE_ROOM = 4096, LABELS_ROOM = 256 };

static void make_tokens(void) {
    char text[1500];
    uint8_t tokens[1200];
    size_t n = 0;
    for (int i = 0; n < sizeof text - 16; i++) /* letters of one, two, three bytes */
        n += (size_t)snprintf(text + n, sizeof text - n, i % 3 ? "%d, " : "\u00e9%d\u20ac", i * i);
    file_put("t.txt", text, n);
    for (int i = 0; i < 600; i++) tokens[2 * i] = (uint8_t)(i * i % 251), tokens[2 * i + 1] = (uint8_t)(i % 3);
    file_put("t.bin", tokens, sizeof tokens);
}

static void make_cifar(void) {
    static uint8_t records[3 * 3073]; /* all the same but for the place */
    for (int i = 0; i < 9219; i++) records[i] = (uint8_t)(i % 3073 ? i / 40 + i / 3073 : i / 3073);
    file_put("data_batch_1.bin", records, sizeof records);
}

static void make_pictures(void) {
    folder_put("pictures");
    folder_put("pictures/a");
    folder_put("pictures/b");
    png_put("pictures/a/1.png", 1, 30, 40, PNG_COLOR_TYPE_RGB, 8);
    png_put("pictures/a/2.png", 2, 30, 20, PNG_COLOR_TYPE_GRAY, 8);
    jpeg_put("pictures/a/2.JPG", 3, 50, 33, JPEG_FORM_PROGRESSIVE);
    jpeg_put("pictures/b/1.jpg", 4, 16, 16, JPEG_FORM_GREY);
    jpeg_put("pictures/b/2.jpg", 5, 70, 50, JPEG_FORM_COLOUR);
    jpeg_put("pictures/b/3.jpeg", 6, 9, 40, JPEG_FORM_CMYK);
}

static int make_files(void **state) {
    (void)state;
    static struct blob b;
    float v[300];
    char text[4000] = "a,b,c\n";
    size_t n = strlen(text);
    blob_images(&b, 60, 4);
    file_put("train-images-idx3-ubyte", b.bytes, b.n);
    blob_labels(&b, 60, 4);
    file_put("train-labels-idx1-ubyte", b.bytes, b.n);
    for (int k = 0; k < 300; k++) v[k] = (float)k / 7;
    blob_npy(&b, "{'descr': '<f4', 'fortran_order': False, 'shape': (60, 5), }");
    blob_add(&b, v, sizeof v);
    file_put("x.npy", b.bytes, b.n);
    blob_npy(&b, "{'descr': '<f4', 'fortran_order': False, 'shape': (60, 2), }");
    blob_add(&b, v, 120 * sizeof *v);
    file_put("y.npy", b.bytes, b.n);
    for (int i = 0; i < 60; i++) n += (size_t)snprintf(text + n, sizeof text - n, "%d,%g,%d\n", i, i * 0.3, i % 4);
    file_put("t.csv", text, n);
    make_tokens();
    make_cifar();
    make_pictures();
    return 0;
}

static const char *fill(const char *yaml) {
    static char text[2048];
    const char *folder = scratch_folder();
    snprintf(text, sizeof text, yaml, folder, folder); /* one %s or two */
    return text;
}

static const struct example *example_of(const char *set) {
    for (int i = 0; i < EXAMPLES; i++)
        if (!strcmp(examples[i].set, set)) return &examples[i];
    fail_msg("no example of set '%s': add one", set);
    return NULL;
}

static uint32_t sample_digest(struct dataset *d, int64_t i) {
    char x[SAMPLE_ROOM];
    float target[16];
    int32_t label[LABELS_ROOM];
    assert_true(dataset_sample_bytes(d) <= sizeof x && d->targets <= 16);
    assert_true(d->labels <= LABELS_ROOM);
    assert_ok(d->ops->read(d, i, x, label, target));
    for (int64_t k = 0; k < d->labels; k++) assert_between(label[k], 0, d->classes - 1);
    if (d->ops->label && d->classes) assert_int_equal(d->ops->label(d, i), label[0]);
    uint32_t crc = crc32c(0, x, dataset_sample_bytes(d));
    crc = crc32c(crc, label, (size_t)d->labels * sizeof *label);
    return crc32c(crc, target, (size_t)d->targets * sizeof *target);
}

static void each(void (*check)(const struct dataset_ops *ops, const struct example *e)) {
    int count;
    const struct dataset_ops *const *kinds = dataset_kinds(&count);
    assert_true(count >= 1);
    for (int i = 0; i < count; i++) check(kinds[i], example_of(kinds[i]->section.name));
}

static void check_slots(const struct dataset_ops *ops, const struct example *e) {
    assert_true(ops->open && ops->read && ops->close && ops->section.help && ops->section.size);
    assert_true(!ops->recognises == !e->missing);
    struct dataset *train = set_open(fill(e->yaml), true), *val = set_open(fill(e->yaml), false);
    assert_string_equal(train->name, ops->section.name);
    assert_true(train->size >= 1 && val->size >= 1);
    assert_true(shape_equal(&train->shape, &val->shape));
    assert_int_equal(train->type, val->type);
    assert_int_equal(train->classes, val->classes);
    assert_int_equal(train->targets, val->targets);
    assert_int_equal(train->labels, val->labels);
    assert_true((train->classes > 0) != (train->targets > 0));
    assert_true((train->classes > 0) == (train->labels > 0));
    assert_true(!ops->decode == !ops->encode);
    assert_int_equal(train->plane, train->shape.ndim == 3);
    assert_int_not_equal(sample_digest(train, 0), sample_digest(val, 0)); /* not the same samples */
    dataset_close(train);
    dataset_close(val);
}

static void test_slots(void **state) {
    (void)state;
    each(check_slots);
}

static void check_repeats(const struct dataset_ops *ops, const struct example *e) {
    (void)ops;
    struct dataset *a = set_open(fill(e->yaml), true), *b = set_open(fill(e->yaml), true);
    for (int64_t i = 0; i < a->size; i++) {
        uint32_t backwards = sample_digest(b, a->size - 1 - i), forwards = sample_digest(a, i);
        assert_int_equal(forwards, sample_digest(a, i));
        assert_int_equal(backwards, sample_digest(a, a->size - 1 - i));
    }
    assert_int_not_equal(sample_digest(a, 0), sample_digest(a, 1));
    dataset_close(a);
    dataset_close(b);
}

static void test_repeats(void **state) {
    (void)state;
    each(check_repeats);
}

struct reading {
    struct dataset *d;
    uint32_t *digests;
};

static void *read_all(void *arg) {
    const struct reading *r = arg;
    for (int64_t i = 0; i < r->d->size; i++) r->digests[i] = sample_digest(r->d, i);
    return NULL;
}

static void check_threads(const struct dataset_ops *ops, const struct example *e) {
    (void)ops;
    enum { THREADS = 4, MOST = 200 };
    static uint32_t digests[THREADS][MOST];
    struct dataset *d = set_open(fill(e->yaml), true);
    struct reading readings[THREADS];
    pthread_t threads[THREADS];
    assert_true(d->size <= MOST);
    for (int k = 0; k < THREADS; k++) {
        readings[k] = (struct reading){d, digests[k]};
        assert_int_equal(pthread_create(&threads[k], NULL, read_all, &readings[k]), 0);
    }
    for (int k = 0; k < THREADS; k++) pthread_join(threads[k], NULL);
    for (int k = 1; k < THREADS; k++) assert_memory_equal(digests[k], digests[0], (size_t)d->size * sizeof **digests);
    dataset_close(d);
}

static void test_threads(void **state) {
    (void)state;
    each(check_threads);
}

static void check_allocations(const struct dataset_ops *ops, const struct example *e) {
    (void)ops;
    if (e->decodes) return;
    struct dataset *d = set_open(fill(e->yaml), true);
    for (int64_t i = 0; i < d->size; i++) (void)sample_digest(d, i);
    count_allocations_begin();
    for (int64_t i = 0; i < d->size; i++) (void)sample_digest(d, i);
    assert_int_equal(count_allocations_end(), 0);
    dataset_close(d);
}

static void test_allocations(void **state) {
    (void)state;
    each(check_allocations);
}

static void check_files(const struct dataset_ops *ops, const struct example *e) {
    struct dataset *d;
    if (!e->missing) return;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path(e->folder ? e->folder : e->files[0]));
    assert_true(ops->recognises(path));
    assert_ptr_equal(dataset_kinds(&(int){0})[dataset_recognise(path)], ops);
    for (int train = 0; train < 2; train++) {
        assert_fails(ERR_INPUT, set_try(fill(e->missing), train, &d));
        assert_non_null(strstr(error_message(), "none"));
    }
}

static void test_files(void **state) {
    (void)state;
    each(check_files);
}

/* Reads all; a set that decodes may find what is wrong only now. */
static void read_damaged(struct dataset *d, const struct example *e) {
    char x[SAMPLE_ROOM];
    int32_t label[LABELS_ROOM];
    for (int64_t i = 0; i < d->size; i++) {
        if (!e->decodes)
            (void)sample_digest(d, i);
        else if (d->ops->read(d, i, x, label, NULL) != ERR_NONE)
            assert_non_null(strstr(error_message(), "pictures/"));
    }
}

/* Every file cut at every place, and with every byte changed: an error by name, or a set that can
 * be read whole. */
static void check_damaged(const struct dataset_ops *ops, const struct example *e, const char *file) {
    static uint8_t bytes[16384];
    size_t n = file_get(scratch_path(file), bytes, sizeof bytes);
    (void)ops;
    for (size_t k = 0; k < 2 * n; k += 1 + k / 600) {
        struct dataset *d = NULL;
        bool cut = k & 1;
        uint8_t byte = bytes[k / 2];
        if (!cut) bytes[k / 2] = (uint8_t)(byte + 1 + k % 254);
        file_put(file, bytes, cut ? k / 2 : n);
        bytes[k / 2] = byte;
        enum error err = set_try(fill(e->yaml), true, &d);
        if (err == ERR_NONE) {
            read_damaged(d, e);
            dataset_close(d);
        } else if (err != ERR_DATA && err != ERR_CONFIG)
            fail_msg("%s, %s at %zu: %s: %s", file, cut ? "cut" : "changed", k / 2, error_text(err), error_message());
    }
    file_put(file, bytes, n);
}

static void check_damage(const struct dataset_ops *ops, const struct example *e) {
    for (int i = 0; i < 4 && e->files[i]; i++) check_damaged(ops, e, e->files[i]);
}

static void test_damage(void **state) {
    (void)state;
    each(check_damage);
}

/* The generated pictures are the same bytes on every machine and by every compiler. */
static void check_drawn(const char *set, uint32_t expected) {
    struct dataset *d = set_open(set, true);
    uint32_t crc = 0;
    int count[10] = {0};
    uint8_t x[3072];
    int32_t label;
    assert_int_equal(d->size, 10000);
    for (int64_t i = 0; i < 1000; i++) {
        assert_ok(d->ops->read(d, i, x, &label, NULL));
        crc = crc32c(crc, x, dataset_sample_bytes(d));
        count[label]++;
    }
    for (int k = 0; k < 10; k++) assert_between(count[k], 70, 135);
    assert_int_equal(crc, expected);
    dataset_close(d);
}

static void test_drawn_are_fixed(void **state) {
    (void)state;
    check_drawn("digits", 0x04f86548);
    check_drawn("shapes", 0xe3b548b3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots),           cmocka_unit_test(test_repeats), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_allocations),     cmocka_unit_test(test_files),   cmocka_unit_test(test_damage),
        cmocka_unit_test(test_drawn_are_fixed),
    };
    return cmocka_run_group_tests(tests, make_files, NULL);
}
