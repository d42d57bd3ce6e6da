/* What the tests of this folder begin with. Each is built twice: for the GPUs of this machine (where there is none it
 * skips, and says why), and for emulated ones. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/device/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The GPU of that number; fails the test. */
static inline struct device *gpu_open(int unit) {
    struct device_params p = {.index = 0, .count = 1, .unit = unit, .threads = 1};
    struct device *dev = NULL;
    assert_ok(device_find("cuda")->open(&p, &dev));
    return dev;
}

static inline int gpu_count(void) {
    int count = 0;
    return device_find("cuda")->units(&count) == ERR_NONE ? count : 0;
}

/* Fails the test unless docs/gpus.md has the line. */
static inline void gpu_page_has(const char *line) {
    struct pool *pool;
    char *text;
    size_t n;
    assert_ok(pool_create(&pool));
    assert_ok(file_read(ENGINE_SOURCE_DIR "/docs/gpus.md", 1 << 20, pool, &text, &n));
    if (!strstr(text, line)) fail_msg("docs/gpus.md has no line\n%s", line);
    pool_free(pool);
}

enum { GPU_SKIPPED = 77 }; /* ctest's SKIP_RETURN_CODE */
#define gpu_run_tests(tests)                                                                                           \
    (gpu_count() ? cmocka_run_group_tests(tests, NULL, NULL) : (printf("skipped: %s\n", error_message()), GPU_SKIPPED))
