/* Files: what idx, npy and csv read, and that whatever lies in one is refused by name. */
#include "tests/unit/data_fixture.h"

#include "engine/data/find.h"

#include <sys/stat.h>

static char yaml_text[2048];

__attribute__((format(printf, 1, 2))) static const char *yaml(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(yaml_text, sizeof yaml_text, fmt, ap);
    va_end(ap);
    return yaml_text;
}

static void put(bool packed, const char *name, const struct blob *b) {
    if (packed)
        file_put_gz(name, b->bytes, b->n);
    else
        file_put(name, b->bytes, b->n);
}

static void assert_byte_image(struct dataset *d, int64_t i, int64_t number_in_file, int classes) {
    uint8_t x[64];
    int32_t label;
    assert_ok(d->ops->read(d, i, x, &label, NULL));
    assert_int_equal(label, number_in_file % classes);
    for (int k = 0; k < 16; k++) assert_int_equal(x[k], (number_in_file * 16 + k) % 251);
}

/* ---- idx ---- */
static void idx_folder_make(bool packed) {
    static struct blob b;
    const char *end = packed ? ".gz" : "";
    char name[64];
    mkdir(scratch_path(packed ? "packed" : "plain"), 0700);
    for (int part = 0; part < 2; part++) {
        const char *folder = packed ? "packed" : "plain", *stem = part ? "t10k" : "train";
        snprintf(name, sizeof name, "%s/%s-images-idx3-ubyte%s", folder, stem, end);
        blob_images(&b, part ? 7 : 20, 4);
        put(packed, name, &b);
        snprintf(name, sizeof name, "%s/%s-labels-idx1-ubyte%s", folder, stem, end);
        blob_labels(&b, part ? 7 : 20, 5);
        put(packed, name, &b);
    }
}

static void test_idx(void **state) {
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        idx_folder_make(packed);
        char folder[512];
        snprintf(folder, sizeof folder, "%s", scratch_path(packed ? "packed" : "plain"));
        for (int train = 0; train < 2; train++) {
            struct dataset *d = set_open(yaml("{set: idx, train: %s}", folder), train);
            assert_int_equal(d->size, train ? 20 : 7);
            assert_int_equal(d->classes, 5);
            assert_true(d->plane && d->type == SAMPLE_U8 && d->shape.ndim == 3 && d->shape.dim[0] == 1 &&
                        d->shape.dim[2] == 4);
            for (int64_t i = 0; i < d->size; i++) assert_byte_image(d, i, i, 5);
            dataset_close(d);
        }
        for (int train = 0; train < 2; train++) { /* a file, and samples held out at its end */
            struct dataset *d = set_open(yaml("{set: idx, train: %s/train-images-idx3-ubyte%s, val: 25%%, split: end}",
                                              folder, packed ? ".gz" : ""),
                                         train);
            assert_int_equal(d->size, train ? 15 : 5);
            for (int64_t i = 0; i < d->size; i++) assert_byte_image(d, i, train ? i : 15 + i, 5);
            dataset_close(d);
        }
        struct dataset *d;
        assert_fails(ERR_CONFIG, set_try(yaml("{set: idx, train: %s, labels: some}", folder), true, &d));
        d = set_open(yaml("{set: idx, train: %s, val: 3, limit: 9}", folder), true);
        assert_int_equal(d->size, 9);
        dataset_close(d);
        assert_int_equal(dataset_kinds(&(int){0})[dataset_recognise(folder)]->section.name[0], 'i');
    }
    assert_true(dataset_recognise("/nonesuch") < 0);
}

struct lie {
    const char *what, *says;
    int at, value; /* byte to set */
    int cut, add;  /* bytes taken off the end, or put there */
};

