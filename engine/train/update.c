/* One rank's part of an optimizer step, on its slices of the arena: the gradient's norm, the norms
 * of tensors, the update. Between these the mode exchanges what each rank has measured of its own
 * slices; what was measured lies in arrays that are the same on every rank, by block and by piece of
 * the whole arena, and zero where others measure. A piece is what a block and a tensor share. */
#include "engine/optim/schedule.h"
#include "engine/train/internal.h"

#include <math.h>
#include <string.h>

int64_t trainer_norm_blocks(const struct trainer *t) {
    return (t->model->arena_floats + NORM_BLOCK - 1) / NORM_BLOCK;
}

/* The pieces of tensor p are those from first_piece[p] to first_piece[p + 1]. */
static int64_t pieces_of(const struct tensor_info *p) {
    return p->count ? (p->offset + p->count - 1) / NORM_BLOCK - p->offset / NORM_BLOCK + 1 : 0;
}

enum error update_open(struct trainer *t) {
    const struct model *m = t->model;
    void *memory;
    if (!t->nslices && t->owns_state) {
        t->all = (struct slice){.end = m->arena_floats};
        t->slices = &t->all;
        t->nslices = 1;
    }
    int64_t state = 0;
    for (int i = 0; i < t->nslices; i++) state += t->slices[i].end - t->slices[i].begin;
    for (int i = 0; t->nslices && i < t->optim->nslots; i++) {
        TRY(memory_alloc((size_t)state * sizeof(float), &memory));
        t->slots[i] = memory;
    }
    t->state_bytes = state * t->optim->nslots * (int64_t)sizeof(float);
    TRY(memory_alloc((size_t)trainer_norm_blocks(t) * sizeof(double), &memory));
    t->partials = memory;
    TRY(memory_alloc((size_t)(m->nparams + 1) * sizeof *t->first_piece, &memory));
    t->first_piece = memory;
    for (int p = 0; p < m->nparams; p++)
        t->first_piece[p + 1] = t->first_piece[p] + pieces_of(&m->params[p]);
    t->nsquares = t->first_piece[m->nparams] * t->optim->nnorms;
    TRY(memory_alloc((size_t)t->nsquares * sizeof *t->squares, &memory));
    t->squares = memory;
    return ERR_NONE;
}

void update_close(struct trainer *t) {
    for (int i = 0; i < OPTIM_SLOTS; i++) memory_free(t->slots[i]);
    memory_free(t->partials);
    memory_free(t->first_piece);
    memory_free(t->squares);
}

void trainer_norm(struct trainer *t) {
    if (t->config->optimizer.clip <= 0) return;
    memset(t->partials, 0, (size_t)trainer_norm_blocks(t) * sizeof *t->partials);
    for (int i = 0; i < t->nslices; i++)
        clip_partials(t->grads[0], t->slices[i].begin, t->slices[i].end, t->partials);
}

/* ---- spans ---- */

/* What [begin, end) of the arena and a tensor share, as a span; false: nothing. */
static bool find_span(const struct trainer *t, const struct slice *slice, int tensor, int64_t begin,
                      int64_t end, struct optim_span *s) {
    const struct tensor_info *p = &t->model->params[tensor];
    if (begin < p->offset) begin = p->offset;
    if (end > p->offset + p->count) end = p->offset + p->count;
    if (begin >= end) return false;
    *s = (struct optim_span){.w = t->values + begin,
                             .g = t->grads[0] + begin,
                             .n = end - begin,
                             .lr = (float)t->lr,
                             .scale = t->scale,
                             .t = t->at.step + 1,
                             .matrix = p->shape.ndim > 1};
    for (int i = 0; i < t->optim->nslots; i++)
        s->slot[i] = t->slots[i] + slice->at + (begin - slice->begin);
    return true;
}

/* Measures what a slice has of a tensor, piece by piece. */
static void measure(struct trainer *t, const struct slice *slice, int tensor) {
    struct optim_span s;
    const void *config = t->config->optimizer.kind.config;
    int norms = t->optim->nnorms;
    int64_t first = t->model->params[tensor].offset / NORM_BLOCK;
    for (int64_t i = 0, of = t->first_piece[tensor]; of + i < t->first_piece[tensor + 1]; i++) {
        int64_t lo = (first + i) * NORM_BLOCK, hi = lo + NORM_BLOCK;
        if (lo < slice->begin) lo = slice->begin;
        if (hi > slice->end) hi = slice->end;
        if (find_span(t, slice, tensor, lo, hi, &s))
            t->optim->measure(config, &s, t->squares + (of + i) * norms);
    }
}

void trainer_measure(struct trainer *t) {
    double factor = schedule_factor(&t->config->schedule, t->at.step, t->steps, t->per_epoch);
    t->lr = t->base_lr * factor;
    t->scale = 1;
    if (t->config->optimizer.clip > 0)
        t->scale = clip_scale(t->partials, trainer_norm_blocks(t), t->config->optimizer.clip,
                              &t->norm_seen);
    if (!t->optim->nnorms) return;
    memset(t->squares, 0, (size_t)t->nsquares * sizeof *t->squares);
    for (int i = 0; i < t->nslices; i++)
        for (int p = 0; p < t->model->nparams; p++) measure(t, &t->slices[i], p);
}

/* The norms of a whole tensor, its pieces added from the first to the last. */
static void find_norms(const struct trainer *t, int tensor, double *norm) {
    int norms = t->optim->nnorms;
    for (int k = 0; k < norms; k++) {
        double sum = 0;
        for (int64_t i = t->first_piece[tensor]; i < t->first_piece[tensor + 1]; i++)
            sum += t->squares[i * norms + k];
        norm[k] = sqrt(sum);
    }
}

void trainer_update(struct trainer *t, int slice) {
    const struct slice *of = &t->slices[slice];
    struct optim_span s;
    for (int p = 0; p < t->model->nparams; p++)
        if (find_span(t, of, p, of->begin, of->end, &s)) {
            find_norms(t, p, s.norm);
            t->optim->step(t->config->optimizer.kind.config, &s);
        }
}

void trainer_update_all(struct trainer *t) {
    trainer_take_sums(t);
    trainer_norm(t);
    trainer_measure(t);
    for (int i = 0; i < t->nslices; i++) trainer_update(t, i);
}
