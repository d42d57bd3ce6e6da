/* engine model summary --devices N: what a device has to hold in each way of sharing, from the plan that runs. Where devices
 * have layers of their own, that is the stage that holds most. */
#include "cli/use/model.h"

#include "engine/base/json.h"
#include "engine/base/memory.h"
#include "engine/base/text.h"
#include "engine/model/state.h"
#include "lab/predict/staged.h"
#include "lab/predict/sweep.h"
#include "modes/bucket.h"
#include "modes/share/share.h"

#include <stdio.h>
#include <string.h>

/* The configuration's devices are those that are asked about; a mode of one device has it alone. */
static enum error memory_find(const struct model_view *v, const struct mode_row *mode, const struct mode_way *way,
                              struct held *out) {
    enum { MOST = 4096 };
    static double bytes[MOST];
    struct run_config c = v->settings.config;
    const struct way w = {mode, way, SCHEMES, 0};
    struct buckets b;
    if (mode->place == PLACE_ALONE) c.devices.count = 1;
    const struct sharing how = way_sharing(&w, &c);
    bool one = way->in_one && !mode->overlaps(&c);
    const struct cutting plain = {one ? INT64_MAX : c.ddp.bucket.first, one ? INT64_MAX : c.ddp.bucket.cap};
    TRY(buckets_init(&b, v->network.model, how.cut.cap ? &how.cut : &plain));
    for (int i = 0; i < b.count && i < MOST; i++) bytes[i] = (double)(b.edge[i + 1] - b.edge[i]) * sizeof(float);
    const struct held_ask ask = {.plan = &way->share->plan,
                                 .devices = c.devices.count,
                                 .owners = sharing_owners(&how, c.devices.count + how.servers),
                                 .serves_apart = how.servers > 0,
                                 .sums = held_sums(planned_passes(&c)),
                                 .slots = state_each(v->network.model, &c.optimizer.kind),
                                 .arena = (double)v->network.model->arena_floats * sizeof(float),
                                 .bytes = bytes,
                                 .buckets = b.count < MOST ? b.count : MOST};
    *out = held_find(&ask);
    buckets_fini(&b);
    return ERR_NONE;
}

/* Of the stage that holds most, where layers are cut by their operations. */
static enum error memory_find_staged(const struct model_view *v, const struct mode_row *mode,
                                     const struct mode_way *way, struct held *out) {
    const struct model *m = v->network.model;
    struct run_config c = v->settings.config;
    int leaves = cost_leaves((int)c.batch.shards, c.devices.count);
    void *work;
    TRY(staged_fit(&c, m));
    if (!v->whole) c.batch.size = v->data.samples * leaves * c.batch.accumulate;
    c.sharing.ahead = way_sharing(&(struct way){mode, way, SCHEMES, 0}, &c).ahead;
    TRY(memory_alloc(((size_t)m->nnodes + 1) * sizeof(double), &work));
    measured_find_work(m, v->network.plan, work);
    const struct staged_ask ask = {&c, m, work, leaves};
    enum error err = staged_hold(&ask, out);
    memory_free(work);
    return err;
}

static void memory_print(const char *mode, const char *way, const struct held *h) {
    char text[32];
    printf("%-8s  %-22s", mode, way);
    for (int i = 0; i < HELD_PARTS; i++)
        printf("  %11s", !h ? held_keys[i] : h->of[i] > 0 ? text_of_bytes(h->of[i], text) : "-");
    printf("  %11s\n", h ? text_of_bytes(held_all(h), text) : "all");
}

static void memory_put(struct json *j, const char *mode, const char *way, const struct held *h) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("mode", mode), JSON_TEXT("way", way));
    for (int i = 0; i < HELD_PARTS; i++) json_real(j, held_keys[i], h->of[i]);
    json_real(j, "all", held_all(h));
    json_close(j, '}');
}

/* Whether a way has a row: of the modes that were asked for, and of all modes where the layers can be cut so. */
static bool memory_has_row(const struct model_view *v, const struct mode_row *mode, const struct mode_way *way) {
    struct run_config c = v->settings.config;
    if (v->mode) return !strcmp(v->mode, mode->name);
    return !way->share->plan.staged || staged_fit(&c, v->network.model) == ERR_NONE;
}

static enum error memory_row(const struct model_view *v, const struct mode_row *mode, const struct mode_way *way,
                             struct json *j) {
    const struct plan *p = v->network.plan;
    const char *name = *way->name ? way->name : "all-reduce";
    struct held h;
    TRY((way->share->plan.staged ? memory_find_staged : memory_find)(v, mode, way, &h));
    if (!way->share->plan.staged) h.of[HELD_ACTIVATIONS] = (double)(p->activations + p->gradients) + (double)p->scratch;
    if (j)
        memory_put(j, mode->name, name, &h);
    else
        memory_print(mode->name, name, &h);
    return ERR_NONE;
}

enum error model_memory(const struct model_view *v, struct json *j) {
    int n;
    const struct mode_row *const *modes = mode_kinds(&n);
    if (j)
        json_open(j, "memory", '[');
    else
        printf("\nmemory of a device, of %d that share a step:\n", v->settings.config.devices.count);
    if (!j) memory_print("mode", "way", NULL);
    for (int m = 0; m < n; m++)
        for (const struct mode_way *way = modes[m]->ways; way->name; way++)
            if (memory_has_row(v, modes[m], way)) TRY(memory_row(v, modes[m], way, j));
    if (j) json_close(j, ']');
    return ERR_NONE;
}