/* 20 images of 4 x 4: 16 bytes of header and 320 of data. */
static const struct lie idx_lies[] = {
    {"magic", "not an IDX file", 0, 1, 0, 0},
    {"type 0", "not an IDX file", 2, 0, 0, 0},
    {"floats", "type 0x0d", 2, 13, 0, 0},
    {"no dimensions", "0 dimensions", 3, 0, 0, 0},
    {"many dimensions", "200 dimensions", 3, 200, 0, 0},
    {"2^31 images", "promises", 4, 128, 0, 0},
    {"19 images", "promises", 7, 19, 0, 0},
    {"no images", "dimension 0", 7, 0, 0, 0},
    {"no columns", "dimension 2", 15, 0, 0, 0},
    {"huge rows", "promises", 8, 255, 0, 0},
    {"one byte less", "promises", 0, 0, 1, 0},
    {"one byte more", "promises", 0, 0, 0, 1},
    {"a header cut off", "ends at byte 10", 0, 0, 326, 0},
    {"nothing", "ends at byte 0", 0, 0, 336, 0},
};

static void test_idx_lies(void **state) {
    (void)state;
    static struct blob b;
    blob_labels(&b, 20, 5);
    file_put("lie-labels-idx1", b.bytes, b.n);
    char images[512];
    for (size_t i = 0; i < sizeof idx_lies / sizeof *idx_lies; i++)
        for (int packed = 0; packed < 2; packed++) {
            const struct lie *lie = &idx_lies[i];
            struct dataset *d = NULL;
            blob_images(&b, 20, 4);
            b.bytes[lie->at] = (uint8_t)lie->value;
            b.n = b.n - (size_t)lie->cut + (size_t)lie->add;
            put(packed, "lie-images-idx3", &b);
            snprintf(images, sizeof images, "%s", scratch_path("lie-images-idx3"));
            if (set_try(yaml("{set: idx, train: %s}", images), true, &d) != ERR_DATA)
                fail_msg("%s is taken", lie->what);
            assert_non_null(strstr(error_message(), images));
            const char *says = packed && !strcmp(lie->what, "2^31 images") ? "packed bytes" : lie->says;
            if ((!packed || says != lie->says) && !strstr(error_message(), says))
                fail_msg("%s: %s", lie->what, error_message());
            assert_null(d);
        }
}

static void expect_idx(enum error expected, const char *rest, const char *says) {
    struct dataset *d;
    char images[512];
    snprintf(images, sizeof images, "%s", scratch_path("some-images-idx3"));
    for (int train = 1; train >= 0; train--) {
        enum error err = set_try(yaml("{set: idx, train: %s%s}", images, rest), train, &d);
        if (err == ERR_NONE) dataset_close(d);
        if (err == ERR_NONE && train && strstr(rest, "val:")) continue; /* only validation is wrong */
        if (err != expected || !strstr(error_message(), says))
            fail_msg("%s: %s: %s", rest, error_text(err), error_message());
    }
}

static void test_idx_pairs(void **state) {
    (void)state;
    static struct blob b;
    char rest[600];
    blob_images(&b, 20, 4);
    file_put("some-images-idx3", b.bytes, b.n);
    expect_idx(ERR_INPUT, "", "no labels");
    blob_labels(&b, 19, 5);
    file_put("some-labels-idx1", b.bytes, b.n);
    expect_idx(ERR_DATA, "", "20 samples, but");
    blob_labels(&b, 20, 5);
    file_put("some-labels-idx1", b.bytes, b.n);
    expect_idx(ERR_DATA, ", classes: 4", "label 4, but there are 4 classes");
    expect_idx(ERR_CONFIG, ", val: 20", "none to train");
    expect_idx(ERR_CONFIG, ", val_labels: some", "held out of 'train'");
    expect_idx(ERR_CONFIG, ", val: 1%", "none to validate");
    expect_idx(ERR_CONFIG, ", val: 101%", "neither");
    expect_idx(ERR_CONFIG, ", val: 2.5", "neither");
    expect_idx(ERR_INPUT, ", labels: /nonesuch", "/nonesuch");
    expect_idx(ERR_INPUT, ", val: /nonesuch-images", "nonesuch-labels");
    expect_idx(ERR_CONFIG, ", val: /nonesuch", "data.val_labels is missing");
    blob_images(&b, 5, 3);
    file_put("other-images-idx3", b.bytes, b.n);
    blob_labels(&b, 5, 5);
    file_put("other-labels-idx1", b.bytes, b.n);
    snprintf(rest, sizeof rest, ", val: %s", scratch_path("other-images-idx3"));
    expect_idx(ERR_DATA, rest, "1x3x3 bytes, but training has 1x4x4 bytes");
    blob_images(&b, 7, 4);
    file_put("other-images-idx3", b.bytes, b.n);
    blob_labels(&b, 7, 7);
    file_put("other-labels-idx1", b.bytes, b.n);
    expect_idx(ERR_DATA, rest, "label 6, but there are 5 classes");
}

