/* A toy run for the checkpoints' tests: a model of four parameters and two buffers with two
 * optimizer slots, whose every number is a function of (salt, tensor, element), so that a test can
 * tell which save it has before it. */
#pragma once
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/save/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOY_PARAMS = 4, TOY_BUFFERS = 2, TOY_ARENA = HEADER_FLOATS + 16 + 16 + 32 + 16, TOY_BUFFER_FLOATS = 32 };

struct toy {
    struct model model;
    struct tensor_info params[TOY_PARAMS], buffers[TOY_BUFFERS];
    float values[TOY_ARENA], slots[2][TOY_ARENA], buffer[TOY_BUFFER_FLOATS];
    struct checkpoint_counters counters;
    struct checkpoint_view view;
};

static inline void toy_tensors(struct tensor_info *info, int count, int64_t offset, const char *const *names,
                               const struct shape *shapes) {
    for (int i = 0; i < count; i++) {
        int64_t n = 1;
        for (int d = 0; d < shapes[i].ndim; d++) n *= shapes[i].dim[d];
        info[i] = (struct tensor_info){.name = names[i], .shape = shapes[i], .offset = offset, .count = n};
        offset += align_floats(n);
    }
}

static inline float toy_number(int salt, int arena, int64_t i) {
    return (float)(salt * 1000 + arena * 100) + (float)i / 8;
}

static inline float *toy_arena(struct toy *t, int arena, struct tensor_info **info, int *count) {
    *info = arena == 1 ? t->buffers : t->params;
    *count = arena == 1 ? TOY_BUFFERS : TOY_PARAMS;
    return arena == 0 ? t->values : arena == 1 ? t->buffer : t->slots[arena - 2];
}

static inline void toy_fill(struct toy *t, int64_t step, int salt) {
    for (int a = 0; a < 4; a++) {
        struct tensor_info *info;
        int count;
        float *data = toy_arena(t, a, &info, &count);
        for (int i = 0; i < count; i++)
            for (int64_t k = info[i].offset; k < info[i].offset + info[i].count; k++) data[k] = toy_number(salt, a, k);
    }
    t->counters = (struct checkpoint_counters){.step = step,
                                               .epoch = step / 7,
                                               .step_in_epoch = step % 7,
                                               .best = salt + 0.25,
                                               .best_loss = salt + 0.5,
                                               .seconds = 1.5};
    sha256_init(&t->counters.losses);
    sha256_update(&t->counters.losses, &salt, sizeof salt);
}

/* All numbers are those of (step, salt), but for what a load alone says, and the gaps between the tensors still zero. */
static inline bool toy_is(const struct toy *t, int64_t step, int salt) {
    static struct toy expected;
    expected = *t;
    memset(expected.values, 0, sizeof expected.values);
    memset(expected.slots, 0, sizeof expected.slots);
    memset(expected.buffer, 0, sizeof expected.buffer);
    toy_fill(&expected, step, salt);
    expected.counters.devices = t->counters.devices;
    expected.counters.rescued = t->counters.rescued;
    return !memcmp(t->values, expected.values, sizeof t->values) &&
           !memcmp(t->slots, expected.slots, sizeof t->slots) &&
           !memcmp(t->buffer, expected.buffer, sizeof t->buffer) &&
           !memcmp(&t->counters, &expected.counters, sizeof t->counters);
}

static inline void toy_init(struct toy *t, int64_t step, int salt) {
    static const char *const names[] = {"fc.weight", "fc.bias", "conv.weight", "conv.bias"};
    static const char *const buffer_names[] = {"bn.running_mean", "bn.running_var"};
    static const char *const slot_names[] = {"exp_avg", "exp_avg_sq"};
    static const struct shape shapes[] = {{2, {3, 5}}, {1, {3}}, {4, {2, 1, 3, 3}}, {1, {2}}},
                              two[] = {{1, {2}}, {1, {2}}};
    memset(t, 0, sizeof *t);
    toy_tensors(t->params, TOY_PARAMS, HEADER_FLOATS, names, shapes);
    toy_tensors(t->buffers, TOY_BUFFERS, 0, buffer_names, two);
    t->model = (struct model){.name = "toy",
                              .nparams = TOY_PARAMS,
                              .nbuffers = TOY_BUFFERS,
                              .params = t->params,
                              .buffers = t->buffers,
                              .arena_floats = TOY_ARENA,
                              .buffer_floats = TOY_BUFFER_FLOATS};
    t->view = (struct checkpoint_view){.model = &t->model,
                                       .values = t->values,
                                       .buffers = t->buffer,
                                       .nslots = 2,
                                       .slot_names = slot_names,
                                       .slots = {t->slots[0], t->slots[1]},
                                       .counters = &t->counters,
                                       .identity = "model=toy\nbatch=size: 4;shards: 2\nseed=1\n",
                                       .mode = "ddp",
                                       .devices = 2};
    toy_fill(t, step, salt);
}

/* One save of (step, salt) by a saver of its own. */
static inline void toy_save(const char *folder, int64_t step, int salt, bool best) {
    struct toy t;
    struct saver *s;
    toy_init(&t, step, salt);
    assert_ok(saver_open(folder, 0, &t.view, &s));
    assert_ok(saver_save(s, best));
    assert_ok(saver_wait(s));
    saver_close(s);
}

static inline void toy_read(const char *path, char **text, size_t *n, struct pool *pool) {
    assert_ok(file_read(path, 1 << 20, pool, text, n));
}
