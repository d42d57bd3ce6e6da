/* Gradients that become something else than their mean in every step (ddp.reduce): what an engine_share makes of them, of
 * a plug-in or the engine's own (adasum.c). Buckets leave as for an all-reduce (all_reduce.c), each as one call, and every
 * rank makes the same update. A rank gives the mean over its own samples; one without samples gives zeros. The header with
 * the sums of the step travels by itself, and is added.
 *
 * All ranks need the same result: wherever they meet (evaluations, checkpoints, the end), their weights are compared. */
#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/file.h"
#include "engine/base/plugin.h"
#include "engine/base/text.h"
#include "engine/base/vector.h"
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"
#include "modes/share/share.h"

#include <stdio.h>
#include <string.h>

struct share {
    const struct plugin *by;
    float weight;    /* of this rank's gradients in this step */
    int64_t *tensor; /* of each bucket its tensors' edges, one list after another */
};

static enum error mixed_find(const struct reduce_config *c, const struct plugin **out) {
    *out = &mixer_adasum;
    return plugin_is_path(c->with) ? plugin_open(c->with, PLUGIN_SHARE, c->sha256, out) : ERR_NONE;
}

enum error mixed_open(struct mode *m) {
    struct share *l = m->share = memory_new(sizeof *l);
    if (!l) return ERR_MEMORY;
    TRY(mixed_find(&m->t->config->ddp.reduce, &l->by));
    TRY_MEMORY(l->tensor = memory_new((size_t)(m->t->model->nparams + m->cut->count + 1) * sizeof *l->tensor));
    return share_open_spare(m);
}

void mixed_close(struct mode *m) {
    if (m->share) memory_free(m->share->tensor);
    memory_free(m->share);
    memory_free(m->spare);
}

void mixed_describe(const struct mode *m, char *line, size_t size) {
    const char *path = m->share->by->path, *name = file_last_part(path);
    text_append(line, size, ", gradients reduced by %s%.64s", name == path ? "" : "plug-in ", name);
}

/* ---- a step ---- */

/* Gradients are parts of the mean over the whole batch. */
static float mixed_weight(const struct trainer *t) {
    float own = t->arena.grads[0][HEADER_SAMPLES];
    int64_t all = sampler_batch_size(&t->feed.sampler, t->at.step % t->per_epoch);
    return own > 0 ? (float)all / own : 1;
}

/* Where tensors begin in [begin, end) of the arena, from begin on, and where the last ends. */
static void mixed_list_tensors(struct mode *m, int b, int64_t begin, struct mixing *out) {
    const struct model *model = m->t->model;
    int p = 0;
    while (p < model->nparams && model->params[p].offset < begin) p++;
    int64_t *list = m->share->tensor + p + b;
    out->tensor = list;
    for (; p < model->nparams && model->params[p].offset < m->cut->edge[b + 1]; p++)
        list[out->tensors++] = model->params[p].offset - begin;
    list[out->tensors] = m->cut->edge[b + 1] - begin;
}

enum error mixed_leave(struct mode *m, int b) {
    struct share *l = m->share;
    float *g = m->t->arena.grads[0];
    int64_t begin = b ? m->cut->edge[b] : HEADER_FLOATS, n = m->cut->edge[b + 1] - begin;
    struct mixing mixing = {.by = l->by, .meeting = m->t->at.step, .room = m->spare};
    struct dispatch how;
    if (b == 0) {
        l->weight = mixed_weight(m->t);
        if (m->lane == LANE_INLINE) mode_note(m, m->how->plan.before[0].doing, m->t->at.step);
        TRY(step_send(m, LABEL_GRADIENTS(0), &how));
        TRY(group_all_reduce(m->team.group, how, g, HEADER_FLOATS, DTYPE_F32, REDOP_SUM));
    }
    if (!n) return ERR_NONE;
    if (l->weight != 1) floats_scale(g + begin, l->weight, n);
    mixed_list_tensors(m, b, begin, &mixing);
    TRY(step_send(m, LABEL_GRADIENTS(b), &how));
    return group_mix(m->team.group, how, &mixing, g + begin, n);
}

static enum error mixed_compare(struct mode *m) {
    const struct trainer *t = m->t;
    size_t bytes = (size_t)(t->model->arena_floats - HEADER_FLOATS) * sizeof(float);
    double digest = crc32c(0, t->arena.values + HEADER_FLOATS, bytes), both[2] = {digest, -digest};
    TRY(group_all_reduce(m->team.group, GROUP_INLINE, both, 2, DTYPE_F64, REDOP_MAX));
    if (both[0] + both[1] == 0) return ERR_NONE;
    return FAIL(ERR_BUG,
                "'%s' has left other gradients on other ranks: after step %lld their weights differ\n"
                "as ddp.reduce all ranks need the same result; ddp.sync.with has them step alone",
                m->share->by->path, (long long)t->at.step + 1);
}

enum error mixed_update(struct mode *m) {
    struct trainer *t = m->t;
    int64_t mark = clock_ns();
    mode_note(m, "update", t->at.step);
    TRY(trainer_update_all(t));
    trainer_phase(t, PHASE_UPDATE, &mark);
    if (!m->team.group || !trainer_meets(t, t->at.step + 1)) return ERR_NONE;
    TRY(mixed_compare(m));
    trainer_phase(t, PHASE_COMM, &mark);
    return ERR_NONE;
}

/* ---- the configuration ---- */

static void mixed_refuse(struct resolve *r, bool when, const char *why) {
    resolve_clash(r, when, "ddp.reduce.with", why);
}

static void mixed_check(struct resolve *r) {
    const struct run_config *c = r->c;
    if (!strcmp(c->ddp.reduce.with, "sum")) return;
    const struct share_row *own = c->sharing.share;
    bool alone = c->sharing.plan.alone, slices = c->optimizer.shard, ours = own == &share_adasum || own == &share_mixed;
    mixed_refuse(r, alone,
                 "ddp.reduce is for gradients that are shared in every step, but devices step alone "
                 "({at ddp.sync.every})\nuse ddp.sync: 1, or ddp.reduce: sum");
    mixed_refuse(r, slices && !alone && !ours,
                 "with optimizer.shard ({at optimizer.shard}) each device receives its part of a sum\n"
                 "use optimizer.shard: false, or ddp.reduce: sum");
    mixed_refuse(r, !ours && !alone && !slices,
                 "ddp.reduce is for mode ddp, but mode is '{mode}' ({at mode})\nuse mode ddp, or ddp.reduce: sum");
    mixed_refuse(r, ours && c->sharing.compressed,
                 "comm.compress is for gradients that are added ({at comm.compress})\n"
                 "use comm.compress: none, or ddp.reduce: sum");
    mixed_refuse(r, c->deterministic == DETERMINISTIC_BITWISE,
                 "'{ddp.reduce.with}' depends on the number of devices, but deterministic is 'bitwise' "
                 "({at deterministic})\nuse deterministic: true, or ddp.reduce: sum");
    mixed_refuse(r, device_find(c->devices.kind)->runtime->apart,
                 "'{ddp.reduce.with}' computes in the host's memory, but devices are '{devices}' ({at devices})\n"
                 "use devices: cpu:N, or ddp.reduce: sum");
}

const struct share_row share_mixed = {
    .plan = {.nbefore = 1, .before = {{MOVE_OWN, .doing = "gradients of a plug-in"}}, .update = UPDATE_BY_ALL},
    .keys = {"ddp.reduce"},
    .without = "sum",
    .check = mixed_check,
    .ops = MIXED_OPS};