/* Every cut and every changed byte of a packed file is refused, or read as it was. */
static void test_gz_damage(void **state) {
    (void)state;
    static struct blob b;
    static uint8_t packed[4096];
    blob_labels(&b, 20, 5);
    file_put("z-labels-idx1", b.bytes, b.n);
    blob_images(&b, 20, 4);
    size_t n = file_get(file_put_gz("z-images-idx3.gz", b.bytes, b.n), packed, sizeof packed);
    char images[512];
    snprintf(images, sizeof images, "%s", scratch_path("z-images-idx3.gz"));
    for (size_t k = 0; k < 2 * n; k++) {
        struct dataset *d = NULL;
        uint8_t byte = packed[k / 2];
        bool cut = k & 1;
        if (!cut) packed[k / 2] ^= 0x55;
        file_put("z-images-idx3.gz", packed, cut ? k / 2 : n);
        packed[k / 2] = byte;
        enum error err = set_try(yaml("{set: idx, train: %s}", images), true, &d);
        if (err == ERR_NONE) { /* bytes of gzip's header that mean nothing to us */
            assert_false(cut);
            assert_between(k / 2, 3, 9);
            assert_byte_image(d, 0, 0, 5);
            dataset_close(d);
        } else
            assert_int_equal(err, ERR_DATA);
    }
}

/* ---- npy ---- */
static void npy_put(const char *name, const char *dictionary, const void *data, size_t n) {
    static struct blob b;
    blob_npy(&b, dictionary);
    blob_add(&b, data, n);
    file_put(name, b.bytes, b.n);
}

static void test_npy_types(void **state) {
    (void)state;
    double f8[12];
    float f4[12];
    uint8_t u1[12];
    int64_t i8[3] = {2, 0, 1};
    for (int k = 0; k < 12; k++) f8[k] = k * 0.5, f4[k] = (float)k * 0.5f, u1[k] = (uint8_t)k;
    npy_put("y.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", i8, sizeof i8);
    static const char *const types[] = {"<f8", "<f4", "|u1"}, *const shapes[] = {"3, 4", "3, 2, 2", "3, 1, 4, 1"};
    for (int type = 0; type < 3; type++)
        for (int s = 0; s < 3; s++) {
            char text[128];
            snprintf(text, sizeof text, "{\"shape\":(%s), 'fortran_order': False,'descr' : '%s'}", shapes[s],
                     types[type]);
            const void *data = type == 0 ? (void *)f8 : type == 1 ? (void *)f4 : (void *)u1;
            npy_put("x.npy", text, data, 12 * (type == 0 ? 8 : type == 1 ? 4 : 1));
            struct dataset *d =
                set_open(yaml("{set: npy, train: %s, val: 1, split: end}", scratch_path("x.npy")), false);
            assert_int_equal(d->size, 1);
            assert_int_equal(d->classes, 3);
            assert_int_equal(d->plane, s > 0);
            assert_int_equal(d->type, type == 2 ? SAMPLE_U8 : SAMPLE_F32);
            assert_int_equal(shape_count(&d->shape), 4);
            assert_int_equal(d->shape.ndim, s == 0 ? 1 : 3);
            float x[4];
            int32_t label;
            assert_ok(d->ops->read(d, 0, x, &label, NULL));
            assert_int_equal(label, 1);
            for (int k = 0; k < 4; k++)
                if (type < 2)
                    assert_float_equal(x[k], f4[8 + k], 0);
                else
                    assert_int_equal(((uint8_t *)x)[k], 8 + k);
            dataset_close(d);
        }
}

