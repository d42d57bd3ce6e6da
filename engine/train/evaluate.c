/* Evaluation, of the averaged weights if the run has them (ema). The set is cut in batches and shards by the training
 * rule, without shuffling or padding, so that every sample counts exactly once. Each shard's sums are kept apart until the end:
 * every rank then adds all of them in the same order, whoever computed them. What is counted in whole numbers
 * (samples and right answers of each class, bytes of text, the confusion matrix) is exact in any order, and so is summed
 * at once.
 *
 *   [shard 0: loss, correct, samples, top5][shard 1: ...] ... [shard 0: residuals of each target][shard 1: ...] ...
 *   [bytes][class 0: samples, right][class 1: ...] ... [confusion, classes x classes] */
#include "engine/base/real.h"
#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"
#include "engine/tell/score.h"
#include "engine/train/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VAL_LOSS, VAL_CORRECT, VAL_SAMPLES, VAL_TOP, VAL_SUMS };
enum { RESIDUALS = sizeof(struct residuals) / sizeof(double) };

struct tally { /* what one evaluation adds up; lists that the data and the loss have no use for are empty */
    struct trainer *t;
    struct dataset *set;
    int shards;
    int64_t targets, classes, cells; /* of residuals, recalls, confusion */
    double *sums, *bytes, *recalls, *confusion, *column;
    struct residuals *residuals; /* (shards, targets) */
};

static bool tally_has(const struct tally *a, int metric) {
    return !metric_table[metric].lacks(a->set, &a->t->config->loss);
}

/* What the outputs say beyond the loss. before: samples of the shard that have been seen. */
static enum error look_at_outputs(struct tally *a, const struct shard *s, int64_t before) {
    const struct dataset *d = a->set;
    const float *y;
    if (!a->targets && !a->classes && !a->cells && !a->t->answers) return ERR_NONE;
    TRY(graph_output(a->t->graph, &y));
    if (a->targets) score_residuals(y, s->target, s->n, a->targets, before, a->residuals + s->index * a->targets);
    if (a->classes) score_recalls(y, s->labels, s->n, a->classes, a->recalls);
    if (a->cells) score_confusion(y, s->labels, s->n, d->classes, a->confusion);
    if (a->t->answers) answers_take(a->t->answers, s, d->classes, y);
    return ERR_NONE;
}

static void count_bytes(struct tally *a, const struct shard *s) {
    char text[8];
    for (int64_t i = 0; i < s->n * a->set->labels; i++) *a->bytes += dataset_decode(a->set, s->labels[i], text);
}

static enum error run_shard(struct tally *a, const struct shard *s) {
    struct trainer *t = a->t;
    double *sums = a->sums + VAL_SUMS * s->index;
    if (s->n == 0) return ERR_NONE;
    struct graph_batch batch = {.n = s->n, .x = s->x, .labels = s->labels, .target = s->target, .ids = s->ids};
    batch.top = s->labels && a->set->classes > SCORE_TOP;
    struct graph_sums out = {0};
    TRY(graph_prepare(t->graph, s->n, NULL));
    graph_turn(t->graph, 0);
    TRY(graph_forward(t->graph, &batch, compute_values(t, false), t->arena.buffers, &out));
    if (t->part.to < t->model->nnodes) return ERR_NONE; /* who has the last layers counts */
    if (tally_has(a, VAL_AT_bits_per_byte)) count_bytes(a, s);
    TRY(look_at_outputs(a, s, (int64_t)sums[VAL_SAMPLES]));
    sums[VAL_LOSS] += out.loss;
    sums[VAL_CORRECT] += out.correct;
    sums[VAL_SAMPLES] += (double)s->n;
    sums[VAL_TOP] += out.top;
    return ERR_NONE;
}

/* Every sample once. The mistake is the training sampler, which repeats some so that all shards have as many. */
static struct sampler sampler_of(const struct tally *a) {
    struct sampler s = a->t->feed.sampler;
    s.size = a->set->size;
    s.shuffle = s.drop_last = false, s.upto = NULL;
    s.pad = inject_mistake(a->t->config) == MISTAKE_PADDED_EVAL;
    return s;
}

/* A device's shards of a step that have samples. */
static int64_t passes_of(const struct tally *a, const struct sampler *s, int64_t step, int worker) {
    const struct trainer *t = a->t;
    int64_t passes = 0;
    for (int at = trainer_leaf(t, worker); at < trainer_leaf(t, worker + 1); at++)
        passes += sampler_shard_size(s, step, leaves_shard(a->shards, at)) > 0;
    return passes;
}

