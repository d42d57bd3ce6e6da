/* Gradients on the wire in fewer bytes than they have. A bucket takes one or two exchanges:
 *
 *   send      its gradients are there: what is sent is made of them, and leaves
 *   turn      when all have been sent: the second exchange, of kinds that need one
 *   receive   the gradients become the sum, the same bits on every rank
 *
 * each for all buckets in their order, on every rank the same. The sum is not that of the
 * uncompressed gradients, and depends on the number of ranks. Kinds with error feedback keep on each
 * rank what was not sent, and add it to the gradients of the next step (arXiv:1809.07599); it is in
 * no checkpoint. Who updates by the sums is another share's: every rank, or each its slices.
 *
 * To servers apart (mode ps) only gradients are sent, so one exchange is enough: each worker packs each server's part of a
 * bucket, and the server adds what all have sent. Weights come back as they are. */
#include "modes/share/compress.h"

#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/device/runtime.h"
#include "engine/settings/compress.h"
#include "engine/settings/resolve.h"
#include "modes/share/share.h"

#include <stdio.h>
#include <string.h>

#define COMPRESS(name) extern const struct compress_ops compress_##name;
#include "engine/settings/compress.def"

static const struct compress_ops *const kinds[] = {
#define COMPRESS(name) &compress_##name,
#include "engine/settings/compress.def"
};

const struct compress_ops compress_none; /* never run: gradients then travel as they are */

enum error compress_alloc(struct compress *c, size_t bytes, void **out) {
    return c->t->standing.allocator.alloc(c->t->standing.allocator.ctx, bytes, out);
}

/* The servers' parts of a bucket, in its own positions. */
static enum error open_parts(struct compress *c, struct packet *p, const int64_t *part) {
    TRY_MEMORY(p->part = memory_new((size_t)(c->t->standing.ranks + 1) * sizeof *p->part));
    for (int r = 0; r <= c->t->standing.ranks; r++) p->part[r] = part[r] > p->begin ? part[r] - p->begin : 0;
    return ERR_NONE;
}

/* part: of servers apart, of all buckets; else NULL. */
static enum error open_packets(struct compress *c, const struct buckets *cut, const int64_t *part) {
    int64_t n = c->t->model->arena_floats;
    if (c->coder ? c->coder->feedback : c->ops->feedback) {
        TRY_MEMORY(c->rest = memory_new((size_t)n * sizeof(float)));
    }
    TRY_MEMORY(c->parts = memory_new(2 * (size_t)(c->t->standing.ranks + 1) * sizeof *c->parts));
    TRY_MEMORY(c->packets = memory_new((size_t)cut->count * sizeof *c->packets));
    c->count = cut->count;
    for (int b = 0; b < c->count; b++) {
        struct packet *p = &c->packets[b];
        p->begin = b ? cut->edge[b] : HEADER_FLOATS;
        p->n = cut->edge[b + 1] - p->begin;
        p->rest = c->rest ? c->rest + p->begin : NULL;
        if (part) TRY(open_parts(c, p, part + (int64_t)b * (c->t->standing.ranks + 1)));
        TRY(c->ops->open(c, p));
    }
    return ERR_NONE;
}

static enum error open_compress(struct mode *m, struct compress *c) {
    struct trainer *t = m->t;
    const struct config_variant *v = &t->config->comm.compress;
    if (m->cut->count >= GROUP_WORKS)
        return FAIL(ERR_CONFIG,
                    "comm.compress: %d buckets; at most %d can be compressed\nset %s "
                    "higher: each packet waits for its turn until all are packed",
                    m->cut->count, GROUP_WORKS - 1, m->how->servers ? "ps.partition" : "ddp.bucket.cap");
    c->ops = kinds[v->index];
    c->coder = c->ops->coder;
    c->config = v->config;
    if (v->index == COMPRESS_plugin) {
        TRY(plugged_open(&c->config->plugged, PLUGIN_COMPRESSOR, &c->plugin, c->parameter));
        c->coder = c->plugin->of->compressor;
    }
    c->name = compress_name(v);
    if (!c->plugin) c->parameter[COMPRESS_RATIO] = c->config->ratio;
    c->t = t;
    c->group = m->team.group;
    if ((c->coder ? c->coder->feedback : c->ops->feedback) && t->rank == 0 && t->job->resume)
        log_warn("checkpoints do not hold what comm.compress: %s had not sent yet: it begins at zero", c->name);
    return open_packets(c, m->cut, m->how->servers ? m->part : NULL);
}

/* The owner opens, starts, updates and settles. Slices are cut by it, gradients as without it; servers apart receive their parts of what is cut like these. */
static enum error compressed_open(struct mode *m) {
    struct compress *c = m->packed = memory_new(sizeof *c);
    if (!c) return ERR_MEMORY;
    c->owner = share_ops_of(m->how->share);
    m->ops.start = c->owner.start, m->ops.update = c->owner.update, m->ops.settle = c->owner.settle;
    m->ops.collect = c->owner.collect, m->ops.spread = c->owner.spread;
    TRY(c->owner.open(m));
    if (!m->how->servers) m->cut = &m->buckets;
    return open_compress(m, c);
}

static void free_shared(struct compress *c, void *p) {
    if (p) c->t->standing.allocator.free(c->t->standing.allocator.ctx, p);
}

static void compressed_close(struct mode *m) {
    struct compress *c = m->packed;
    if (!c) return;
    for (int b = 0; b < c->count; b++) {
        free_shared(c, c->packets[b].wire);
        free_shared(c, c->packets[b].back);
        memory_free(c->packets[b].part);
        memory_free(c->packets[b].inbox);
    }
    if (c->ops && c->ops->close) c->ops->close(c);
    memory_free(c->packets);
    memory_free(c->parts);
    memory_free(c->rest);
    c->owner.close(m);
    memory_free(c);
}

