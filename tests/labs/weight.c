/* A solution of lab 32, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

#include <math.h>

enum { RIGHT, NO_CORRECTION, BY_AGE_ALONE, HALF_OF_ALL, RISES, IN_DEGREES };
#ifndef WRONG
#define WRONG RIGHT
#endif

static double weight(int32_t age, double step) {
    double limit = 2 * sin((WRONG == IN_DEGREES ? 180 : 3.14159265358979) / (2 * (2 * age + 1)));
    if (WRONG == NO_CORRECTION) return 1;
    if (WRONG == BY_AGE_ALONE) return 1.0 / (1 + age);
    if (WRONG == HALF_OF_ALL) return age == 0 ? 1 : 0.5;
    if (WRONG == RISES) return age == 0 ? 1 : 0.1 * age / (1.0 + age);
    return age == 0 ? 1 : fmin(1, 0.7 * limit / step);
}

static const struct engine_schedule schedule = {.weight = weight};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .schedule = &schedule};
