/* The levels of instructions that the device "cpu" can run here, for tests of its inside. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/device/cpu/cpu.h"

#include <string.h>

/* A level's implementation of that name. */
static inline const struct op_impl *impl_at(const struct cpu_level *level, enum op_kind kind, const char *name) {
    const struct op_impl *const *i = level->impls[kind];
    while (*i && strcmp((*i)->name, name) != 0) i++;
    assert_non_null(*i);
    return *i;
}

static inline struct device *open_at(const struct cpu_level *level, int threads) {
    const struct device_params p = {.count = 1, .threads = threads};
    struct device *dev = NULL;
    assert_ok(cpu_open_at(level, &p, &dev));
    return dev;
}

/* How many levels have fused multiply-adds: they are the first ones, and give the same bits in f32. */
static inline int levels_fused(void) {
    int count, fused = 0;
    const struct cpu_level *const *levels = cpu_levels(&count);
    while (fused < count && levels[fused]->fused) fused++;
    if (fused < 2) print_message("skipped: fewer than two levels with fused multiply-adds here\n");
    return fused;
}