static void test_npy_labels(void **state) {
    (void)state;
    float x[6] = {1, 2, 3, 4, 5, 6}, t[6] = {0.5f, 1, 1.5f, 2, 2.5f, 3}, target[2];
    int32_t label = 77;
    npy_put("x_t.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}", x, sizeof x);
    npy_put("y_t.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}", t, sizeof t);
    struct dataset *d = set_open(yaml("{set: npy, train: %s, val: 1, split: end}", scratch_path("x_t.npy")), true);
    assert_int_equal(d->classes, 0);
    assert_int_equal(d->targets, 2);
    assert_ok(d->ops->read(d, 1, x, &label, target));
    assert_float_equal(target[1], 2, 0);
    assert_int_equal(label, 77);
    dataset_close(d);
    static const struct {
        const char *type;
        int size;
    } types[] = {{"|u1", 1}, {"|i1", 1}, {"<i2", 2}, {"<u2", 2}, {"<i4", 4}, {"<u4", 4}, {"<i8", 8}, {"<u8", 8}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) { /* little-endian 4, 0, 1 */
        uint8_t y[24] = {0};
        char text[128];
        y[0] = 4, y[2 * types[i].size] = 1;
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (3, 1)}", types[i].type);
        npy_put("y_t.npy", text, y, 3 * (size_t)types[i].size);
        d = set_open(yaml("{set: npy, train: %s, val: 1, split: end}", scratch_path("x_t.npy")), true);
        assert_int_equal(d->classes, 5);
        assert_ok(d->ops->read(d, 0, x, &label, NULL));
        assert_int_equal(label, 4);
        dataset_close(d);
        if (types[i].type[1] == 'u' && types[i].size < 8) continue;
        memset(y, 255, sizeof y); /* -1, or beyond all classes */
        npy_put("y_t.npy", text, y, 3 * (size_t)types[i].size);
        assert_fails(ERR_DATA,
                     set_try(yaml("{set: npy, train: %s, val: 1, split: end}", scratch_path("x_t.npy")), true, &d));
    }
}

static void test_npy_lies(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        "{",
                                        "{}",
                                        "{'descr': '<f4'}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)} x",
                                        "{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}",
                                        "{'descr': '>f4', 'fortran_order': False, 'shape': (3, 2)}",
                                        "{'descr': '|O', 'fortran_order': False, 'shape': (3, 2)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': ()}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 1, 1, 1)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, -2)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 0)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 2)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 99999999999999999999)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), 'shape': (3, 2)}",
                                        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), 'more': 1}",
                                        "{'descr': [('a', '<f4')], 'shape': (3, 2)}",
                                        "{'descr': '<f4', 'fortran_order': Falsehood, 'shape': (3, 2)}",
                                        "{'descr: '<f4'}",
                                        "{'descrdescrdescrdescr': '<f4', 'fortran_order': False, 'shape': (3, 2)}",
                                        "{'descr': '<i4', 'fortran_order': False, 'shape': (3, 2)}"};
    float x[6] = {1, 2, 3, 4, 5, 6};
    struct dataset *d;
    npy_put("x_w.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}", x, sizeof x);
    npy_put("y_w.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, )}", x, 12);
    const char *text = "{set: npy, train: %s, val: 1, split: end}";
    dataset_close(set_open(yaml(text, scratch_path("x_w.npy")), true));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        npy_put("x_w.npy", wrong[i], x, sizeof x);
        if (set_try(yaml(text, scratch_path("x_w.npy")), true, &d) != ERR_DATA) fail_msg("%s is taken", wrong[i]);
    }
    x[3] = 1.0f / 0.0f;
    npy_put("x_w.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}", x, sizeof x);
    assert_fails(ERR_DATA, set_try(yaml(text, scratch_path("x_w.npy")), true, &d));
    assert_non_null(strstr(error_message(), "sample 1 holds inf"));
    x[3] = 4, x[5] = -1.0f / 0.0f; /* of those that are held out the number in the file is told, too */
    npy_put("x_w.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2)}", x, sizeof x);
    assert_fails(ERR_DATA, set_try(yaml(text, scratch_path("x_w.npy")), false, &d));
    assert_non_null(strstr(error_message(), "sample 2 holds -inf"));
    file_put("x_w.npy", "\x93NUMPY\x01\x00\xff\xff", 10);
    assert_fails(ERR_DATA, set_try(yaml(text, scratch_path("x_w.npy")), true, &d));
    file_put("x_w.npy", "\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12);
    assert_fails(ERR_DATA, set_try(yaml(text, scratch_path("x_w.npy")), true, &d));
}

