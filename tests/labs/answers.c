/* A solution of lab 30, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

enum { RIGHT, TOO_EARLY, WAITS_FOR_THE_FIRST, LAST_LAYERS_FIRST, LOWEST_LAYER, THE_NEXT_ONE };
#ifndef WRONG
#define WRONG RIGHT
#endif

static double tail(const struct engine_answers *a, int k) {
    double seconds = a->forward[k];
    if (WRONG == LAST_LAYERS_FIRST) return k % a->layers;
    if (WRONG == LOWEST_LAYER) return -k % a->layers;
    while (++k % a->layers) seconds += a->forward[k];
    return seconds;
}

static int32_t answer(const struct engine_answers *a) {
    int32_t best = -1;
    for (int32_t k = 0; k < a->workers * a->layers; k++) {
        if (!(WRONG == TOO_EARLY ? a->left[k] : a->here[k])) continue;
        if (best < 0 || tail(a, k) > tail(a, best)) best = k;
    }
    if (WRONG == WAITS_FOR_THE_FIRST && best % a->layers) return -1;
    return WRONG == THE_NEXT_ONE ? best + 1 : best;
}

static const struct engine_schedule schedule = {.answer = answer};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .schedule = &schedule};
