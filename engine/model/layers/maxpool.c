/* maxpool: the largest of each window. */
#include "engine/model/layers/window.h"

static enum error maxpool_plan(const void *config, const struct shape *x, struct layer_plan *p) {
    return pool_plan(config, POOL_MAX, x, p);
}

const struct layer_ops layer_maxpool = {
    .section = {.name = "maxpool",
                .fields = pool_fields,
                .size = sizeof(struct pool_config),
                .shorthand = "kernel",
                .help = "The largest of each window"},
    .inputs = 1,
    .plan = maxpool_plan,
};