/* ---- csv ---- */
static const char *csv_yaml(const char *rest) {
    return yaml("{set: csv, train: %s, split: end%s}", scratch_path("t.csv"), rest);
}

static void csv_put(const char *text) {
    file_put("t.csv", text, strlen(text));
}

static void test_csv(void **state) {
    (void)state;
    float x[4], target = 0;
    int32_t label = 0;
    static const char *const same[] = {
        "a,b,class\n1,2,0\n3,-4.5e1,2\n.5,+6,1\n", "a;b;class\r\n1;2;0\r\n\r\n3;-45;2\r\n0.5;6;1",
        "\xef\xbb\xbf\"a, x\",b,class\n 1 ,\"2\",0\n3,-45.0,2\n0.5,6,1\n\n", "1\t2\t0\n3\t-45\t2\n.5\t6\t1\n"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        csv_put(same[i]);
        struct dataset *d = set_open(csv_yaml(", val: 1"), true);
        assert_int_equal(d->size, 2);
        assert_int_equal(d->classes, 3);
        assert_int_equal(d->shape.dim[0], 2);
        assert_ok(d->ops->read(d, 1, x, &label, NULL));
        assert_float_equal(x[0], 3, 0);
        assert_float_equal(x[1], -45, 0);
        assert_int_equal(label, 2);
        dataset_close(d);
    }
    csv_put("a,b,class\n1,2,0\n3,-4.5e1,2\n.5,+6,1\n");
    struct dataset *d = set_open(csv_yaml(", val: 34%, target: b"), false); /* a value, in the middle */
    assert_int_equal(d->classes, 0);
    assert_int_equal(d->targets, 1);
    assert_ok(d->ops->read(d, 0, x, &label, &target));
    assert_float_equal(target, 6, 0);
    assert_float_equal(x[1], 1, 0);
    dataset_close(d);
    d = set_open(csv_yaml(", val: 1, target: 1"), true);
    assert_int_equal(d->targets, 1);
    dataset_close(d);
    file_put("v.csv", "a,b,class\n1,2,1\n", 16);
    char rest[600];
    snprintf(rest, sizeof rest, ", val: %s", scratch_path("v.csv"));
    d = set_open(csv_yaml(rest), false);
    assert_int_equal(d->size, 1);
    assert_int_equal(d->classes, 3); /* the training file's */
    dataset_close(d);
}

static void test_csv_numbers_are_no_names(void **state) {
    (void)state;
    csv_put("2,7,1,0\n5,6,7,1\n"); /* no header: "2" is the third column, not the one that holds 2 */
    struct dataset *d = set_open(csv_yaml(", val: 1, target: 3"), true);
    float x[3];
    int32_t label;
    assert_ok(d->ops->read(d, 0, x, &label, NULL));
    assert_int_equal(label, 1);
    assert_int_equal(d->classes, 8);
    dataset_close(d);
}

