/* The snapshot: one allocation that holds all that a checkpoint holds, and the list of its tensors
 * by file. The saver fills it from the arenas and writes from it while training goes on; a load
 * fills it from the files and gives it to the arenas when all of it has proved to be valid. */
#include "engine/device/runtime.h"
#include "engine/model/state.h"
#include "engine/save/checkpoint_impl.h"

#include <math.h>
#include <string.h>

enum { STATE_TENSORS = 12, STATE_PLAIN = 7, STATE_SCALED = 10 };

struct snapshot {
    const struct model *model;
    const struct optim_ops *optim; /* of the state; NULL: it is as the tensors are */
    int nslots;
    bool scaled;
    const char *patience, *target;                                 /* the names of their tensors; NULL: it is off */
    float *values, *average, *outer, *buffers, *slots[RULE_SLOTS]; /* average, outer: NULL where there is none */
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

/* The floats of a slot, and where the tensor lies that begins at a place of the arena. */
static int64_t slot_place(const struct snapshot *shot, int slot, int64_t at) {
    return shot->optim ? state_place(shot->model, shot->optim, slot, at) : at;
}

static int64_t slot_floats(const struct snapshot *shot, int slot) {
    return slot_place(shot, slot, shot->model->arena_floats);
}

/* What the slot has of each parameter; slot -1: as much as the parameter has. */
static enum error list_slot(struct snapshot *shot, int slot, const char *before, float *arena) {
    const struct model *m = shot->model;
    for (int i = 0; i < m->nparams; i++) {
        struct tensor_info info = m->params[i];
        if (slot >= 0 && shot->optim && !state_shape(shot->optim, slot, &m->params[i].shape, &info.shape)) continue;
        const char *name = pool_printf(shot->pool, "%s%s", before, info.name);
        if (!name) return ERR_MEMORY;
        if (slot >= 0) info.offset = slot_place(shot, slot, info.offset);
        info.count = shape_count(&info.shape);
        shot->tensors[FILE_OPTIM][shot->count[FILE_OPTIM]++] = tensor_of(&info, name, arena);
    }
    return ERR_NONE;
}

static enum error list_optim(struct snapshot *shot, const char *const *slot_names) {
    shot->count[FILE_OPTIM] = 0; /* of as many as there is room for */
    for (int s = 0; s < shot->nslots; s++) {
        const char *before = pool_printf(shot->pool, "%s/", slot_names[s]);
        if (!before) return ERR_MEMORY;
        TRY(list_slot(shot, s, before, shot->slots[s]));
    }
    return shot->outer ? list_slot(shot, -1, OUTER_PREFIX, shot->outer) : ERR_NONE;
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
        TRY_MEMORY(shot->tensors[f] = pool_alloc(shot->pool, (size_t)shot->count[f] * sizeof **shot->tensors));
    }
    list_model(shot, shot->values, shot->tensors[FILE_MODEL]);
    if (shot->average) list_model(shot, shot->average, shot->tensors[FILE_AVERAGE]);
    list_state(shot, shot->tensors[FILE_STATE]);
    return list_optim(shot, slot_names);
}

/* Arenas one after another; each begins aligned, since arenas are whole cache lines long. */
static enum error snapshot_allocate(struct snapshot *shot, bool averaged, bool outer) {
    size_t arena = (size_t)align_floats(shot->model->arena_floats), state = arena;
    for (int s = 0; s < shot->nslots; s++) state += (size_t)align_floats(slot_floats(shot, s));
    size_t floats = state + arena * ((size_t)averaged + outer) + (size_t)shot->model->buffer_floats, bytes;
    TRY(memory_size(floats, sizeof(float), "a checkpoint", &bytes));
    TRY(shot->near.alloc(shot->near.ctx, bytes, &shot->memory));
    shot->values = shot->memory;
    float *at = shot->values + arena;
    for (int s = 0; s < shot->nslots; s++) {
        shot->slots[s] = at;
        at += align_floats(slot_floats(shot, s));
    }
    if (averaged) shot->average = at, at += arena;
    if (outer) shot->outer = at, at += arena;
    shot->buffers = at;
    return ERR_NONE;
}

enum error snapshot_create(const struct checkpoint_view *v, struct snapshot **out) {
    struct pool *pool;
    TRY(pool_create(&pool));
    struct snapshot *shot = pool_alloc(pool, sizeof *shot);
    enum error err = shot ? ERR_NONE : ERR_MEMORY;
    if (shot) {
        *shot = (struct snapshot){
            .model = v->model, .optim = v->optim, .nslots = v->nslots, .scaled = v->scaled, .pool = pool};
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

/* State without gaps has no header. */
static enum error take_slot(const struct snapshot *shot, const struct checkpoint_view *v, int s) {
    bool plain = !shot->optim || !shot->optim->state;
    if (plain) return take_arena(v, shot->slots[s], v->slots[s]);
    return take_floats(v->device, shot->slots[s], v->slots[s], slot_floats(shot, s));
}

static enum error give_slot(const struct snapshot *shot, const struct checkpoint_view *v, int s) {
    bool plain = !shot->optim || !shot->optim->state;
    if (plain) return give_arena(v, v->slots[s], shot->slots[s]);
    return give_floats(v->device, v->slots[s], shot->slots[s], slot_floats(shot, s));
}

enum error snapshot_take(struct snapshot *shot, const struct checkpoint_view *v) {
    TRY(take_arena(v, shot->values, v->values));
    if (shot->average) TRY(take_arena(v, shot->average, v->average));
    if (shot->outer) TRY(take_arena(v, shot->outer, v->outer));
    TRY(take_floats(v->device, shot->buffers, v->buffers, shot->model->buffer_floats));
    for (int s = 0; s < shot->nslots; s++)
        if (v->slots[s]) TRY(take_slot(shot, v, s));
    shot->counters = *v->counters;
    return ERR_NONE;
}

void snapshot_slots(const struct snapshot *shot, float *slots[RULE_SLOTS]) {
    for (int s = 0; s < RULE_SLOTS; s++) slots[s] = shot->slots[s];
}

enum error snapshot_give(const struct snapshot *shot, const struct checkpoint_view *v, bool all) {
    TRY(give_arena(v, v->values, shot->values));
    TRY(give_floats(v->device, v->buffers, shot->buffers, shot->model->buffer_floats));
    if (shot->average && all) TRY(give_arena(v, v->average, shot->average));
    if (shot->outer && all) TRY(give_arena(v, v->outer, shot->outer));
    for (int s = 0; s < shot->nslots && all; s++) TRY(give_slot(shot, v, s));
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
