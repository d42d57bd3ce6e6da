/* What the tests of this folder begin with. Each is built twice: for the GPUs of this machine (where there is none it
 * skips, and says why), and for emulated ones. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/device/runtime.h"

#include <stdio.h>
#include <stdlib.h>

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

enum { GPU_SKIPPED = 77 }; /* ctest's SKIP_RETURN_CODE */
#define gpu_run_tests(tests)                                                                                           \
    (gpu_count() ? cmocka_run_group_tests(tests, NULL, NULL) : (printf("skipped: %s\n", error_message()), GPU_SKIPPED))