static void test_csv_lies(void **state) {
    (void)state;
    static const struct {
        enum error err;
        const char *text, *rest, *says;
    } wrong[] = {
        {ERR_DATA, "", "", "no rows"},
        {ERR_DATA, "a,b\n", "", "no rows"},
        {ERR_DATA, "\n\n \n", "", "no rows"},
        {ERR_DATA, "1,2\n1\n", "", ":2: fewer"},
        {ERR_DATA, "1,2\n1,2,3\n", "", ":2: more"},
        {ERR_DATA, "1,2\n1,x\n", "", ":2: column 2: 'x' is no number"},
        {ERR_DATA, "a,b\n1,\n", "", ":2: column 2 'b': '': the target is missing"},
        {ERR_DATA, "a,1\n1,2\n", "", ":2: column 1: '1' is a number, where line 1 has text"},
        {ERR_DATA, "1,nan\n", "", "'nan'"},
        {ERR_DATA, "1,1e60\n", "", "1e60"},
        {ERR_DATA, "1,1\n1,0x10\n", "", "0x10"},
        {ERR_DATA, "1,1\n1,1-2\n", "", "1-2"},
        {ERR_DATA, "1\n2\n", "", "1 columns"},
        {ERR_CONFIG, "a,b\n1,2\n1,2\n", ", target: c", "no column 'c'"},
        {ERR_CONFIG, "a,b\n1,2\n1,2\n", ", target: 3", "no column '3'"},
        {ERR_CONFIG, "1,2\n", "", "none to"},
        {ERR_INPUT, "1,2\n1,2\n", ", val: /nonesuch", "/nonesuch"},
    };
    struct dataset *d;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        csv_put(wrong[i].text);
        enum error err = set_try(csv_yaml(wrong[i].rest), false, &d);
        if (err != wrong[i].err || !strstr(error_message(), wrong[i].says))
            fail_msg("'%s': %s: %s", wrong[i].text, error_text(err), error_message());
    }
    file_put("t.csv", "1,2\n1,\0002\n", 9);
    assert_fails(ERR_DATA, set_try(csv_yaml(""), true, &d));
    file_put_gz("t.csv", "1,2\n1,2\n", 8);
    assert_fails(ERR_DATA, set_try(csv_yaml(""), true, &d));
    csv_put("a,c\n1,2\n3,0\n"); /* validation rows of other columns, of no classes, of too many */
    static const char *const others[] = {"1,2,3\n", "1,0.5\n", "1,3\n"};
    for (int i = 0; i < 3; i++) {
        char rest[600];
        file_put("v.csv", others[i], strlen(others[i]));
        snprintf(rest, sizeof rest, ", val: %s", scratch_path("v.csv"));
        assert_fails(ERR_DATA, set_try(csv_yaml(rest), false, &d));
    }
}

static void test_csv_long_lines(void **state) {
    (void)state;
    enum { LINE = 1 << 20 };
    char *text = malloc(3 * LINE);
    struct dataset *d;
    memset(text, ' ', 3 * LINE);
    memcpy(text, "1,2\n3,4", 7);
    file_put("t.csv", text, 2 * LINE);
    assert_fails(ERR_DATA, set_try(csv_yaml(", val: 1"), true, &d));
    assert_non_null(strstr(error_message(), "longer than"));
    memset(text, '\n', 3 * LINE); /* many lines, across the edges of what is read at once */
    int64_t n = 0, rows = 0;
    while (n < 2 * LINE) n += sprintf(text + n, "%d,%d\n", (int)(rows % 1000), (int)(rows % 3)), rows++;
    file_put("t.csv", text, (size_t)n);
    d = set_open(csv_yaml(", val: 1"), true);
    assert_int_equal(d->size, rows - 1);
    for (int64_t i = 0; i < d->size; i++) {
        float x;
        int32_t label;
        assert_ok(d->ops->read(d, i, &x, &label, NULL));
        assert_int_equal(label, i % 3);
        assert_float_equal(x, (i % 1000), 0);
    }
    dataset_close(d);
    free(text);
}

