/* The snapshot: one allocation that holds all that a checkpoint holds, and the list of its tensors
 * by file. The saver fills it from the arenas and writes from it while training goes on; a load
 * fills it from the files and gives it to the arenas when all of it has proved to be valid. */
#include "engine/device/runtime.h"
#include "engine/save/checkpoint_impl.h"

#include <math.h>
#include <string.h>

enum { SLOTS_MOST = 2, STATE_TENSORS = 12, STATE_PLAIN = 7, STATE_SCALED = 10 };

struct snapshot {
    const struct model *model;
    int nslots;
    bool scaled;
    const char *patience, *target;                                 /* the names of their tensors; NULL: it is off */
    float *values, *average, *outer, *buffers, *slots[SLOTS_MOST]; /* average, outer: NULL where there is none */
    struct checkpoint_counters counters;
    struct st_tensor *tensors[CHECKPOINT_FILES];
    int count[CHECKPOINT_FILES];
    struct allocator near; /* memory that copies from and to the device run beside */
    void *memory;
    struct pool *pool;
};

static struct st_tensor tensor_of(const struct tensor_info *info, const char *name, float *arena) {
    struct st_tensor t = {.name = name,
                          .dtype = "F32",
                          .ndim = info->shape.ndim,
                          .data = arena + info->offset,
                          .bytes = (size_t)info->count * sizeof(float)};
    memcpy(t.dim, info->shape.dim, sizeof t.dim);
    return t;
}

static void list_model(struct snapshot *shot, float *values, struct st_tensor *to) {
    const struct model *m = shot->model;
    for (int i = 0; i < m->nparams; i++) *to++ = tensor_of(&m->params[i], m->params[i].name, values);
    for (int i = 0; i < m->nbuffers; i++) *to++ = tensor_of(&m->buffers[i], m->buffers[i].name, shot->buffers);
}

static enum error list_slot(struct snapshot *shot, const char *before, float *arena, struct st_tensor *to) {
    const struct model *m = shot->model;
    for (int i = 0; i < m->nparams; i++) {
        const char *name = pool_printf(shot->pool, "%s%s", before, m->params[i].name);
        if (!name) return ERR_MEMORY;
        to[i] = tensor_of(&m->params[i], name, arena);
    }
    return ERR_NONE;
}

static enum error list_optim(struct snapshot *shot, const char *const *slot_names, struct st_tensor *to) {
    int n = shot->model->nparams;
    for (int s = 0; s < shot->nslots; s++) {
        const char *before = pool_printf(shot->pool, "%s/", slot_names[s]);
        if (!before) return ERR_MEMORY;
        TRY(list_slot(shot, before, shot->slots[s], to + s * n));
    }
    return shot->outer ? list_slot(shot, OUTER_PREFIX, shot->outer, to + shot->nslots * n) : ERR_NONE;
}

static void list_state(struct snapshot *shot, struct st_tensor *to) {
    struct checkpoint_counters *c = &shot->counters;
    const struct {
        const char *name, *dtype;
        void *data;
        size_t count, size;
    } state[STATE_TENSORS] = {{"step", "I64", &c->step, 1, 8},
                              {"epoch", "I64", &c->epoch, 1, 8},
                              {"step_in_epoch", "I64", &c->step_in_epoch, 1, 8},
                              {"best", "F64", &c->best, 1, 8},
                              {BEST_LOSS, "F64", &c->best_loss, 1, 8},
                              {"seconds", "F64", &c->seconds, 1, 8},
                              {"losses_sha256", "U8", &c->losses, sizeof c->losses, 1},
                              {"loss_scale", "F64", &c->loss_scale, 1, 8},
                              {"good_steps", "I64", &c->good_steps, 1, 8},
                              {"skipped", "I64", &c->skipped, 1, 8},
                              {shot->patience, "F64", &c->patience, sizeof c->patience / sizeof(double), 8},
                              {shot->target, "F64", &c->target, sizeof c->target / sizeof(double), 8}};
    for (int i = 0; i < STATE_TENSORS; i++) {
        if ((i >= STATE_PLAIN && i < STATE_SCALED && !shot->scaled) || !state[i].name) continue;
        *to++ = (struct st_tensor){.name = state[i].name,
                                   .dtype = state[i].dtype,
                                   .ndim = 1,
                                   .dim = {(int64_t)state[i].count},
                                   .data = state[i].data,
                                   .bytes = state[i].count * state[i].size};
    }
}

static enum error list_all(struct snapshot *shot, const char *const *slot_names) {
    const struct model *m = shot->model;
    shot->count[FILE_MODEL] = m->nparams + m->nbuffers;
    shot->count[FILE_OPTIM] = m->nparams * (shot->nslots + (shot->outer != NULL));
    shot->count[FILE_STATE] =
        (shot->scaled ? STATE_SCALED : STATE_PLAIN) + (shot->patience != NULL) + (shot->target != NULL);
    shot->count[FILE_AVERAGE] = shot->average ? shot->count[FILE_MODEL] : 0;
    for (int f = 0; f < CHECKPOINT_FILES; f++) {
        shot->tensors[f] = pool_alloc(shot->pool, (size_t)shot->count[f] * sizeof **shot->tensors);
        if (!shot->tensors[f]) return ERR_MEMORY;
    }
    list_model(shot, shot->values, shot->tensors[FILE_MODEL]);
    if (shot->average) list_model(shot, shot->average, shot->tensors[FILE_AVERAGE]);
    list_state(shot, shot->tensors[FILE_STATE]);
    return list_optim(shot, slot_names, shot->tensors[FILE_OPTIM]);
}

