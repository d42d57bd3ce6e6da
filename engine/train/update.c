/* One rank's part of an optimizer step, on its slices of the arena: the gradient's norm, the norms
 * of tensors, the update. Between these the mode exchanges what each rank has measured of its part
 * slices; what was measured lies in arrays that are the same on every rank, by block and by piece of
 * the whole arena, and zero where others measure. A piece is what a block and a tensor share.
 *
 * All of it is asked of the device, where the arenas lie: its spans are listed when the rank opens, and given in one
 * call. What the host needs for a step (the sums in the header, the norm's partial sums) comes in one read. */
#include "engine/device/runtime.h"
#include "engine/model/state.h"
#include "engine/optim/ema.h"
#include "engine/optim/schedule.h"
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"
#include "engine/train/stop.h"

#include <math.h>
#include <string.h>

struct update {
    struct pool *pool;        /* of these lists, and of what is the host's alone */
    struct slice all;         /* of a rank that has no slices of the mode's, but the whole arena */
    int64_t *first_piece;     /* of each tensor, and after the last, among all pieces of the arena */
    struct rule_span *spans;  /* what each slice shares with each tensor, slice after slice */
    struct rule_span *means;  /* the same, slot 0 being the average of the weights; NULL: there is none */
    int *tensor;              /* of each span */
    int *first;               /* of each slice, and after the last */
    struct rule_span *pieces; /* of all slices, where the optimizer measures */
    int64_t *place;           /* of each piece, among all pieces of the arena */
    int npieces;
    double factor;                        /* the schedule's, of this step */
    struct optim_step step[OPTIM_GROUPS]; /* of each group */
    struct rule rule, mean;
    float *scratch;             /* for matrices that the optimizer works on as a whole */
    double *partials, *squares; /* the device's: by block of the arena, by piece */
    float *header;              /* the host's, which the device's is copied to */
    double *squares_back;       /* likewise */
    bool fetched;               /* t->measured.partials are this step's already */
};

static const struct device_runtime *update_runtime(const struct trainer *t) {
    return device_runtime(t->device);
}

/* ---- opening ---- */

static int64_t all_blocks(const struct trainer *t) {
    return (t->model->arena_floats + NORM_BLOCK - 1) / NORM_BLOCK;
}

/* Blocks whose partial norms the step needs: all with clipping, or fp16, which looks for what is not finite, or where the
 * noise scale is measured; else 0. */
int64_t trainer_norm_blocks(const struct trainer *t) {
    bool asked = t->config->optimizer.clip > 0 || scaling_on(t) || t->noise.due;
    return asked ? all_blocks(t) : 0;
}

/* The pieces of tensor p are those from first_piece[p] to first_piece[p + 1]. */
static int64_t pieces_of(const struct tensor_info *p) {
    return p->count ? (p->offset + p->count - 1) / NORM_BLOCK - p->offset / NORM_BLOCK + 1 : 0;
}

static int kind_of(const struct trainer *t, int tensor) {
    return optim_kind(t->tensors.group[tensor], t->model->params[tensor].shape.ndim > 1);
}

/* How much of slot i there is between two places of the arena. */
static int64_t state_floats(const struct trainer *t, int slot, int64_t from, int64_t to) {
    return state_place(t->model, t->optim, slot, to) - state_place(t->model, t->optim, slot, from);
}

/* What [begin, end) of a slice and a tensor share; false: nothing, or the tensor stays as it is. */
static bool find_span(const struct trainer *t, const struct slice *slice, int tensor, int64_t begin, int64_t end,
                      struct rule_span *s) {
    const struct tensor_info *p = &t->model->params[tensor];
    if (begin < p->offset) begin = p->offset;
    if (end > p->offset + p->count) end = p->offset + p->count;
    if (begin < slice->begin) begin = slice->begin;
    if (end > slice->end) end = slice->end;
    if (begin >= end || (t->tensors.frozen && t->tensors.frozen[tensor])) return false;
    *s = (struct rule_span){
        .w = t->arena.values + begin, .g = t->arena.grads[0] + begin, .n = end - begin, .kind = kind_of(t, tensor)};
    for (int i = 0; i < t->arena.nslots; i++)
        s->slot[i] = t->arena.slots[i] + slice->at + state_floats(t, i, slice->begin, begin);
    return true;
}

