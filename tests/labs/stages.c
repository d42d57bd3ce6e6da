/* A solution of lab 31, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

enum { RIGHT, ALL_FORWARDS, ONE_TOO_FEW, BACKWARD_FIRST, TWICE, NEWEST_FIRST, OTHER_WAY_ROUND };
#ifndef WRONG
#define WRONG RIGHT
#endif

static void stage(int32_t stage, int32_t stages, int32_t batches, int32_t *order) {
    int first = stages - stage, forward = 0, backward = 0;
    if (WRONG == ALL_FORWARDS) first = batches;
    if (WRONG == ONE_TOO_FEW && first > 1) first--;
    if (WRONG == BACKWARD_FIRST) first = stage ? first : 0;
    if (WRONG == NEWEST_FIRST) first = batches;
    for (int i = 0; i < 2 * batches; i++) {
        int ahead = forward - backward;
        if (forward < batches && ahead < first)
            order[i] = ++forward;
        else
            order[i] = -++backward;
    }
    if (WRONG == TWICE && batches > 2) order[2 * batches - 1] = -1;
    for (int i = 0; i < 2 * batches && WRONG == OTHER_WAY_ROUND && stage; i++)
        order[i] = order[i] > 0 ? batches + 1 - order[i] : -batches - 1 - order[i];
    for (int i = 0; i < batches && WRONG == NEWEST_FIRST && stage; i++) order[batches + i] = -(batches - i);
}

static const struct engine_schedule schedule = {.stage = stage};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .schedule = &schedule};
