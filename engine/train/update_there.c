/* The update where the arenas are an accelerator's: the same steps as update.c, asked of the device. What the host
 * needs for a step (the sums in the header, the norm's partial sums) comes in one read; spans are listed once and
 * given in one call. */
#include "engine/device/accel.h"
#include "engine/train/internal.h"

#include <string.h>

struct there {
    double *partials, *squares; /* the device's: by block of the arena, by span */
    float *header;              /* these are the host's, and copied to */
    double *partials_back, *squares_back;
    struct rule_span *spans;
    int64_t *piece; /* of each span, when measuring */
    int64_t room;   /* for so many spans */
    bool fetched;   /* this step's sums and partials are here */
};

static size_t partial_bytes(const struct trainer *t) {
    return (size_t)trainer_norm_blocks(t) * sizeof(double);
}

static enum error open_memory(struct trainer *t, struct there *s) {
    const struct allocator host = device_host_allocator(t->device);
    size_t squares = t->optim->nnorms ? (size_t)s->room * RULE_NORMS * sizeof(double) : 0;
    void *memory;
    TRY(host.alloc(host.ctx, HEADER_FLOATS * sizeof(float) + partial_bytes(t) + squares, &memory));
    s->header = memory;
    s->partials_back = (double *)(void *)(s->header + HEADER_FLOATS);
    s->squares_back = s->partials_back + trainer_norm_blocks(t);
    TRY(memory_alloc((size_t)s->room * sizeof *s->spans, &memory));
    s->spans = memory;
    TRY(memory_alloc((size_t)s->room * sizeof *s->piece, &memory));
    s->piece = memory;
    TRY(device_alloc(t->device, partial_bytes(t) + sizeof(double), &memory));
    s->partials = memory;
    TRY(device_alloc(t->device, squares + sizeof(double), &memory));
    s->squares = memory;
    return ERR_NONE;
}

enum error there_open(struct trainer *t) {
    void *memory;
    TRY(memory_alloc(sizeof *t->there, &memory));
    t->there = memory;
    t->there->room = t->model->nparams + 1;
    if (t->optim->nnorms) t->there->room += t->first_piece[t->model->nparams];
    return open_memory(t, t->there);
}

void there_close(struct trainer *t) {
    struct there *s = t->there;
    if (!s) return;
    const struct allocator host = device_host_allocator(t->device);
    host.free(host.ctx, s->header);
    memory_free(s->spans);
    memory_free(s->piece);
    device_free(t->device, s->partials);
    device_free(t->device, s->squares);
    memory_free(s);
    t->there = NULL;
}

/* ---- sums and partials ---- */

enum error there_ask(struct trainer *t) {
    const struct accel_ops *a = device_accel(t->device);
    size_t bytes = HEADER_FLOATS * sizeof(float);
    TRY(a->read(t->device, LANE_COMPUTE, t->there->header, t->grads[0], bytes));
    return device_zero(t->device, t->grads[0], bytes);
}

void there_take(struct trainer *t) {
    const float *h = t->there->header;
    t->sums = (struct step_sums){h[HEADER_LOSS], h[HEADER_CORRECT], h[HEADER_SAMPLES],
                                 h[HEADER_STOP] > 0, false};
}

enum error there_fetch(struct trainer *t) {
    const struct accel_ops *a = device_accel(t->device);
    struct there *s = t->there;
    if (s->fetched) return ERR_NONE;
    TRY(there_ask(t));
    for (int i = 0; i < t->standing.nslices && partial_bytes(t); i++)
        TRY(a->partials(t->device, t->grads[0], t->standing.slices[i].begin,
                        t->standing.slices[i].end, s->partials));
    if (partial_bytes(t))
        TRY(a->read(t->device, LANE_COMPUTE, s->partials_back, s->partials, partial_bytes(t)));
    TRY(device_wait(t->device));
    memcpy(t->partials, s->partials_back, partial_bytes(t));
    s->fetched = true;
    return ERR_NONE;
}

void there_renew(struct trainer *t) {
    t->there->fetched = false;
}

/* ---- spans ---- */

static struct rule_span span_of(const struct optim_span *s) {
    struct rule_span out = {.w = s->w, .g = s->g, .n = s->n, .matrix = s->matrix};
    for (int i = 0; i < RULE_SLOTS; i++) out.slot[i] = s->slot[i];
    for (int i = 0; i < RULE_NORMS; i++) out.norm[i] = s->norm[i];
    return out;
}

static struct rule rule_of(const struct trainer *t, const struct optim_span *any) {
    struct rule r = {0};
    t->optim->rule(t->config->optimizer.kind.config, any, &r);
    return r;
}

/* All pieces of all slices, in one call; then each square to its piece's place. */
enum error there_measure(struct trainer *t) {
    struct there *s = t->there;
    struct optim_span span = {0};
    struct rule r;
    int count = 0;
    for (int i = 0; i < t->standing.nslices; i++)
        for (int p = 0; p < t->model->nparams; p++)
            for (int64_t k = t->first_piece[p]; k < t->first_piece[p + 1]; k++)
                if (update_piece(t, &t->standing.slices[i], p, k, &span)) {
                    s->piece[count] = k;
                    s->spans[count++] = span_of(&span);
                    r = rule_of(t, &span);
                }
    if (count == 0) return ERR_NONE;
    TRY(device_accel(t->device)->measure(t->device, &r, s->spans, count, s->squares));
    TRY(device_read(t->device, s->squares_back, s->squares,
                    (size_t)count * RULE_NORMS * sizeof(double)));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < t->optim->nnorms; k++)
            t->squares[s->piece[i] * t->optim->nnorms + k] = s->squares_back[i * RULE_NORMS + k];
    return ERR_NONE;
}

enum error there_update(struct trainer *t, int slice) {
    const struct slice *of = &t->standing.slices[slice];
    struct there *s = t->there;
    struct optim_span span = {0};
    struct rule r;
    int count = 0;
    for (int p = 0; p < t->model->nparams; p++)
        if (update_span(t, of, p, of->begin, of->end, &span)) {
            if (count == 0) r = rule_of(t, &span);
            update_norms(t, p, span.norm);
            s->spans[count++] = span_of(&span);
        }
    return count ? device_accel(t->device)->update(t->device, &r, s->spans, count) : ERR_NONE;
}