static void list_spans(const struct trainer *t, struct update *u) {
    int count = 0;
    for (int i = 0; i < t->standing.nslices; i++) {
        for (int p = 0; p < t->model->nparams; p++)
            if (find_span(t, &t->standing.slices[i], p, 0, INT64_MAX, &u->spans[count])) u->tensor[count++] = p;
        u->first[i + 1] = count;
    }
}

/* Whether it is a matrix between the first embeddings and the last layer that has one, which may be an embedding's. */
static bool is_hidden_matrix(const struct model *m, int tensor) {
    static const char *const outer[] = {"embedding", "position", "class_token"};
    const struct tensor_info *p = &m->params[tensor];
    const char *layer = m->nodes[p->node].layer->section.name;
    int last = m->nnodes - 1;
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++)
        if (!strcmp(layer, outer[i])) return false;
    while (last > 0 && (m->nodes[last].param[0] < 0 || m->params[m->nodes[last].param[0]].shape.ndim < 2)) last--;
    return p->shape.ndim > 1 && p->node != last;
}

/* What the optimizer works on as a whole has to be so in one slice of this rank. */
static enum error find_matrices(struct trainer *t, struct update *u) {
    int64_t most = 0;
    for (int i = 0; t->optim->whole && i < u->first[t->standing.nslices]; i++) {
        const struct tensor_info *p = &t->model->params[u->tensor[i]];
        struct rule_span *s = &u->spans[i];
        bool hidden = is_hidden_matrix(t->model, u->tensor[i]);
        if (!t->optim->takes(p->shape.dim, p->shape.ndim, hidden, &s->rows, &s->columns)) {
            s->rows = 0;
            continue;
        }
        if (s->n != p->count)
            return FAIL(ERR_CONFIG,
                        "optimizer %s works on whole tensors, but this rank has only a part of '%s'\n"
                        "use another way to share the update",
                        t->optim->section.name, p->name);
        const void *config = t->config->optimizer.groups.of[t->tensors.group[u->tensor[i]]].config;
        int64_t room = t->optim->scratch ? t->optim->scratch(s->rows, s->columns) : 0;
        if (t->optim->size) s->rate = t->optim->size(config, s->rows, s->columns);
        most = room > most ? room : most;
    }
    if (most && !(u->scratch = pool_alloc(u->pool, (size_t)most * sizeof *u->scratch))) return ERR_MEMORY;
    return ERR_NONE;
}

static void list_means(const struct trainer *t, struct update *u) {
    for (int i = 0; i < u->first[t->standing.nslices]; i++) {
        const struct rule_span *s = &u->spans[i];
        u->means[i] =
            (struct rule_span){.w = s->w, .g = s->g, .slot = {t->arena.average + (s->w - t->arena.values)}, .n = s->n};
    }
}

static void list_pieces(const struct trainer *t, struct update *u) {
    for (int i = 0; i < t->standing.nslices; i++)
        for (int p = 0; p < t->model->nparams; p++) {
            int64_t block = t->model->params[p].offset / NORM_BLOCK;
            for (int64_t k = u->first_piece[p]; k < u->first_piece[p + 1]; k++, block++)
                if (find_span(t, &t->standing.slices[i], p, block * NORM_BLOCK, (block + 1) * NORM_BLOCK,
                              &u->pieces[u->npieces]))
                    u->place[u->npieces++] = k;
        }
}

