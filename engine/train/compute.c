/* One rank's gradients of one step. The rank runs its shards one by one and adds their gradients in
 * the order of the tree over all shards: v with v + V/2, then v with v + V/4, and so on. A rank's
 * shards r, r + W, r + 2W, ... are a complete subtree, so it can add them before anything travels.
 *
 * Taking shard k (of n = V/W, a power of two) in bit-reversed order turns the tree into a binary
 * counter: partial sums lie on a stack of arenas, and after the i-th shard the top two are added
 * once for each trailing one of i. log2(n) + 1 arenas do.
 *
 *   n = 4, order 0 2 1 3:   [0]   [0+2]   [0+2, 1]   [0+2, 1, 3] -> [0+2, 1+3] -> [(0+2)+(1+3)]
 *
 * In the last backward the additions follow the gradients as they become ready, so that buckets can
 * leave before it ends. */
#include "engine/base/clock.h"
#include "engine/base/vector.h"
#include "engine/train/stop.h"
#include "engine/train/trainer.h"

#include <string.h>

double tree_sum(double *v, int n) {
    for (int half; n > 1; n = half) {
        half = (n + 1) / 2;
        for (int i = 0; i + half < n; i++) v[i] += v[i + half];
    }
    return n ? v[0] : 0;
}

/* Additions that follow one backward: arena 'top' into 'top - 1', and so on down to 'bottom';
 * before that, when the shard came in pieces, the piece's arena into 'top'. */
struct cascade {
    struct trainer *t;
    float *piece; /* NULL: the backward wrote grads[top] itself */
    int top, bottom;
    int64_t done;
    grad_ready_fn ready;
    void *user;
};

static enum error cascade_ready(void *user, int64_t upto) {
    struct cascade *c = user;
    int64_t from = c->done, n = upto - from;
    float **grads = c->t->grads;
    if (c->piece) floats_add(grads[c->top] + from, c->piece + from, n);
    for (int d = c->top; d > c->bottom; d--) floats_add(grads[d - 1] + from, grads[d] + from, n);
    c->done = upto;
    return c->ready ? c->ready(c->user, upto) : ERR_NONE;
}

static int bit_reverse(int i, int n) {
    int r = 0;
    for (int bit = 1; bit < n; bit <<= 1, i >>= 1) r = r << 1 | (i & 1);
    return r;
}

static void header_set(float *header, const struct graph_sums *sums, float scale, int64_t n) {
    header[HEADER_LOSS] = (float)(sums->loss * (double)scale);
    header[HEADER_CORRECT] = (float)sums->correct;
    header[HEADER_SAMPLES] = (float)n;
}

/* What rides with the gradients. */
static void header_begin(float *header) {
    memset(header, 0, HEADER_FLOATS * sizeof *header);
    header[HEADER_STOP] = stop_signal() != 0;
}

/* Samples [from, to) of a shard. */
static struct graph_batch batch_of(const struct trainer *t, const struct step_batch *b,
                                   const struct shard *s, int64_t from, int64_t to) {
    const struct dataset *d = t->data;
    return (struct graph_batch){
        .n = to - from,
        .x = s->x + from * shape_count(&d->shape),
        .labels = s->labels ? s->labels + from * d->labels : NULL,
        .target = s->target ? s->target + from * d->targets : NULL,
        .ids = s->ids + from,
        .seed = (uint64_t)t->config->seed,
        .scale = 1.0f / (float)b->samples,
        .training = true,
        .update_buffers = s->index == 0,
    };
}

/* Samples [from, to) of a shard, forward and backward, into c's arena. */
static enum error run_piece(struct trainer *t, const struct step_batch *b, const struct shard *s,
                            int64_t from, int64_t to, struct cascade *c) {
    float *grads = c->piece ? c->piece : t->grads[c->top];
    header_begin(grads);
    if (from == to) {
        memset(grads + HEADER_FLOATS, 0,
               (size_t)(t->model->arena_floats - HEADER_FLOATS) * sizeof(float));
        return cascade_ready(c, t->model->arena_floats);
    }
    struct graph_batch batch = batch_of(t, b, s, from, to);
    struct graph_sums sums = {0};
    int64_t mark = clock_ns();
    TRY(graph_forward(t->graph, &batch, t->values, t->buffers, &sums));
    trainer_phase(t, PHASE_FORWARD, &mark);
    header_set(grads, &sums, batch.scale, batch.n);
    TRY(graph_backward(t->graph, &batch, t->values, grads, cascade_ready, c));
    trainer_phase(t, PHASE_BACKWARD, &mark);
    return ERR_NONE;
}

/* ---- sync_batchnorm: the rank's shards in step ---- */
static enum error share_moments(void *user, double *v, int n) {
    struct trainer *t = user;
    return t->job->mode->sum(t->mode, v, n);
}

/* Gradients are shared after backward: the exchanges of moments stand in between. */
static enum error compute_together(struct trainer *t, const struct step_batch *b) {
    const struct graph_sync sync = {(int)t->config->batch.shards, share_moments, t};
    struct graph_member *m = t->members;
    int64_t mark = clock_ns();
    for (int i = 0; i < b->nshards; i++)
        m[i].batch = batch_of(t, b, &b->shards[i], 0, b->shards[i].n);
    TRY(graph_forward_together(t->graph, m, b->nshards, t->values, t->buffers, &sync));
    trainer_phase(t, PHASE_FORWARD, &mark);
    for (int i = 0; i < b->nshards; i++) {
        header_begin(m[i].grads);
        header_set(m[i].grads, &(struct graph_sums){m[i].both[0], m[i].both[1]}, m[i].batch.scale,
                   m[i].batch.n);
    }
    TRY(graph_backward_together(t->graph, m, b->nshards, t->values, &sync));
    for (int half = b->nshards / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            floats_add(m[i].grads, m[i + half].grads, t->model->arena_floats);
    trainer_phase(t, PHASE_BACKWARD, &mark);
    return ERR_NONE;
}

enum error trainer_compute(struct trainer *t, grad_ready_fn ready, void *user) {
    const struct step_batch *b;
    int64_t mark = clock_ns();
    TRY(t->next_batch(t, &b));
    trainer_phase(t, PHASE_LOAD, &mark);
    if (t->members) {
        TRY(compute_together(t, b));
        return ready ? ready(user, t->model->arena_floats) : ERR_NONE;
    }
    int pieces = (int)t->config->batch.accumulate;
    for (int i = 0; i < b->nshards; i++) {
        const struct shard *s = &b->shards[bit_reverse(i, b->nshards)];
        int top = __builtin_popcount((unsigned)i), bottom = top - __builtin_ctz(~(unsigned)i);
        for (int p = 0; p < pieces; p++) {
            bool last = p == pieces - 1, very_last = last && i == b->nshards - 1;
            struct cascade c = {.t = t, .top = top, .bottom = last ? bottom : top};
            if (p > 0) c.piece = t->grads[GRAD_ARENAS - 1];
            if (very_last) c.ready = ready, c.user = user;
            TRY(run_piece(t, b, s, s->n * p / pieces, s->n * (p + 1) / pieces, &c));
        }
    }
    return ERR_NONE;
}
