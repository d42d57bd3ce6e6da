/* Lab 29: a schedule of buckets. At first no bucket ends, so that nothing travels, and 'engine check buckets.c' says so.
 *
 * Layer i of b->layers is ready at b->ready[i], and has b->bytes[i]. A message of n bytes takes b->alpha + b->beta * n
 * seconds, and one travels after another. ends[i] = 1: a bucket ends with layer i; the last layer has to end one. */
#include "engine_plugin.h"

static void buckets(const struct engine_backward *b, uint8_t *ends) {
    (void)b, (void)ends; /* TODO */
}

static const struct engine_schedule schedule = {.buckets = buckets};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my schedule of buckets", .schedule = &schedule};
