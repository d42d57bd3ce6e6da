/* avgpool: the mean of each window, padding counted as zeros. */
#include "engine/model/layers/window.h"

static enum error avgpool_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    return pool_plan(config, POOL_AVG, x, p);
}

const struct layer_ops layer_avgpool = {
    .section = {.name = "avgpool",
                .fields = pool_fields,
                .size = sizeof(struct pool_config),
                .shorthand = "kernel",
                .help = "The mean of each window, padding counted as zeros"},
    .inputs = 1,
    .plan = avgpool_plan,
};
