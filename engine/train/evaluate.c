/* Evaluation, of the averaged weights if the run has them (ema). The set is cut in batches and shards by the training
 * rule, without shuffling or padding, so that every sample counts exactly once. Each shard's sums are kept apart until the end:
 * every rank then adds all of them in the same tree order, whoever computed them. What is counted
 * in whole numbers (the confusion matrix) is exact in any order, and so is summed at once.
 *
 *   [shard 0: loss, correct, samples, top5][shard 1: ...] ... [confusion, classes x classes] */
#include "engine/base/real.h"
#include "engine/device/runtime.h"
#include "engine/tell/score.h"
#include "engine/train/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VAL_LOSS, VAL_CORRECT, VAL_SAMPLES, VAL_TOP, VAL_SUMS };

struct tally { /* what one evaluation adds up */
    struct trainer *t;
    struct dataset *set;
    int shards;
    double *sums, *confusion, *column;
};

/* Which class was taken for which, and which samples for what they are. */
static enum error look_at_outputs(struct tally *a, const struct shard *s) {
    const struct dataset *d = a->set;
    const float *y;
    if (!a->confusion && !a->t->answers) return ERR_NONE;
    TRY(graph_output(a->t->graph, &y));
    if (a->confusion) score_confusion(y, s->labels, s->n, d->classes, a->confusion);
    if (a->t->answers) answers_take(a->t->answers, s, d->classes, y);
    return ERR_NONE;
}

static enum error run_shard(struct tally *a, const struct shard *s) {
    struct trainer *t = a->t;
    double *sums = a->sums + VAL_SUMS * s->index;
    if (s->n == 0) return ERR_NONE;
    struct graph_batch batch = {.n = s->n, .x = s->x, .labels = s->labels, .target = s->target, .ids = s->ids};
    batch.top = s->labels && a->set->classes > SCORE_TOP;
    struct graph_sums out = {0};
    TRY(graph_prepare(t->graph, s->n, NULL));
    const float *values = t->arena.average ? t->arena.average : t->arena.values;
    TRY(graph_forward(t->graph, &batch, values, t->arena.buffers, &out));
    sums[VAL_LOSS] += out.loss;
    sums[VAL_CORRECT] += out.correct;
    sums[VAL_SAMPLES] += (double)s->n;
    sums[VAL_TOP] += out.top;
    return look_at_outputs(a, s);
}

/* Every sample once. The mistake is the training sampler, which repeats some so that all shards have as many. */
static struct sampler sampler_of(const struct tally *a) {
    struct sampler s = a->t->feed.sampler;
    s.size = a->set->size;
    s.shuffle = s.drop_last = false;
    s.pad = inject_mistake(a->t->config) == MISTAKE_PADDED_EVAL;
    return s;
}

static enum error run_shards(struct tally *a) {
    struct trainer *t = a->t;
    struct loader_params p = {.data = a->set,
                              .config = &t->config->data,
                              .norm = &t->feed.norm,
                              .sampler = sampler_of(a),
                              .shards = t->feed.shards,
                              .nshards = t->feed.nshards,
                              .workers = (int)t->config->data.workers,
                              .depth = 2};
    const struct allocator pinned = device_host_allocator(t->device);
    p.memory = &pinned;
    struct loader *loader;
    cpu_set_t bound;
    affinity_free(&bound);
    enum error err = loader_open(&p, &loader);
    affinity_restore(&bound);
    TRY(err);
    const struct step_batch *b;
    while ((err = loader_next(loader, &b)) == ERR_NONE && b)
        for (int i = 0; i < b->nshards && err == ERR_NONE; i++) err = run_shard(a, &b->shards[i]);
    loader_close(loader);
    return err;
}

static double total(struct tally *a, int which) {
    for (int v = 0; v < a->shards; v++) a->column[v] = a->sums[VAL_SUMS * v + which];
    return tree_sum(a->column, a->shards);
}

static enum error conclude(struct tally *a, struct val_result *out) {
    const struct dataset *d = a->set;
    bool chain = d->labels > 1 && loss_is_plain(&a->t->config->loss);
    double samples = total(a, VAL_SAMPLES), none = (double)NAN;
    const struct sampler all = sampler_of(a);
    int64_t wanted = sampler_total(&all);
    if ((int64_t)samples != wanted)
        return FAIL(ERR_BUG, "evaluation counted %lld of %lld samples", (long long)samples, (long long)wanted);
    *out = (struct val_result){.loss = total(a, VAL_LOSS) / samples,
                               .accuracy = d->classes ? total(a, VAL_CORRECT) / samples : none,
                               .top5 = none,
                               .perplexity = none,
                               .samples = wanted};
    if (d->classes > SCORE_TOP) out->top5 = total(a, VAL_TOP) / (samples * (double)d->labels);
    if (chain) out->perplexity = real_exp(out->loss);
    return ERR_NONE;
}

static enum error take(struct tally *a, size_t cells, struct val_result *out) {
    struct trainer *t = a->t;
    if (t->answers) answers_begin(t->answers);
    TRY(trainer_share_average(t));
    if (t->feed.nshards > 0) TRY(run_shards(a));
    TRY(t->job->mode->sum(t->mode, a->sums, a->shards * VAL_SUMS + (int)cells));
    if (cells) memcpy(t->confusion, a->confusion, cells * sizeof *a->confusion);
    return conclude(a, out);
}

enum error trainer_evaluate(struct trainer *t, struct dataset *set, struct val_result *out) {
    struct tally a = {.t = t, .set = set, .shards = (int)t->config->batch.shards};
    size_t sums = (size_t)a.shards * VAL_SUMS, cells = t->confusion ? (size_t)(set->classes * set->classes) : 0;
    a.sums = calloc(sums + cells + (size_t)a.shards, sizeof *a.sums);
    if (!a.sums) return FAIL(ERR_MEMORY, "no memory for evaluation");
    if (cells) a.confusion = a.sums + sums;
    a.column = a.sums + sums + cells;
    enum error err = take(&a, cells, out);
    free(a.sums);
    return err;
}