/* The passes that another device makes of a step beyond this one's. */
static enum error run_idle(struct tally *a, int64_t step) {
    struct trainer *t = a->t;
    const struct sampler s = sampler_of(a);
    int64_t most = 0;
    for (int w = 0; w < t->standing.runs; w++) {
        int64_t passes = passes_of(a, &s, step, w);
        if (passes > most) most = passes;
    }
    return compute_idle(t, most - passes_of(a, &s, step, t->standing.run), false);
}

static enum error run_step(struct tally *a, const struct step_batch *b) {
    if (a->t->standing.source) TRY(run_idle(a, b->step));
    for (int i = 0; i < b->nshards; i++) TRY(run_shard(a, &b->shards[i]));
    return ERR_NONE;
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
    while (err == ERR_NONE && (err = loader_next(loader, &b)) == ERR_NONE && b) err = run_step(a, b);
    loader_close(loader);
    return err;
}

static double tally_total(struct tally *a, int which) {
    for (int v = 0; v < a->shards; v++) a->column[v] = a->sums[VAL_SUMS * v + which];
    return tree_sum(a->column, a->shards);
}

static enum error tally_conclude(struct tally *a, struct val_result *out) {
    const struct dataset *d = a->set;
    double samples = tally_total(a, VAL_SAMPLES);
    const struct sampler all = sampler_of(a);
    int64_t wanted = sampler_total(&all);
    if ((int64_t)samples != wanted)
        return FAIL(ERR_BUG, "evaluation counted %lld of %lld samples", (long long)samples, (long long)wanted);
    val_result_clear(out);
    out->samples = wanted;
    out->loss = tally_total(a, VAL_LOSS) / samples;
    if (d->classes) out->accuracy = tally_total(a, VAL_CORRECT) / samples;
    if (tally_has(a, VAL_AT_top5)) out->top5 = tally_total(a, VAL_TOP) / (samples * (double)d->labels);
    if (tally_has(a, VAL_AT_perplexity)) out->perplexity = real_exp(out->loss);
    if (tally_has(a, VAL_AT_bits_per_byte))
        out->bits_per_byte = out->loss / M_LN2 * (samples * (double)d->labels / *a->bytes);
    if (a->classes) out->balanced_accuracy = score_balance(a->recalls, a->classes);
    const struct residual_parts parts = {a->residuals, a->sums + VAL_SAMPLES, VAL_SUMS, a->shards, a->targets};
    if (a->targets) score_regression(&parts, &a->t->feed.norm, out);
    return ERR_NONE;
}

static enum error tally_take(struct tally *a, int n, struct val_result *out) {
    struct trainer *t = a->t;
    if (t->answers) answers_begin(t->answers);
    TRY(trainer_share_average(t));
    if (t->feed.nshards > 0) TRY(run_shards(a));
    TRY(t->job->mode->step->sum(t->mode, a->sums, n));
    if (a->cells) memcpy(t->confusion, a->confusion, (size_t)a->cells * sizeof *a->confusion);
    return tally_conclude(a, out);
}

enum error trainer_evaluate(struct trainer *t, struct dataset *set, struct val_result *out) {
    struct tally a = {.t = t, .set = set, .shards = (int)t->config->batch.shards};
    if (tally_has(&a, VAL_AT_rmse)) a.targets = set->targets;
    if (tally_has(&a, VAL_AT_balanced_accuracy)) a.classes = set->classes;
    if (t->confusion) a.cells = set->classes * set->classes;
    int64_t sums = a.shards * VAL_SUMS, residuals = a.shards * a.targets * RESIDUALS;
    int64_t n = sums + residuals + 1 + 2 * a.classes + a.cells;
    a.sums = calloc((size_t)(n + a.shards), sizeof *a.sums);
    if (!a.sums) return FAIL(ERR_MEMORY, "no memory for evaluation");
    a.residuals = (struct residuals *)(a.sums + sums);
    a.bytes = a.sums + sums + residuals;
    a.recalls = a.bytes + 1;
    a.confusion = a.recalls + 2 * a.classes;
    a.column = a.sums + n;
    enum error err = tally_take(&a, (int)n, out);
    free(a.sums);
    return err;
}
