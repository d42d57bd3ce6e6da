/* One rank's part of an optimizer step, on its slices of the arena: the gradient's norm, the norms
 * of tensors, the update. Between these the mode exchanges what each rank has measured of its own
 * slices; what was measured lies in arrays that are the same on every rank, by block and by piece of
 * the whole arena, and zero where others measure. A piece is what a block and a tensor share. */
#include "engine/device/accel.h"
#include "engine/optim/schedule.h"
#include "engine/train/internal.h"

#include <math.h>
#include <string.h>

static int64_t all_blocks(const struct trainer *t) {
    return (t->model->arena_floats + NORM_BLOCK - 1) / NORM_BLOCK;
}

/* fp16 asks for it to see whether the gradient is finite. */
int64_t trainer_norm_blocks(const struct trainer *t) {
    bool asked = t->config->optimizer.clip > 0 || scaling_on(t);
    return asked ? all_blocks(t) : 0;
}

/* The pieces of tensor p are those from first_piece[p] to first_piece[p + 1]. */
static int64_t pieces_of(const struct tensor_info *p) {
    return p->count ? (p->offset + p->count - 1) / NORM_BLOCK - p->offset / NORM_BLOCK + 1 : 0;
}

enum error update_open(struct trainer *t) {
    const struct model *m = t->model;
    void *memory;
    if (!t->standing.nslices && t->standing.owns_state) {
        t->all = (struct slice){.end = m->arena_floats};
        t->standing.slices = &t->all;
        t->standing.nslices = 1;
    }
    int64_t state = 0;
    for (int i = 0; i < t->standing.nslices; i++)
        state += t->standing.slices[i].end - t->standing.slices[i].begin;
    for (int i = 0; t->standing.nslices && i < t->optim->nslots; i++) {
        TRY(device_alloc(t->device, (size_t)state * sizeof(float), &memory));
        t->slots[i] = memory;
    }
    t->state_bytes = state * t->optim->nslots * (int64_t)sizeof(float);
    TRY(memory_alloc((size_t)all_blocks(t) * sizeof(double), &memory));
    t->partials = memory;
    TRY(memory_alloc((size_t)(m->nparams + 1) * sizeof *t->first_piece, &memory));
    t->first_piece = memory;
    for (int p = 0; p < m->nparams; p++)
        t->first_piece[p + 1] = t->first_piece[p] + pieces_of(&m->params[p]);
    t->nsquares = t->first_piece[m->nparams] * t->optim->nnorms;
    TRY(memory_alloc((size_t)t->nsquares * sizeof *t->squares, &memory));
    t->squares = memory;
    return device_accel(t->device) && t->standing.nslices ? there_open(t) : ERR_NONE;
}

void update_close(struct trainer *t) {
    there_close(t);
    for (int i = 0; i < OPTIM_SLOTS; i++) device_free(t->device, t->slots[i]);
    memory_free(t->partials);
    memory_free(t->first_piece);
    memory_free(t->squares);
}

enum error trainer_norm(struct trainer *t) {
    if (trainer_norm_blocks(t) == 0) return ERR_NONE;
    if (t->there) return there_fetch(t);
    memset(t->partials, 0, (size_t)all_blocks(t) * sizeof *t->partials);
    for (int i = 0; i < t->standing.nslices; i++)
        clip_partials(t->grads[0], t->standing.slices[i].begin, t->standing.slices[i].end,
                      t->partials);
    return ERR_NONE;
}

/* ---- spans ---- */

/* What [begin, end) of the arena and a tensor share, as a span; false: nothing. */
bool update_span(const struct trainer *t, const struct slice *slice, int tensor, int64_t begin,
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
                             .t = t->at.step + 1 - t->at.skipped + t->more_updates,
                             .matrix = p->shape.ndim > 1};
    for (int i = 0; i < t->optim->nslots; i++)
        s->slot[i] = t->slots[i] + slice->at + (begin - slice->begin);
    return true;
}

