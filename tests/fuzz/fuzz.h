/* What fuzz targets share: files without a disk, and a data set opened on them and read whole. */
#pragma once
#include "engine/base/memory.h"
#include "engine/data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* The path of file k (0 to 3) with these bytes; its content before is gone. */
static inline const char *fuzz_file(int k, const void *bytes, size_t n) {
    static int fd[4] = {-1, -1, -1, -1};
    static char path[4][32];
    if (fd[k] < 0) fd[k] = memfd_create("fuzz", 0);
    snprintf(path[k], sizeof path[k], "/proc/self/fd/%d", fd[k]);
    if (fd[k] < 0 || ftruncate(fd[k], 0) != 0 || pwrite(fd[k], bytes, n, 0) != (ssize_t)n) abort();
    return path[k];
}

static inline void fuzz_read(struct dataset *d) {
    enum { MOST = 1000 };
    void *x, *y;
    if (memory_alloc(dataset_sample_bytes(d), &x) != ERR_NONE) return;
    if (memory_alloc((size_t)(d->labels + d->targets + 1) * 4, &y) == ERR_NONE) {
        for (int64_t i = 0; i < d->size && i < MOST; i++) {
            enum error err = d->ops->read(d, i, x, y, (float *)y + d->labels);
            for (int64_t k = 0; err == ERR_NONE && k < d->labels; k++)
                if (((int32_t *)y)[k] < 0 || ((int32_t *)y)[k] >= d->classes) abort();
        }
        memory_free(y);
    }
    memory_free(x);
}

/* Opens both parts of the set that 'data: YAML' names, and reads what opens. */
static inline void fuzz_set(const char *yaml) {
    struct whole {
        struct config_variant data;
    } whole;
    const struct config_field fields[] = {
        {"data", CONFIG_VARIANT, 0, .standard = "digits", .help = "x", .extra = &dataset_variants}, {0}};
    const struct config_section section = {.name = "fuzz", .fields = fields, .size = sizeof whole, .help = "x"};
    char text[1024];
    struct pool *pool;
    struct config_errors *errors;
    struct node *root;
    snprintf(text, sizeof text, "data: %s\n", yaml);
    if (pool_create(&pool) != ERR_NONE || config_errors_create(&errors) != ERR_NONE) abort();
    if (tree_parse(text, strlen(text), "fuzz", pool, errors, &root) != ERR_NONE) abort();
    if (config_read(&section, root, pool, errors, &whole) != ERR_NONE) abort();
    struct data_config config = *(const struct data_config *)whole.data.common_config;
    config.set = whole.data;
    for (int train = 0; train < 2; train++) {
        struct dataset *d;
        if (dataset_open(&config, train, 1, &d) != ERR_NONE) continue;
        fuzz_read(d);
        dataset_close(d);
    }
    config_errors_free(errors);
    pool_free(pool);
}
