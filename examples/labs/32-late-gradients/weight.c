/* Lab 32: what a late gradient counts. At first it counts nothing, and 'engine check weight.c' says so.
 *
 * age: updates since the weights of the gradient were given out. step: the learning rate times the largest curvature, up to
 * 1. The result is from 0 to 1; 1 for age 0, and no larger for an older gradient than for a younger one. */
#include "engine_plugin.h"

#include <math.h>

static double weight(int32_t age, double step) {
    (void)age, (void)step;
    return 0; /* TODO */
}

static const struct engine_schedule schedule = {.weight = weight};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my weight of late gradients", .schedule = &schedule};