/* Arenas one after another; each begins aligned, since arenas are whole cache lines long. */
static enum error snapshot_allocate(struct snapshot *shot, bool averaged, bool outer) {
    size_t arena = (size_t)align_floats(shot->model->arena_floats), arenas = 1 + (size_t)shot->nslots;
    size_t floats = arena * (arenas + averaged + outer) + (size_t)shot->model->buffer_floats, bytes;
    TRY(memory_size(floats, sizeof(float), "a checkpoint", &bytes));
    TRY(shot->near.alloc(shot->near.ctx, bytes, &shot->memory));
    shot->values = shot->memory;
    for (int s = 0; s < shot->nslots; s++) shot->slots[s] = shot->values + arena * (size_t)(s + 1);
    if (averaged) shot->average = shot->values + arena * arenas++;
    if (outer) shot->outer = shot->values + arena * arenas++;
    shot->buffers = shot->values + arena * arenas;
    return ERR_NONE;
}

enum error snapshot_create(const struct checkpoint_view *v, struct snapshot **out) {
    struct pool *pool;
    TRY(pool_create(&pool));
    struct snapshot *shot = pool_alloc(pool, sizeof *shot);
    enum error err = shot ? ERR_NONE : ERR_MEMORY;
    if (shot) {
        *shot = (struct snapshot){.model = v->model, .nslots = v->nslots, .scaled = v->scaled, .pool = pool};
        shot->near = device_host_allocator(v->device);
        shot->counters.best_loss = (double)NAN;
        if (v->patience) shot->patience = pool_printf(pool, PATIENCE_PREFIX "%s", v->patience);
        if (v->target) shot->target = pool_printf(pool, TARGET_PREFIX "%s", v->target);
        bool named = !v->patience == !shot->patience && !v->target == !shot->target;
        err = named ? snapshot_allocate(shot, v->average != NULL, v->outer != NULL) : ERR_MEMORY;
        if (err == ERR_NONE) err = list_all(shot, v->slot_names);
    }
    if (err == ERR_NONE) {
        *out = shot;
    } else {
        if (shot) shot->near.free(shot->near.ctx, shot->memory);
        pool_free(pool);
    }
    return err;
}

void snapshot_free(struct snapshot *shot) {
    if (!shot) return;
    shot->near.free(shot->near.ctx, shot->memory);
    pool_free(shot->pool);
}

static enum error take_floats(struct device *d, float *to, const float *from, int64_t n) {
    return n > 0 ? device_read(d, to, from, (size_t)n * sizeof *to) : ERR_NONE;
}

static enum error give_floats(struct device *d, float *to, const float *from, int64_t n) {
    return n > 0 ? device_write(d, to, from, (size_t)n * sizeof *to) : ERR_NONE;
}

/* The header before the parameters is no part of a checkpoint. */
static enum error take_arena(const struct checkpoint_view *v, float *to, const float *from) {
    return take_floats(v->device, to + HEADER_FLOATS, from + HEADER_FLOATS, v->model->arena_floats - HEADER_FLOATS);
}

static enum error give_arena(const struct checkpoint_view *v, float *to, const float *from) {
    return give_floats(v->device, to + HEADER_FLOATS, from + HEADER_FLOATS, v->model->arena_floats - HEADER_FLOATS);
}

enum error snapshot_take(struct snapshot *shot, const struct checkpoint_view *v) {
    TRY(take_arena(v, shot->values, v->values));
    if (shot->average) TRY(take_arena(v, shot->average, v->average));
    if (shot->outer) TRY(take_arena(v, shot->outer, v->outer));
    TRY(take_floats(v->device, shot->buffers, v->buffers, shot->model->buffer_floats));
    for (int s = 0; s < shot->nslots; s++)
        if (v->slots[s]) TRY(take_arena(v, shot->slots[s], v->slots[s]));
    shot->counters = *v->counters;
    return ERR_NONE;
}

void snapshot_slots(const struct snapshot *shot, float *slots[2]) {
    for (int s = 0; s < SLOTS_MOST; s++) slots[s] = shot->slots[s];
}

enum error snapshot_give(const struct snapshot *shot, const struct checkpoint_view *v, bool all) {
    TRY(give_arena(v, v->values, shot->values));
    TRY(give_floats(v->device, v->buffers, shot->buffers, shot->model->buffer_floats));
    if (shot->average && all) TRY(give_arena(v, v->average, shot->average));
    if (shot->outer && all) TRY(give_arena(v, v->outer, shot->outer));
    for (int s = 0; s < shot->nslots && all; s++) TRY(give_arena(v, v->slots[s], shot->slots[s]));
    if (all) *v->counters = shot->counters;
    return device_wait(v->device); /* the snapshot is no longer read */
}

const struct st_tensor *snapshot_tensors(const struct snapshot *shot, enum checkpoint_file file, int *count) {
    *count = shot->count[file];
    return shot->tensors[file];
}

const struct checkpoint_counters *snapshot_counters(const struct snapshot *shot) {
    return &shot->counters;
}