/* ---- a step ---- */

/* Bytes that this rank has sent since the run began, also those that were not compressed. */
static int64_t sent_so_far(const struct mode *m) {
    struct mode_stats now = {0};
    team_stats(&m->team, &now);
    return now.sent;
}

static struct dispatch way_of(struct mode *m, int b) {
    return (struct dispatch){m->lane, &m->packed->packets[b].work, LABEL_GRADIENTS(b)};
}

/* The arena's header goes before the first. */
static enum error compressed_leave(struct mode *m, int b) {
    struct compress *c = m->packed;
    struct packet *p = &c->packets[b];
    p->g = m->t->arena.grads[0] + p->begin;
    c->left = true;
    if (b == 0) {
        c->before = sent_so_far(m);
        struct dispatch how = GROUP_ON(m->lane, &c->header);
        float *header = m->t->arena.grads[0];
        TRY(p->part ? group_reduce(c->group, how, header, HEADER_FLOATS, DTYPE_F32, REDOP_SUM, 0)
                    : group_all_reduce(c->group, how, header, HEADER_FLOATS, DTYPE_F32, REDOP_SUM));
    }
    if (!p->n) return ERR_NONE;
    return p->part ? c->ops->push(c, p, way_of(m, b)) : c->ops->send(c, p, way_of(m, b));
}

static enum error turn(struct mode *m, int b) {
    struct compress *c = m->packed;
    struct packet *p = &c->packets[b];
    if (!c->ops->turn || (c->coder && !c->coder->block) || !p->n || p->part) return ERR_NONE;
    TRY(work_wait(p->work));
    return c->ops->turn(c, p, way_of(m, b));
}

static enum error receive(struct mode *m, int b) {
    struct compress *c = m->packed;
    struct packet *p = &c->packets[b];
    if (b == 0) TRY(work_wait(c->header));
    if (!p->n) return ERR_NONE;
    TRY(work_wait(p->work));
    if (p->part)
        c->ops->pushed(c, p);
    else
        c->ops->receive(c, p);
    return ERR_NONE;
}

static enum error compressed_land(struct mode *m) {
    struct compress *c = m->packed;
    if (!c->left) return ERR_NONE; /* ranks step alone */
    c->left = false;
    double bytes = (double)m->t->model->arena_floats * sizeof(float);
    for (int b = 0; b < m->cut->count; b++) TRY(turn(m, b));
    for (int b = 0; b < m->cut->count; b++) TRY(receive(m, b));
    if (m->t->standing.worker < 0) return ERR_NONE;
    c->packed += sent_so_far(m) - c->before;
    c->dense += (int64_t)(m->how->servers ? bytes : bytes * 2 * (m->t->standing.ranks - 1) / m->t->standing.ranks);
    return ERR_NONE;
}

enum error compressed_sum(struct mode *m) {
    for (int b = 0; b < m->cut->count; b++) TRY(compressed_leave(m, b));
    return compressed_land(m);
}

/* ---- between steps ---- */

static enum error compressed_stats(struct mode *m, struct mode_stats *out) {
    out->dense = m->packed->dense, out->packed = m->packed->packed;
    return m->packed->owner.stats(m, out);
}

static void compressed_describe(const struct mode *m, char *line, size_t size) {
    text_append(line, size, ", %sgradients compressed (%s)", m->how->plan.alone ? "outer " : "", m->packed->name);
    m->packed->owner.describe(m, line, size);
}

/* ---- the configuration ---- */

static void compressed_check(struct resolve *r) {
    if (!r->c->sharing.compressed) return;
    bool apart = r->c->sharing.servers > 0 && r->c->sharing.place == PLACE_PROCESSES;
    resolve_clash(r, r->c->sharing.place != PLACE_PROCESSES, "comm.compress",
                  "'comm.compress' is for modes whose devices are processes, but mode is '{mode}' ({at mode})\n"
                  "use mode ddp, or comm.compress: none");
    resolve_clash(r, r->c->sharing.plan.lean, "comm.compress",
                  "mode {mode} keeps no gradients, so that nothing can be added to the next ones\n"
                  "use mode ddp with optimizer.shard, or comm.compress: none");
    resolve_clash(r, r->c->sharing.plan.by_turns, "comm.compress",
                  "gradients that are not added ({at ps.staleness}) travel as they are\n"
                  "use comm.compress: none, or ps.staleness: 0");
    resolve_clash(r, apart && !kinds[r->c->comm.compress.index]->push, "comm.compress",
                  "this kind makes its sums by exchanges among all ranks, but servers stand apart ({at ps.place})\n"
                  "use ps.place: workers, or another kind");
    resolve_clash(r, r->c->deterministic == DETERMINISTIC_BITWISE, "comm.compress",
                  "compressed gradients depend on the number of devices, but deterministic is 'bitwise' "
                  "({at deterministic})\nuse comm.compress: none");
    resolve_clash(r, device_find(r->c->devices.kind)->runtime->apart, "comm.compress",
                  "gradients are compressed in the host's memory, but devices are '{devices}' ({at devices})\n"
                  "use comm.compress: none");
}

const struct share_row share_compressed = {.check = compressed_check,
                                           .ops = {.open = compressed_open,
                                                   .close = compressed_close,
                                                   .leave = compressed_leave,
                                                   .land = compressed_land,
                                                   .stats = compressed_stats,
                                                   .describe = compressed_describe}};
