/* What the tests of engine/data share: configurations from YAML, a set whose values tell where they
 * come from, data files. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/base/memory.h"
#include "engine/data/loader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- configuration ---- */
struct setup {
    struct pool *pool;
    struct config_errors *errors;
    struct data_config config;
};

static inline void setup_free(struct setup *s) {
    config_errors_free(s->errors);
    pool_free(s->pool);
}

/* Reads the value of the key 'data'. false: errors tell why. */
static inline bool setup_try(struct setup *s, const char *yaml) {
    struct whole {
        struct config_variant data;
    } whole;
    const struct config_field fields[] = {
        {"data", CONFIG_VARIANT, 0, .standard = "digits", .help = "x", .extra = &dataset_variants}, {0}};
    const struct config_section section = {.name = "test", .fields = fields, .size = sizeof whole, .help = "x"};
    char text[4096];
    struct node *root;
    snprintf(text, sizeof text, "data: %s\n", yaml);
    assert_ok(pool_create(&s->pool));
    assert_ok(config_errors_create(&s->errors));
    assert_ok(tree_parse(text, strlen(text), "test.yaml", s->pool, s->errors, &root));
    if (config_read(&section, root, s->pool, s->errors, &whole) != ERR_NONE) return false;
    s->config = *(const struct data_config *)whole.data.common_config;
    s->config.set = whole.data;
    return true;
}

static inline void setup_make(struct setup *s, const char *yaml) {
    if (!setup_try(s, yaml)) fail_msg("%s: %s", yaml, config_errors_text(s->errors, s->pool));
}

/* Opens the set that a value of 'data' names. */
static inline enum error set_try(const char *yaml, bool train, struct dataset **out) {
    struct setup s;
    setup_make(&s, yaml);
    enum error err = dataset_open(&s.config, train, 1, out);
    setup_free(&s);
    return err;
}

static inline struct dataset *set_open(const char *yaml, bool train) {
    struct dataset *d = NULL;
    enum error err = set_try(yaml, train, &d);
    if (err != ERR_NONE) fail_msg("%s: %s", yaml, error_message());
    return d;
}

/* ---- a set of known values: sample i is i, i + 0.01, ...; bytes: i + k mod 256 ---- */
struct fake {
    struct dataset base;
    int64_t broken; /* the sample that cannot be read, and every 32nd after it; -1: none */
};

static inline enum error fake_read(struct dataset *d, int64_t i, void *x, int32_t *label, float *target) {
    const struct fake *f = (const struct fake *)d;
    if (f->broken >= 0 && i >= f->broken && (i - f->broken) % 32 == 0)
        return FAIL(ERR_DATA, "sample %lld is broken\nmend it", (long long)i);
    for (int64_t k = 0, n = shape_count(&d->shape); k < n; k++)
        if (d->type == SAMPLE_U8)
            ((uint8_t *)x)[k] = (uint8_t)(i + k);
        else
            ((float *)x)[k] = (float)i + 0.01f * (float)k;
    *label = (int32_t)(i % 7);
    for (int64_t k = 0; k < d->targets; k++) target[k] = (float)(i + k);
    return ERR_NONE;
}

static inline void fake_close(struct dataset *d) {
    (void)d;
}

static inline struct fake fake_set(int64_t size, int type, struct shape shape) {
    static const struct dataset_ops ops = {.read = fake_read, .close = fake_close};
    struct fake f = {.broken = -1};
    f.base = (struct dataset){.ops = &ops,
                              .size = size,
                              .shape = shape,
                              .type = type,
                              .classes = 7,
                              .labels = 1,
                              .name = "fake",
                              .plane = shape.ndim == 3};
    return f;
}

/* ---- files ---- */
static inline const char *file_put(const char *name, const void *bytes, size_t n) {
    const char *path = scratch_path(name);
    (void)remove(path); /* some file systems write a file out when it is cut and written anew: slow */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *file_put_gz(const char *name, const void *bytes, size_t n) {
    const char *path = scratch_path(name);
    gzFile f = gzopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, bytes, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
    return path;
}

static inline size_t file_get(const char *path, void *bytes, size_t room) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, room, f);
    fclose(f);
    return n;
}

struct blob {
    uint8_t bytes[1 << 16];
    size_t n;
};

static inline void blob_add(struct blob *b, const void *bytes, size_t n) {
    assert_true(b->n + n <= sizeof b->bytes);
    memcpy(b->bytes + b->n, bytes, n);
    b->n += n;
}

/* An IDX header: {0, 0, type, ndim} and dimensions. */
static inline void blob_idx(struct blob *b, int type, int ndim, const uint32_t *dims) {
    b->n = 0;
    blob_add(b, (uint8_t[]){0, 0, (uint8_t)type, (uint8_t)ndim}, 4);
    for (int i = 0; i < ndim; i++)
        blob_add(
            b,
            (uint8_t[]){(uint8_t)(dims[i] >> 24), (uint8_t)(dims[i] >> 16), (uint8_t)(dims[i] >> 8), (uint8_t)dims[i]},
            4);
}

/* n images of side x side, byte k of all being k mod 251, and their labels i mod classes. */
static inline void blob_images(struct blob *b, int n, int side) {
    blob_idx(b, 8, 3, (uint32_t[]){(uint32_t)n, (uint32_t)side, (uint32_t)side});
    for (int k = 0; k < n * side * side; k++) blob_add(b, &(uint8_t){(uint8_t)(k % 251)}, 1);
}

static inline void blob_labels(struct blob *b, int n, int classes) {
    blob_idx(b, 8, 1, (uint32_t[]){(uint32_t)n});
    for (int i = 0; i < n; i++) blob_add(b, &(uint8_t){(uint8_t)(i % classes)}, 1);
}

/* A .npy header of version 1 with this dictionary, padded as NumPy does. */
static inline void blob_npy(struct blob *b, const char *dictionary) {
    size_t length = (10 + strlen(dictionary) + 1 + 63) / 64 * 64 - 10;
    b->n = 0;
    blob_add(b, "\x93NUMPY\x01\x00", 8);
    blob_add(b, (uint8_t[]){(uint8_t)length, (uint8_t)(length >> 8)}, 2);
    blob_add(b, dictionary, strlen(dictionary));
    while (b->n < 9 + length) blob_add(b, " ", 1);
    blob_add(b, "\n", 1);
}