/* A slice ends within at most one tensor, and within no block but the arena's last. */
static enum error open_lists(struct trainer *t, struct update *u) {
    size_t params = (size_t)t->model->nparams, spans = params + (size_t)t->standing.nslices,
           pieces = t->optim->nnorms ? (size_t)u->first_piece[params] : 0;
    t->measured.nsquares = u->first_piece[params] * t->optim->nnorms;
    t->measured.squares = pool_alloc(u->pool, (size_t)t->measured.nsquares * sizeof *t->measured.squares);
    u->spans = pool_alloc(u->pool, spans * sizeof *u->spans);
    u->tensor = pool_alloc(u->pool, spans * sizeof *u->tensor);
    u->first = pool_alloc(u->pool, (size_t)(t->standing.nslices + 1) * sizeof *u->first);
    u->pieces = pool_alloc(u->pool, pieces * sizeof *u->pieces);
    u->place = pool_alloc(u->pool, pieces * sizeof *u->place);
    if (!t->measured.squares || !u->spans || !u->tensor || !u->first || !u->pieces || !u->place) return ERR_MEMORY;
    list_spans(t, u);
    if (pieces) list_pieces(t, u);
    TRY(find_matrices(t, u));
    if (!t->arena.average) return ERR_NONE;
    if (!(u->means = pool_alloc(u->pool, spans * sizeof *u->means))) return ERR_MEMORY;
    list_means(t, u);
    return ERR_NONE;
}

/* What is measured, on the device and where the host has it copied to. */
static enum error open_measures(struct trainer *t, struct update *u) {
    const struct allocator host = device_host_allocator(t->device);
    size_t partials = (size_t)all_blocks(t) * sizeof(double),
           squares = (size_t)u->npieces * RULE_NORMS * sizeof(double);
    void *memory;
    TRY(host.alloc(host.ctx, HEADER_FLOATS * sizeof(float) + partials + squares, &memory));
    u->header = memory;
    t->measured.partials = (double *)(void *)(u->header + HEADER_FLOATS);
    u->squares_back = t->measured.partials + all_blocks(t);
    TRY(device_alloc(t->device, partials + squares, &memory));
    u->partials = memory;
    u->squares = u->partials + all_blocks(t);
    return ERR_NONE;
}

static enum error open_state(struct trainer *t) {
    t->arena.state_bytes = 0;
    for (int i = 0; t->standing.nslices && i < t->arena.nslots; i++) {
        void *memory;
        int64_t bytes = 0;
        for (int k = 0; k < t->standing.nslices; k++)
            bytes +=
                state_floats(t, i, t->standing.slices[k].begin, t->standing.slices[k].end) * (int64_t)sizeof(float);
        TRY(device_alloc(t->device, (size_t)bytes, &memory));
        t->arena.slots[i] = memory;
        t->arena.state_bytes += bytes;
    }
    return ERR_NONE;
}

/* A rank that the mode has given no slices has the whole arena, or nothing. */
static void take_whole(struct trainer *t, struct slice *all) {
    if (t->standing.nslices || !t->standing.owns_state) return;
    *all = (struct slice){.end = t->model->arena_floats};
    t->standing.slices = all;
    t->standing.nslices = 1;
}

bool update_is_whole(const struct trainer *t) {
    return t->update && t->standing.slices == &t->update->all;
}

static enum error count_pieces(const struct model *m, struct update *u) {
    TRY_MEMORY(u->first_piece = pool_alloc(u->pool, (size_t)(m->nparams + 1) * sizeof *u->first_piece));
    for (int p = 0; p < m->nparams; p++) u->first_piece[p + 1] = u->first_piece[p] + pieces_of(&m->params[p]);
    return ERR_NONE;
}

enum error update_open(struct trainer *t) {
    struct pool *pool;
    TRY(pool_create(&pool));
    if (!(t->update = pool_alloc(pool, sizeof *t->update))) {
        pool_free(pool);
        return ERR_MEMORY;
    }
    t->update->pool = pool;
    take_whole(t, &t->update->all);
    TRY(open_state(t));
    TRY(count_pieces(t->model, t->update));
    TRY(open_lists(t, t->update));
    return open_measures(t, t->update);
}

