#include "modes/compress.h"

#include "engine/base/log.h"

#define COMPRESS(name) extern const struct compress_ops compress_##name;
#include "engine/train/compress.def"
#undef COMPRESS

static const struct compress_ops *const kinds[] = {
#define COMPRESS(name) &compress_##name,
#include "engine/train/compress.def"
#undef COMPRESS
};

const struct compress_ops compress_none; /* never run: compress_open gives NULL */

enum error compress_alloc(struct compress *c, size_t bytes, void **out) {
    return c->t->allocator.alloc(c->t->allocator.ctx, bytes, out);
}

static enum error open_packets(struct compress *c, const struct buckets *cut) {
    void *memory;
    int64_t n = c->t->model->arena_floats;
    if (c->ops->feedback) {
        TRY(memory_alloc((size_t)n * sizeof(float), &memory));
        c->rest = memory;
    }
    TRY(memory_alloc((size_t)(c->t->ranks + 1) * sizeof *c->parts, &memory));
    c->parts = memory;
    TRY(memory_alloc((size_t)cut->count * sizeof *c->packets, &memory));
    c->packets = memory;
    c->count = cut->count;
    for (int b = 0; b < c->count; b++) {
        struct packet *p = &c->packets[b];
        p->begin = b ? cut->edge[b] : HEADER_FLOATS;
        p->n = cut->edge[b + 1] - p->begin;
        p->rest = c->rest ? c->rest + p->begin : NULL;
        TRY(c->ops->open(c, p));
    }
    return ERR_NONE;
}

enum error compress_open(struct trainer *t, struct group *g, const struct buckets *cut,
                         struct compress **out) {
    const struct config_variant *v = &t->config->comm.compress;
    void *memory;
    *out = NULL;
    if (v->index == COMPRESS_none) return ERR_NONE;
    if (cut->count >= GROUP_WORKS)
        return FAIL(ERR_CONFIG,
                    "comm.compress: %d buckets; at most %d can be compressed\nset ddp.bucket.cap "
                    "higher: each packet waits for its turn until all are packed",
                    cut->count, GROUP_WORKS - 1);
    TRY(memory_alloc(sizeof **out, &memory));
    struct compress *c = *out = memory;
    *c = (struct compress){.ops = kinds[v->index],
                           .config = v->config,
                           .name = compress_variants.at(v->index)->name,
                           .t = t,
                           .group = g};
    if (c->ops->feedback && t->rank == 0 && t->job->resume)
        log_warn("what comm.compress: %s had not sent yet is in no checkpoint: it begins at zero",
                 c->name);
    return open_packets(c, cut);
}

static void free_shared(struct compress *c, void *p) {
    if (p) c->t->allocator.free(c->t->allocator.ctx, p);
}

void compress_close(struct compress *c) {
    if (!c) return;
    for (int b = 0; b < c->count; b++) {
        free_shared(c, c->packets[b].wire);
        free_shared(c, c->packets[b].back);
    }
    if (c->ops->close) c->ops->close(c);
    memory_free(c->packets);
    memory_free(c->parts);
    memory_free(c->rest);
    memory_free(c);
}

enum error compress_send(struct compress *c, int b, enum lane lane) {
    struct packet *p = &c->packets[b];
    p->g = c->t->grads[0] + p->begin;
    if (b == 0)
        TRY(group_all_reduce(c->group, lane, c->t->grads[0], HEADER_FLOATS, DTYPE_F32, REDOP_SUM,
                             &c->header));
    if (!p->n) return ERR_NONE;
    group_label(c->group, LABEL_GRADIENTS(b));
    return c->ops->send(c, p, lane);
}

enum error compress_turn(struct compress *c, int b, enum lane lane) {
    struct packet *p = &c->packets[b];
    if (!c->ops->turn || !p->n) return ERR_NONE;
    TRY(work_wait(p->work));
    group_label(c->group, LABEL_GRADIENTS(b));
    return c->ops->turn(c, p, lane);
}

enum error compress_receive(struct compress *c, int b) {
    struct packet *p = &c->packets[b];
    if (b == 0) TRY(work_wait(c->header));
    if (!p->n) return ERR_NONE;
    TRY(work_wait(p->work));
    c->ops->receive(c, p);
    return ERR_NONE;
}
