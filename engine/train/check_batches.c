/* What is known to go wrong before anything is trained: batches that batchnorm cannot normalise, accelerators that are not
 * there. */
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"
#include "engine/train/job_check.h"

/* A batchnorm of which a sample has one value a channel; NULL: there is none. */
static const struct model_node *norm_of_one(const struct model *m) {
    for (int k = 0; k < m->nnodes; k++) {
        const struct model_node *node = &m->nodes[k];
        if (op_row(node->plan.op.kind)->moments && !node->plan.view && shape_count(&node->x) == node->x.dim[0])
            return node;
    }
    return NULL;
}

/* The fewest samples that are normalised together in a step, of those that have any. */
static int64_t batch_fewest(const struct trainer *t, int64_t step) {
    int64_t batch = sampler_batch_size(&t->feed.sampler, step), least = batch;
    int64_t pieces = t->config->batch.accumulate;
    for (int v = 0; v < t->feed.sampler.shards && !t->config->sync_batchnorm; v++) {
        int64_t n = sampler_shard_size(&t->feed.sampler, step, v);
        for (int64_t p = 0; p < pieces; p++) {
            int64_t size = n * (p + 1) / pieces - n * p / pieces;
            if (size > 0 && size < least) least = size;
        }
    }
    return least;
}

enum error batches_check(const struct trainer *t) {
    const struct model_node *norm = norm_of_one(t->model);
    int64_t last = t->per_epoch - 1;
    if (!norm || t->job->task != JOB_TRAIN) return ERR_NONE;
    if (batch_fewest(t, 0) < 2)
        return FAIL(ERR_CONFIG,
                    "'%s' normalises over the samples of a shard, but in a batch of %lld one has a single sample "
                    "(batch.shards %lld, batch.accumulate %lld)\nmake the batch larger, or set sync_batchnorm: true",
                    norm->name, (long long)sampler_batch_size(&t->feed.sampler, 0), (long long)t->config->batch.shards,
                    (long long)t->config->batch.accumulate);
    if (t->steps <= last || batch_fewest(t, last) > 1) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "'%s' normalises over the samples of a shard, but the last batch of an epoch has %lld sample%s, and a "
                "shard of it a single one (%lld training samples, batch.size %lld, batch.shards %lld)\nset "
                "batch.drop_last: true, or another batch.size",
                norm->name, (long long)sampler_batch_size(&t->feed.sampler, last),
                sampler_batch_size(&t->feed.sampler, last) == 1 ? "" : "s", (long long)t->feed.data->size,
                (long long)t->config->batch.size, (long long)t->config->batch.shards);
}

enum error job_check_units(const struct job *job) {
    const struct device_choice *d = &job->settings->config.devices;
    const struct device_ops *ops = device_find(d->kind);
    int here;
    if (!ops->units) return ERR_NONE;
    TRY(ops->units(&here));
    for (int i = 0; i < d->listed; i++)
        if (d->unit[i] >= here)
            return FAIL(ERR_DEVICE,
                        "%s:%d does not exist: this machine has %d, counted from 0\nlist each one, as in %s:0,1; "
                        "engine devices shows what is there",
                        d->kind, d->unit[i], here, d->kind);
    return ERR_NONE;
}
