#include "lab/predict/planned.h"

#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"

#include <string.h>

struct segments planned_segments(const struct run_config *c, const struct device *dev) {
    const struct batch_config *b = &c->batch;
    int run = leaves_cut((int)b->shards, c->devices.count, 1), subtree = leaves_subtree(0, run > 0 ? run : 1);
    struct segments s = {.count = graph_together(device_runtime(dev), subtree, b->accumulate)};
    for (int i = 0; i < s.count; i++) { /* of the first device */
        int64_t shard = leaves_shard((int)b->shards, i);
        int64_t samples = (b->size - shard + b->shards - 1) / b->shards / b->accumulate;
        s.begin[i + 1] = s.begin[i] + (samples > 0 ? samples : 1);
    }
    return s;
}

int planned_passes(const struct run_config *c) {
    const struct batch_config *b = &c->batch;
    const struct device_runtime *runtime = device_find(c->devices.kind)->runtime;
    int run = leaves_cut((int)b->shards, c->devices.count, 1), passes = 0;
    for (int at = 0, size; at < run; at += size) {
        size = leaves_subtree(at, run);
        passes += size / graph_together(runtime, size, b->accumulate);
    }
    return passes * (int)b->accumulate;
}

enum error planned_shapes(const struct run_config *c, struct planned_data *out) {
    struct dataset *d;
    TRY(dataset_open(&c->data, true, (uint64_t)c->seed, &d));
    *out = (struct planned_data){d->shape, d->classes ? d->classes : d->targets, 0};
    dataset_close(d);
    return ERR_NONE;
}

enum error planned_create(const struct run_config *c, const char *kind, const struct planned_data *data,
                          struct config_errors *e, struct planned *out) {
    bool own = !strcmp(kind, c->devices.kind);
    const struct device_params p = {.count = 1,
                                    .threads = (int)c->threads,
                                    .no_winograd = !c->winograd,
                                    .unit = own ? device_first_unit(&c->devices) : 0};
    *out = (struct planned){0};
    TRY(model_create(c->model, &data->input, data->classes, e, &out->model));
    TRY(device_find(kind)->open(&p, &out->device));
    const struct segments s =
        data->samples ? (struct segments){1, {0, data->samples}} : planned_segments(c, out->device);
    const struct model_part whole = model_part(out->model, 0, out->model->nnodes);
    const struct plan_work work = {.m = out->model,
                                   .part = &whole,
                                   .dev = out->device,
                                   .loss = (enum loss)c->loss.index,
                                   .precision = (enum precision)c->precision,
                                   .stretches = (int)c->recompute};
    return plan_create(&work, &s, &out->plan);
}

enum error planned_open(const struct run_config *c, const char *kind, struct config_errors *e, struct planned *out) {
    struct planned_data data;
    *out = (struct planned){0};
    TRY(planned_shapes(c, &data));
    return planned_create(c, kind, &data, e, out);
}

void planned_close(struct planned *p) {
    plan_free(p->plan);
    if (p->device) p->device->ops->close(p->device);
    model_free(p->model);
    *p = (struct planned){0};
}
