/* Lab 31: the order of a stage's tasks. At first there is none, and 'engine check stages.c' says so.
 *
 * Stage 'stage' of 'stages', counted from 0, computes 'batches' micro-batches, counted from 1. order gets its 2 * batches
 * tasks, in their order: b for the forward of micro-batch b, -b for its backward. */
#include "engine_plugin.h"

static void stage(int32_t stage, int32_t stages, int32_t batches, int32_t *order) {
    (void)stage, (void)stages, (void)batches, (void)order; /* TODO */
}

static const struct engine_schedule schedule = {.stage = stage};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my order of forwards and backwards", .schedule = &schedule};