void update_close(struct trainer *t) {
    const struct allocator host = device_host_allocator(t->device);
    for (int i = 0; i < OPTIM_SLOTS; i++) device_free(t->device, t->arena.slots[i]);
    if (!t->update) return;
    host.free(host.ctx, t->update->header);
    device_free(t->device, t->update->partials);
    pool_free(t->update->pool);
}

/* ---- sums and norm ---- */

static enum error ask_sums(struct trainer *t) {
    size_t bytes = HEADER_FLOATS * sizeof(float);
    TRY(update_runtime(t)->read(t->device, LANE_COMPUTE, t->update->header, t->arena.grads[0], bytes));
    return device_zero(t->device, t->arena.grads[0], bytes);
}

/* A slice that ends within a block leaves it to the one that begins there, on whose rank all of the block then is. */
static int64_t block_begin(const struct trainer *t, int64_t at) {
    return at == t->model->arena_floats ? at : at / NORM_BLOCK * NORM_BLOCK;
}

static enum error ask_partials(struct trainer *t) {
    size_t bytes = (size_t)trainer_norm_blocks(t) * sizeof(double);
    double *partials = t->update->partials;
    if (!bytes) return ERR_NONE;
    for (int i = 0; i < t->standing.nslices; i++)
        TRY(update_runtime(t)->partials(t->device, t->arena.grads[0], block_begin(t, t->standing.slices[i].begin),
                                        block_begin(t, t->standing.slices[i].end), partials));
    return update_runtime(t)->read(t->device, LANE_COMPUTE, t->measured.partials, partials, bytes);
}

/* A rank that computes has told in its gradient's header whether it wants the step to be the last. */
static void keep_sums(struct trainer *t) {
    t->sums = header_sums(t->update->header);
    if (t->standing.worker < 0 && stop_signal()) t->sums.stop = true;
}

/* Takes the losses' sums together with the partial sums, which trainer_norm then finds: one wait for both. */
enum error trainer_take_sums(struct trainer *t) {
    TRY(ask_sums(t));
    TRY(ask_partials(t));
    TRY(device_wait(t->device));
    keep_sums(t);
    t->update->fetched = true;
    return ERR_NONE;
}

enum error trainer_norm(struct trainer *t) {
    bool fetched = t->update->fetched;
    t->update->fetched = false;
    if (fetched || trainer_norm_blocks(t) == 0) return ERR_NONE;
    TRY(ask_partials(t));
    return device_wait(t->device);
}

/* ---- the norms of tensors ---- */

/* The learning rate, and what the gradient is multiplied by. */
static void find_factors(struct trainer *t) {
    double factor = t->update->factor = schedule_factor(&t->config->schedule, t->at.step, t->steps, t->per_epoch);
    int64_t blocks = trainer_norm_blocks(t);
    t->rate.now = t->rate.base * factor;
    t->rate.scale = 1;
    if (scaling_on(t)) scaling_undo(t, t->measured.partials, blocks);
    if (t->noise.due && !t->sums.skipped) (void)clip_scale(t->measured.partials, blocks, 1, &t->rate.norm);
    if (t->sums.skipped || blocks == 0)
        t->rate.norm = 0;
    else if (t->config->optimizer.clip > 0)
        t->rate.scale *= clip_scale(t->measured.partials, blocks, t->config->optimizer.clip, &t->rate.norm);
}

static void find_rule(struct trainer *t) {
    struct update *u = t->update;
    const struct optim_groups *groups = &t->config->optimizer.groups;
    optim_rule(t->optim, groups->of[0].config, &u->step[0], &u->rule);
    u->rule.scratch = u->scratch;
    for (int k = 1; k < groups->count; k++) optim_rule_group(t->optim, groups->of[k].config, &u->step[k], k, &u->rule);
    if (u->means) ema_rule(t->config->ema.decay, u->step[0].t, &u->mean);
}

