/* The gradient-noise scale (McCandlish et al. 2018, arXiv:1812.06162): how large a batch must be for the noise of its
 * gradient to be no larger than the gradient. The shards are the small batches, of b = B / V samples, and the step's is the
 * large one. With the means of their gradients' squares
 *
 *     small = V * sum over shards of |g_v|^2        (g_v is 1 / V of the mean gradient of shard v)
 *     large = |sum of all g_v|^2                    the norm that clipping takes
 *     signal = (V * large - small) / (V - 1)        |G|^2 of the true gradient G, without bias
 *     noise  = (small - large) * B / (V - 1)        the trace of the covariance of a sample's gradient, without bias
 *
 * and the scale is noise / signal, each as a mean of many steps. A shard's sum is its own, of one tensor after another in
 * the arena's order, and shards are added in their order: every number of devices gives the same bits. Shards are then
 * computed one by one, since none of their gradients is seen where a device computes them together. */
#include "engine/device/runtime.h"
#include "engine/optim/schedule.h"
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"

#include <math.h>

static int64_t noise_every(const struct trainer *t) {
    return span_steps(t->config->train.noise_scale, t->per_epoch);
}

enum error noise_open(struct trainer *t) {
    const struct batch_config *b = &t->config->batch;
    struct gradient_noise *n = &t->noise;
    size_t sums = (size_t)t->feed.nshards * (size_t)t->model->nparams * RULE_NORMS * sizeof(double);
    void *memory;
    if (noise_every(t) < 1) return ERR_NONE;
    if (b->shards < 2 || b->size % b->shards != 0)
        return FAIL(ERR_CONFIG,
                    "train.noise_scale compares the gradients of shards of one size, and batch %lld has %lld shard%s\n"
                    "set batch.shards to a power of two, from 2 on, that divides the batch",
                    (long long)b->size, (long long)b->shards, b->shards == 1 ? "" : "s");
    n->each = t->config->sharing.plan.staged ? t->model->nparams : 1;
    for (int i = 0; i < t->model->nparams; i++)
        if (t->standing.part && model_part_borrows(t->model, t->standing.part, i))
            return FAIL(ERR_CONFIG,
                        "train.noise_scale: stages share the weights '%s', whose gradient no stage has whole\n"
                        "use another mode than pipeline",
                        t->model->params[i].name);
    n->back = pool_alloc(t->model->pool, sums + sizeof(double));
    n->spans = pool_alloc(t->model->pool, (size_t)t->model->nparams * sizeof *n->spans);
    n->shard = pool_alloc(t->model->pool, (size_t)(b->shards * n->each) * sizeof *n->shard);
    n->seen = pool_alloc(t->model->pool, NOISE_KEPT * sizeof *n->seen);
    if (!n->back || !n->spans || !n->shard || !n->seen) return ERR_MEMORY;
    if (!sums) return ERR_NONE; /* it computes nothing */
    TRY(device_alloc(t->device, sums, &memory));
    n->squares = memory;
    return device_zero(t->device, memory, sums); /* what other stages have stays so */
}

void noise_close(struct trainer *t) {
    if (t->noise.squares) device_free(t->device, t->noise.squares);
}

void noise_begin_step(struct trainer *t) {
    int64_t every = noise_every(t);
    t->noise.due = every > 0 && (t->at.step + 1) % every == 0 &&
                   sampler_batch_size(&t->feed.sampler, t->at.step_in_epoch) == t->config->batch.size;
}

enum error noise_measure(struct trainer *t, int shard, float *grads, int64_t from, int64_t upto) {
    static const struct rule norms = {.adapts = {true}};
    const struct model *m = t->model;
    int first = 0, count = 0;
    while (first < m->nparams && m->params[first].offset < from) first++;
    for (int p = first; p < m->nparams && m->params[p].offset < upto; p++) {
        float *g = grads + m->params[p].offset;
        bool frozen = t->tensors.frozen && t->tensors.frozen[p];
        t->noise.spans[count++] = (struct rule_span){.w = g, .g = g, .n = frozen ? 0 : m->params[p].count};
    }
    double *to = t->noise.squares + ((int64_t)shard * m->nparams + first) * RULE_NORMS;
    return device_runtime(t->device)->measure(t->device, &norms, t->noise.spans, count, to);
}

/* This rank's shards, in their places among all. */
static enum error noise_collect(struct trainer *t) {
    const int64_t params = t->model->nparams, all = t->feed.nshards * params;
    struct gradient_noise *n = &t->noise;
    double back = 1 / (double)scaling_factor(t);
    for (int64_t v = 0; v < t->config->batch.shards * n->each; v++) n->shard[v] = 0;
    if (!n->squares) return ERR_NONE;
    TRY(device_read(t->device, n->back, n->squares, (size_t)(all * RULE_NORMS) * sizeof *n->back));
    TRY(device_wait(t->device));
    for (int64_t i = 0; i < all; i++)
        n->shard[t->feed.shards[i / params] * n->each + i % params % n->each] += n->back[i * RULE_NORMS] * back * back;
    return ERR_NONE;
}

enum error noise_learn(struct trainer *t) {
    const double size = (double)t->config->batch.size, shards = (double)t->config->batch.shards;
    struct gradient_noise *n = &t->noise;
    TRY(noise_collect(t));
    TRY(t->job->mode->step->sum(t->mode, n->shard, (int)(t->config->batch.shards * n->each)));
    double sum = 0, large = t->rate.norm * t->rate.norm;
    for (int64_t v = 0; v < t->config->batch.shards; v++) {
        double one = 0;
        for (int64_t p = 0; p < n->each; p++) one += n->shard[v * n->each + p];
        sum += one;
    }
    n->signal = (shards * large - shards * sum) / (shards - 1);
    n->noise = (shards * sum - large) * size / (shards - 1);
    if (t->sums.skipped) n->signal = n->noise = (double)NAN;
    if (!isfinite(n->noise)) return ERR_NONE;
    n->seen[n->count++ % NOISE_KEPT] = (struct noise_pair){n->noise, n->signal};
    return ERR_NONE;
}

struct noise_pair noise_mean(const struct gradient_noise *n, int64_t *count) {
    struct noise_pair sum = {0, 0};
    *count = n->count - n->count / 2;
    if (*count > NOISE_KEPT) *count = NOISE_KEPT;
    for (int64_t i = n->count - *count; i < n->count; i++) {
        sum.noise += n->seen[i % NOISE_KEPT].noise;
        sum.signal += n->seen[i % NOISE_KEPT].signal;
    }
    return (struct noise_pair){sum.noise / (double)*count, sum.signal / (double)*count};
}