/* What a slice and a piece of a tensor share. */
bool update_piece(const struct trainer *t, const struct slice *slice, int tensor, int64_t piece,
                  struct optim_span *s) {
    int64_t block = t->model->params[tensor].offset / NORM_BLOCK + piece - t->first_piece[tensor];
    int64_t lo = block * NORM_BLOCK, hi = lo + NORM_BLOCK;
    if (lo < slice->begin) lo = slice->begin;
    if (hi > slice->end) hi = slice->end;
    return update_span(t, slice, tensor, lo, hi, s);
}

/* Measures what a slice has of a tensor, piece by piece. */
static void measure(struct trainer *t, const struct slice *slice, int tensor) {
    struct optim_span s;
    for (int64_t i = t->first_piece[tensor]; i < t->first_piece[tensor + 1]; i++)
        if (update_piece(t, slice, tensor, i, &s))
            t->optim->measure(t->config->optimizer.kind.config, &s,
                              t->squares + i * t->optim->nnorms);
}

/* The learning rate, and what the gradient is multiplied by. */
static void find_factors(struct trainer *t) {
    double factor = schedule_factor(&t->config->schedule, t->at.step, t->steps, t->per_epoch);
    int64_t blocks = trainer_norm_blocks(t);
    t->lr = t->base_lr * factor;
    t->scale = 1;
    if (scaling_on(t)) scaling_undo(t, t->partials, blocks);
    if (t->sums.skipped)
        t->norm_seen = 0;
    else if (t->config->optimizer.clip > 0)
        t->scale *= clip_scale(t->partials, blocks, t->config->optimizer.clip, &t->norm_seen);
}

enum error trainer_measure(struct trainer *t) {
    find_factors(t);
    if (t->there) there_renew(t);
    if (!t->optim->nnorms) return ERR_NONE;
    memset(t->squares, 0, (size_t)t->nsquares * sizeof *t->squares);
    if (t->sums.skipped) return ERR_NONE;
    if (t->there) return there_measure(t);
    for (int i = 0; i < t->standing.nslices; i++)
        for (int p = 0; p < t->model->nparams; p++) measure(t, &t->standing.slices[i], p);
    return ERR_NONE;
}

/* The norms of a whole tensor, its pieces added from the first to the last. */
void update_norms(const struct trainer *t, int tensor, double *norm) {
    int norms = t->optim->nnorms;
    for (int k = 0; k < norms; k++) {
        double sum = 0;
        for (int64_t i = t->first_piece[tensor]; i < t->first_piece[tensor + 1]; i++)
            sum += t->squares[i * norms + k];
        norm[k] = sqrt(sum);
    }
}

enum error trainer_update(struct trainer *t, int slice) {
    const struct slice *of = &t->standing.slices[slice];
    struct optim_span s;
    if (t->sums.skipped) return ERR_NONE;
    if (t->there) return there_update(t, slice);
    for (int p = 0; p < t->model->nparams; p++)
        if (update_span(t, of, p, of->begin, of->end, &s)) {
            update_norms(t, p, s.norm);
            t->optim->step(t->config->optimizer.kind.config, &s);
        }
    return ERR_NONE;
}

/* Where the host has nothing to say about the step, an accelerator makes it before the host hears of the sums. */
static enum error update_first(struct trainer *t) {
    t->sums.skipped = false;
    TRY(there_ask(t));
    TRY(trainer_measure(t));
    for (int i = 0; i < t->standing.nslices; i++) TRY(trainer_update(t, i));
    TRY(device_wait(t->device));
    there_take(t);
    return ERR_NONE;
}

enum error trainer_update_all(struct trainer *t) {
    if (t->there && trainer_norm_blocks(t) == 0 && !t->optim->nnorms) return update_first(t);
    TRY(trainer_take_sums(t));
    TRY(trainer_norm(t));
    TRY(trainer_measure(t));
    for (int i = 0; i < t->standing.nslices; i++) TRY(trainer_update(t, i));
    return ERR_NONE;
}