static void find_steps(struct trainer *t) {
    struct update *u = t->update;
    const struct optim_groups *groups = &t->config->optimizer.groups;
    for (int k = 0; k < groups->count; k++) {
        double rate = optim_lr(groups->of[k].config) * t->rate.growth * u->factor;
        u->step[k] = (struct optim_step){
            .lr = (float)rate, .scale = t->rate.scale, .t = t->at.step + 1 - t->at.skipped + t->rate.updates};
    }
}

enum error trainer_measure(struct trainer *t) {
    struct update *u = t->update;
    int norms = t->optim->nnorms, count = u->npieces;
    find_factors(t);
    find_steps(t);
    find_rule(t);
    if (!norms) return ERR_NONE;
    memset(t->measured.squares, 0, (size_t)t->measured.nsquares * sizeof *t->measured.squares);
    if (t->sums.skipped || count == 0) return ERR_NONE;
    TRY(update_runtime(t)->measure(t->device, &u->rule, u->pieces, count, u->squares));
    TRY(device_read(t->device, u->squares_back, u->squares, (size_t)count * RULE_NORMS * sizeof(double)));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < norms; k++)
            t->measured.squares[u->place[i] * norms + k] = u->squares_back[i * RULE_NORMS + k];
    return ERR_NONE;
}

/* The rate of a tensor by its norms, each of which is added up from the first of its pieces to the last. */
static float rate_of(const struct trainer *t, int tensor) {
    const struct optim_ops *o = t->optim;
    int group = t->tensors.group[tensor];
    double norm[OPTIM_NORMS];
    for (int k = 0; k < o->nnorms; k++) {
        double sum = 0;
        for (int64_t i = t->update->first_piece[tensor]; i < t->update->first_piece[tensor + 1]; i++)
            sum += t->measured.squares[i * o->nnorms + k];
        norm[k] = sqrt(sum);
    }
    return o->rate(t->config->optimizer.groups.of[group].config, &t->update->step[group],
                   t->model->params[tensor].shape.ndim > 1, norm);
}

/* ---- the update ---- */

static enum error update_spans(struct trainer *t, int from, int to) {
    struct update *u = t->update;
    if (t->sums.skipped) return ERR_NONE;
    for (int i = from; i < to && t->optim->nnorms; i++) u->spans[i].rate = rate_of(t, u->tensor[i]);
    TRY(update_runtime(t)->update(t->device, &u->rule, u->spans + from, to - from));
    return u->means ? update_runtime(t)->update(t->device, &u->mean, u->means + from, to - from) : ERR_NONE;
}

enum error trainer_update(struct trainer *t, int slice) {
    return update_spans(t, t->update->first[slice], t->update->first[slice + 1]);
}

/* Where the host does not decide on the step, the update is started before the sums reach the host, so there is one
 * wait a step, at its end. */
static bool update_asks_first(const struct trainer *t) {
    return trainer_norm_blocks(t) == 0 && !t->optim->nnorms;
}

enum error trainer_update_begin(struct trainer *t) {
    if (!update_asks_first(t)) {
        TRY(trainer_take_sums(t));
        TRY(trainer_norm(t));
        return trainer_measure(t);
    }
    t->sums.skipped = false;
    TRY(ask_sums(t));
    return trainer_measure(t);
}

enum error trainer_update_until(struct trainer *t, int64_t end, int *at) {
    const struct update *u = t->update;
    int from = *at;
    while (*at < u->first[t->standing.nslices] && u->spans[*at].w < t->arena.values + end) ++*at;
    return update_spans(t, from, *at);
}

enum error trainer_update_end(struct trainer *t) {
    if (!update_asks_first(t)) return ERR_NONE;
    TRY(device_wait(t->device));
    keep_sums(t);
    return ERR_NONE;
}

enum error trainer_update_all(struct trainer *t) {
    int at = 0;
    TRY(trainer_update_begin(t));
    TRY(trainer_update_until(t, t->model->arena_floats, &at));
    return trainer_update_end(t);
}
