#include "modes/scatter.h"
#include "engine/settings/run_config.h"

struct scatter {
    struct trainer *t;
    struct group *group;
    struct loader *loader;   /* rank 0: of all shards */
    struct step_batch batch; /* what this rank computes on */
    struct shard *shards;
    void *memory; /* other ranks: the shards' samples */
};

/* The rank that computes shard v. */
static int rank_of(const struct trainer *t, int v) {
    int leaf = leaves_shard((int)t->config->batch.shards, v), worker = 0; /* a number's bits twice backwards */
    while (trainer_leaf(t, worker + 1) <= leaf) worker++;
    return worker + (t->standing.ranks - t->standing.workers);
}

static enum error send_shard(struct scatter *s, const struct shard *shard, int rank) {
    const struct dataset *d = s->t->feed.data;
    int64_t n = shard->n;
    TRY(group_send(s->group, GROUP_INLINE, shard->x, n * shape_count(&d->shape), DTYPE_F32, rank));
    TRY(group_send(s->group, GROUP_INLINE, shard->ids, n, DTYPE_I64, rank));
    if (shard->others) {
        TRY(group_send(s->group, GROUP_INLINE, shard->others, n * d->labels, DTYPE_I32, rank));
        TRY(group_send(s->group, GROUP_INLINE, shard->shares, n, DTYPE_F32, rank));
    }
    if (d->classes) return group_send(s->group, GROUP_INLINE, shard->labels, n * d->labels, DTYPE_I32, rank);
    return group_send(s->group, GROUP_INLINE, shard->target, n * d->targets, DTYPE_F32, rank);
}

static enum error receive_shard(struct scatter *s, struct shard *shard) {
    const struct dataset *d = s->t->feed.data;
    int64_t n = shard->n;
    TRY(group_recv(s->group, GROUP_INLINE, shard->x, n * shape_count(&d->shape), DTYPE_F32, 0));
    TRY(group_recv(s->group, GROUP_INLINE, shard->ids, n, DTYPE_I64, 0));
    if (shard->others) {
        TRY(group_recv(s->group, GROUP_INLINE, shard->others, n * d->labels, DTYPE_I32, 0));
        TRY(group_recv(s->group, GROUP_INLINE, shard->shares, n, DTYPE_F32, 0));
    }
    if (d->classes) return group_recv(s->group, GROUP_INLINE, shard->labels, n * d->labels, DTYPE_I32, 0);
    return group_recv(s->group, GROUP_INLINE, shard->target, n * d->targets, DTYPE_F32, 0);
}

enum error scatter_serve(struct scatter *s) {
    const struct step_batch *whole;
    TRY(loader_next(s->loader, &whole));
    s->batch = *whole;
    s->batch.nshards = 0;
    s->batch.shards = s->shards;
    for (int i = 0; i < whole->nshards; i++) {
        int rank = rank_of(s->t, whole->shards[i].index);
        if (rank == 0)
            s->shards[s->batch.nshards++] = whole->shards[i];
        else
            TRY(send_shard(s, &whole->shards[i], rank));
    }
    return ERR_NONE;
}

static enum error receive(struct scatter *s) {
    const struct trainer *t = s->t;
    int64_t step = t->at.step_in_epoch;
    const struct sampler *sampler = &t->feed.sampler;
    s->batch = (struct step_batch){.epoch = t->at.epoch,
                                   .step = step,
                                   .samples = sampler_batch_size(sampler, step),
                                   .nshards = t->feed.nshards,
                                   .shards = s->shards};
    shards_place(&s->batch, sampler, t->feed.data);
    for (int i = 0; i < t->feed.nshards; i++) TRY(receive_shard(s, &s->shards[i]));
    return ERR_NONE;
}

enum error scatter_next(struct scatter *s, const struct step_batch **out) {
    TRY(s->t->rank == 0 ? scatter_serve(s) : receive(s));
    *out = &s->batch;
    return ERR_NONE;
}

static enum error open_server(struct scatter *s) {
    void *all;
    int count = 0;
    TRY(memory_alloc((size_t)s->t->config->batch.shards * sizeof(int), &all));
    for (int w = 0; w < s->t->standing.workers; w++) count += trainer_shards(s->t, w, (int *)all + count);
    enum error err = trainer_open_loader(s->t, all, count, &s->loader);
    memory_free(all);
    return err;
}

/* One allocation for all shards of this rank, each of the largest size that a shard has. */
static enum error open_worker(struct scatter *s) {
    const struct trainer *t = s->t;
    const struct dataset *d = t->feed.data;
    int64_t each = (t->config->batch.size + t->config->batch.shards - 1) / t->config->batch.shards;
    int64_t most = each * t->feed.nshards;
    size_t x = (size_t)align_floats(most * shape_count(&d->shape)) * sizeof(float);
    size_t ids = (size_t)align_floats(most * 2) * sizeof(float);
    size_t y = (size_t)align_floats(most * (d->classes ? d->labels : d->targets)) * sizeof(float);
    bool mixed = data_config_mixes(&t->config->data, d);
    size_t shares = mixed ? (size_t)align_floats(most) * sizeof(float) : 0;
    TRY(memory_alloc(x + ids + y + (mixed ? y + shares : 0), &s->memory));
    void *values = s->memory, *numbers = (char *)s->memory + x, *labels = (char *)s->memory + x + ids;
    void *others = (char *)labels + y, *parts = (char *)others + y;
    for (int i = 0; i < t->feed.nshards; i++)
        s->shards[i] = (struct shard){.index = t->feed.shards[i],
                                      .x = values,
                                      .ids = numbers,
                                      .labels = d->classes ? labels : NULL,
                                      .others = mixed ? others : NULL,
                                      .shares = mixed ? parts : NULL,
                                      .target = d->classes ? NULL : labels};
    return ERR_NONE;
}

enum error scatter_open(struct trainer *t, struct group *g, struct scatter **out) {
    struct scatter *s = *out = memory_new(sizeof *s);
    if (!s) return ERR_MEMORY;
    s->t = t;
    s->group = g;
    TRY_MEMORY(s->shards = memory_new((size_t)t->config->batch.shards * sizeof(struct shard)));
    return t->rank == 0 ? open_server(s) : open_worker(s);
}

void scatter_close(struct scatter *s) {
    if (!s) return;
    loader_close(s->loader);
    memory_free(s->shards);
    memory_free(s->memory);
    memory_free(s);
}
