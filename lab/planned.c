#include "lab/planned.h"

#include "engine/device/runtime.h"

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

enum error planned_open(const struct run_config *c, const char *kind, struct config_errors *e, struct planned *out) {
    const struct device_ops *ops = device_find(kind);
    bool own = !strcmp(kind, c->devices.kind);
    struct device_params p = {
        .count = 1, .threads = (int)c->threads, .no_winograd = !c->winograd, .unit = own ? c->devices.unit[0] : 0};
    struct dataset *d;
    *out = (struct planned){0};
    TRY(dataset_open(&c->data, true, (uint64_t)c->seed, &d));
    const struct shape input = d->shape;
    int64_t classes = d->classes ? d->classes : d->targets;
    dataset_close(d);
    TRY(model_create(c->model, &input, classes, e, &out->model));
    TRY(ops->open(&p, &out->device));
    const struct segments s = planned_segments(c, out->device);
    return plan_create(out->model, out->device, (enum loss)c->loss.index, (enum precision)c->precision, NULL, &s,
                       (int)c->recompute, &out->plan);
}

void planned_close(struct planned *p) {
    plan_free(p->plan);
    if (p->device) p->device->ops->close(p->device);
    model_free(p->model);
    *p = (struct planned){0};
}
