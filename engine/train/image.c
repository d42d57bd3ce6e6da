/* The image: one allocation that holds all that a checkpoint holds, and the list of its tensors by
 * file. The saver fills it from the arenas and writes from it while training goes on; a load fills
 * it from the files and gives it to the arenas when all of it has proved to be valid. */
#include "engine/train/checkpoint_impl.h"

#include <string.h>

enum { SLOTS_MOST = 2, STATE_TENSORS = 6 };

struct image {
    const struct model *model;
    int nslots;
    float *values, *buffers, *slots[SLOTS_MOST];
    struct checkpoint_counters counters;
    struct st_tensor *tensors[CHECKPOINT_FILES];
    int count[CHECKPOINT_FILES];
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

static void list_model(struct image *im, struct st_tensor *to) {
    const struct model *m = im->model;
    for (int i = 0; i < m->nparams; i++)
        *to++ = tensor_of(&m->params[i], m->params[i].name, im->values);
    for (int i = 0; i < m->nbuffers; i++)
        *to++ = tensor_of(&m->buffers[i], m->buffers[i].name, im->buffers);
}

static enum error list_optim(struct image *im, const char *const *slot_names,
                             struct st_tensor *to) {
    const struct model *m = im->model;
    for (int s = 0; s < im->nslots; s++)
        for (int i = 0; i < m->nparams; i++) {
            const char *name = pool_printf(im->pool, "%s/%s", slot_names[s], m->params[i].name);
            if (!name) return ERR_MEMORY;
            *to++ = tensor_of(&m->params[i], name, im->slots[s]);
        }
    return ERR_NONE;
}

static void list_state(struct image *im, struct st_tensor *to) {
    struct checkpoint_counters *c = &im->counters;
    const struct {
        const char *name, *dtype;
        void *data;
        size_t count, size;
    } state[STATE_TENSORS] = {{"step", "I64", &c->step, 1, 8},
                              {"epoch", "I64", &c->epoch, 1, 8},
                              {"step_in_epoch", "I64", &c->step_in_epoch, 1, 8},
                              {"best", "F64", &c->best, 1, 8},
                              {"seconds", "F64", &c->seconds, 1, 8},
                              {"losses_sha256", "U8", &c->losses, sizeof c->losses, 1}};
    for (int i = 0; i < STATE_TENSORS; i++)
        to[i] = (struct st_tensor){.name = state[i].name,
                                   .dtype = state[i].dtype,
                                   .ndim = 1,
                                   .dim = {(int64_t)state[i].count},
                                   .data = state[i].data,
                                   .bytes = state[i].count * state[i].size};
}

static enum error list_all(struct image *im, const char *const *slot_names) {
    const struct model *m = im->model;
    im->count[FILE_MODEL] = m->nparams + m->nbuffers;
    im->count[FILE_OPTIM] = m->nparams * im->nslots;
    im->count[FILE_STATE] = STATE_TENSORS;
    for (int f = 0; f < CHECKPOINT_FILES; f++) {
        im->tensors[f] = pool_alloc(im->pool, (size_t)im->count[f] * sizeof **im->tensors);
        if (!im->tensors[f]) return ERR_MEMORY;
    }
    list_model(im, im->tensors[FILE_MODEL]);
    list_state(im, im->tensors[FILE_STATE]);
    return list_optim(im, slot_names, im->tensors[FILE_OPTIM]);
}

/* Arenas one after another; each begins aligned, since arenas are whole cache lines long. */
static enum error allocate(struct image *im) {
    size_t arena = (size_t)align_floats(im->model->arena_floats);
    size_t floats = arena * (size_t)(1 + im->nslots) + (size_t)im->model->buffer_floats, bytes;
    TRY(memory_size(floats, sizeof(float), "a checkpoint", &bytes));
    TRY(memory_alloc(bytes, &im->memory));
    im->values = im->memory;
    for (int s = 0; s < im->nslots; s++) im->slots[s] = im->values + arena * (size_t)(s + 1);
    im->buffers = im->values + arena * (size_t)(im->nslots + 1);
    return ERR_NONE;
}

enum error image_create(const struct checkpoint_view *v, struct image **out) {
    struct pool *pool;
    TRY(pool_create(&pool));
    struct image *im = pool_alloc(pool, sizeof *im);
    enum error err = im ? ERR_NONE : ERR_MEMORY;
    if (im) {
        *im = (struct image){.model = v->model, .nslots = v->nslots, .pool = pool};
        err = allocate(im);
        if (err == ERR_NONE) err = list_all(im, v->slot_names);
    }
    if (err == ERR_NONE) {
        *out = im;
    } else {
        if (im) memory_free(im->memory);
        pool_free(pool);
    }
    return err;
}

void image_free(struct image *im) {
    if (!im) return;
    memory_free(im->memory);
    pool_free(im->pool);
}

static void copy_floats(float *to, const float *from, int64_t n) {
    if (n > 0) memcpy(to, from, (size_t)n * sizeof *to);
}

/* The header before the parameters is no part of a checkpoint. */
static void copy_arena(float *to, const float *from, const struct model *m) {
    copy_floats(to + HEADER_FLOATS, from + HEADER_FLOATS, m->arena_floats - HEADER_FLOATS);
}

void image_take(struct image *im, const struct checkpoint_view *v) {
    copy_arena(im->values, v->values, im->model);
    copy_floats(im->buffers, v->buffers, im->model->buffer_floats);
    for (int s = 0; s < im->nslots; s++) copy_arena(im->slots[s], v->slots[s], im->model);
    im->counters = *v->counters;
}

void image_give(const struct image *im, const struct checkpoint_view *v, bool all) {
    copy_arena(v->values, im->values, im->model);
    copy_floats(v->buffers, im->buffers, im->model->buffer_floats);
    if (!all) return;
    for (int s = 0; s < im->nslots; s++) copy_arena(v->slots[s], im->slots[s], im->model);
    *v->counters = im->counters;
}

const struct st_tensor *image_tensors(const struct image *im, enum checkpoint_file file,
                                      int *count) {
    *count = im->count[file];
    return im->tensors[file];
}

const struct checkpoint_counters *image_counters(const struct image *im) {
    return &im->counters;
}
