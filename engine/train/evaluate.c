/* Evaluation. The validation set is cut in batches and shards by the training rule, without
 * shuffling or padding, so that every sample counts exactly once. Each shard's sums are kept apart
 * until the end: every rank then adds all of them in the same tree order, whoever computed them. */
#include "engine/train/internal.h"

#include <stdlib.h>

enum { VAL_SUMS = 3 }; /* loss, correct, samples */

static enum error run_shard(struct trainer *t, const struct shard *s, double sums[VAL_SUMS]) {
    if (s->n == 0) return ERR_NONE;
    struct graph_batch batch = {
        .n = s->n, .x = s->x, .labels = s->labels, .target = s->target, .ids = s->ids};
    struct graph_sums out = {0};
    TRY(graph_prepare(t->graph, s->n));
    TRY(graph_forward(t->graph, &batch, t->values, t->buffers, &out));
    sums[0] += out.loss;
    sums[1] += out.correct;
    sums[2] += (double)s->n;
    return ERR_NONE;
}

static enum error run_shards(struct trainer *t, double *sums) {
    struct sampler sampler = t->sampler;
    sampler.size = t->val->size;
    sampler.shuffle = sampler.pad = sampler.drop_last = false;
    struct loader_params p = {.data = t->val,
                              .config = &t->config->data,
                              .norm = &t->norm,
                              .sampler = sampler,
                              .shards = t->shards,
                              .nshards = t->nshards,
                              .workers = 1,
                              .depth = 2};
    struct loader *loader;
    cpu_set_t bound;
    affinity_free(&bound);
    enum error err = loader_open(&p, &loader);
    affinity_restore(&bound);
    TRY(err);
    const struct step_batch *b;
    while ((err = loader_next(loader, &b)) == ERR_NONE && b)
        for (int i = 0; i < b->nshards && err == ERR_NONE; i++)
            err = run_shard(t, &b->shards[i], sums + VAL_SUMS * b->shards[i].index);
    loader_close(loader);
    return err;
}

enum error trainer_evaluate(struct trainer *t, struct val_result *out) {
    int shards = (int)t->config->batch.shards;
    double *sums = calloc((size_t)shards * VAL_SUMS * 2, sizeof *sums);
    if (!sums) return FAIL(ERR_MEMORY, "no memory for evaluation");
    enum error err = t->nshards > 0 ? run_shards(t, sums) : ERR_NONE;
    if (err == ERR_NONE) err = t->job->mode->sum(t->mode, sums, shards * VAL_SUMS);
    double total[VAL_SUMS], *column = sums + shards * VAL_SUMS;
    for (int k = 0; k < VAL_SUMS; k++) {
        for (int v = 0; v < shards; v++) column[v] = sums[VAL_SUMS * v + k];
        total[k] = tree_sum(column, shards);
    }
    free(sums);
    TRY(err);
    if ((int64_t)total[2] != t->val->size)
        return FAIL(ERR_BUG, "evaluation counted %lld of %lld samples", (long long)total[2],
                    (long long)t->val->size);
    *out = (struct val_result){total[0] / total[2], total[1] / total[2], t->val->size};
    return ERR_NONE;
}