/* ---- folders ---- */
static void find_check(const char *const *files, const char *train, const char *val, const char *says) {
    static int folders;
    struct pool *pool;
    struct data_files found;
    char folder[32], name[128];
    snprintf(folder, sizeof folder, "found%d", folders++);
    assert_int_equal(mkdir(scratch_path(folder), 0700), 0);
    for (; *files; files++) {
        snprintf(name, sizeof name, "%s/%.90s", folder, *files);
        size_t n = strlen(*files);
        if ((*files)[n - 1] == '/')
            assert_int_equal(mkdir(scratch_path(name), 0700), 0);
        else
            file_put(name, strstr(*files, "test.csv") ? "a,b\n" : "a,b,c\n", strstr(*files, "test.csv") ? 4 : 6);
    }
    assert_ok(pool_create(&pool));
    enum error err = data_find(scratch_path(folder), pool, &found);
    if (!train) {
        assert_int_equal(err, ERR_DATA);
        if (!strstr(error_message(), says)) fail_msg("%s", error_message());
        assert_true(*error_hint() != '\0');
    } else {
        if (err != ERR_NONE) fail_msg("%s: %s", train, error_message());
        snprintf(name, sizeof name, "%s/%s", folder, train);
        if (*train) assert_string_equal(found.train, scratch_path(name));
        assert_string_equal(dataset_kinds(&(int){0})[found.kind]->section.name, says);
        snprintf(name, sizeof name, "%s/%s", folder, val ? val : "");
        if (val) assert_string_equal(found.val, scratch_path(name));
        if (!val) assert_null(found.val);
    }
    pool_free(pool);
}

/* A folder that holds one obvious thing is that, and of any other the error says what is there. */
static void test_folders(void **state) {
    (void)state;
    static const struct {
        const char *files[6], *train, *val, *says; /* says: the set, or a part of the message */
    } cases[] = {
        {{"wine.csv"}, "wine.csv", NULL, "csv"},
        {{"wine.csv", "README.txt", "plots/"}, "wine.csv", NULL, "csv"},
        {{"train.csv", "val.csv", "test.csv"}, "train.csv", "val.csv", "csv"},
        {{"train.csv", "test.csv"}, "train.csv", NULL, "csv"}, /* which lacks the target */
        {{"my-Train.tsv", "my-test.tsv"}, "my-Train.tsv", "my-test.tsv", "csv"},
        {{"X_train.npy", "y_train.npy", "X_test.npy", "y_test.npy"}, "X_train.npy", "X_test.npy", "npy"},
        {{"X.npy", "y.npy"}, "X.npy", NULL, "npy"},
        {{"train-images.npy", "train-labels.npy", "val-images.npy", "val-labels.npy"},
         "train-images.npy",
         "val-images.npy",
         "npy"},
        {{"t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"}, "t10k-images-idx3-ubyte.gz", NULL, "idx"},
        {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte"}, "train-images-idx3-ubyte", NULL, "idx"},
        {{"story.txt", ".hidden.txt"}, "story.txt", NULL, "text"},
        {{"train.tokens.bin", "val.bin"}, "train.tokens.bin", "val.bin", "tokens"},
        {{"empty/"}, "", NULL, "images"}, /* whose reader says what it lacks */
        {{"a.csv", "b.csv"}, NULL, NULL, "several files that could be trained on: a.csv, b.csv"},
        {{"train_a.csv", "train_b.csv"}, NULL, NULL, "several"},
        {{"train.csv", "X.npy", "y.npy"}, NULL, NULL, "several"},
        {{"1.jpg", "2.JPG"}, NULL, NULL, "has pictures but no class folders"},
        {{"1.jpg", "labels.csv"}, NULL, NULL, "has pictures but no class folders"},
        {{"x.yaml", "y.yaml"}, NULL, NULL, "holds nothing that a data set reads: 2 x .yaml"},
        {{0}, NULL, NULL, "it is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        find_check(cases[i].files, cases[i].train, cases[i].val, cases[i].says);
}

static void test_no_regular_file(void **state) {
    (void)state;
    struct dataset *d;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch_path("pipe.csv"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(ERR_INPUT, set_try(yaml("{set: csv, train: %s}", path), true, &d));
    assert_fails(ERR_INPUT, set_try(yaml("{set: csv, train: %s}", scratch_folder()), true, &d));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),
        cmocka_unit_test(test_idx_lies),
        cmocka_unit_test(test_idx_pairs),
        cmocka_unit_test(test_gz_damage),
        cmocka_unit_test(test_npy_types),
        cmocka_unit_test(test_npy_labels),
        cmocka_unit_test(test_npy_lies),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_csv_numbers_are_no_names),
        cmocka_unit_test(test_csv_lies),
        cmocka_unit_test(test_csv_long_lines),
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_no_regular_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
