/* Lab 30: what a server sends next. At first it always waits, and 'engine check answers.c' says so.
 *
 * The answers are those of a->workers times a->layers: number w * a->layers + i is layer i of worker w. Of answer k,
 * a->here[k] pieces can leave now and a->left[k] have not left, and its worker computes a->forward[k] with that layer, when
 * it has all of it and has computed the layers before. The result is the number of an answer with a->here[k] > 0, or -1:
 * the port waits until more has come. */
#include "engine_plugin.h"

static int32_t answer(const struct engine_answers *a) {
    (void)a;
    return -1; /* TODO */
}

static const struct engine_schedule schedule = {.answer = answer};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my order of answers", .schedule = &schedule};
