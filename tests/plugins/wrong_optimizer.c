/* An optimizer (plain gradient descent) that goes wrong in one way: -DWRONG=... Right: 0. */
#include "engine_plugin.h"

#include <stdlib.h>
#include <string.h>

enum { RIGHT, MIXES, PAST_THE_END, WRITES_GRADIENT, REMEMBERS, LEAKS, LOOP, CRASH };
void *wrong_leak; /* keeps the compiler from leaving it out */
#ifndef WRONG
#define WRONG RIGHT
#endif

static void step(const struct engine_step *s, float *w, const float *g, float *m, float *v, int64_t n) {
    static float last;
    (void)m, (void)v;
    if (WRONG == CRASH) w = NULL;
    if (WRONG == LEAKS) wrong_leak = memset(malloc(1000), 1, 1000);
    for (volatile int i = 0; WRONG == LOOP; i = !i) continue;
    for (int64_t i = 0; i < n; i++) {
        float d = WRONG == MIXES ? g[i] + g[n - 1] : WRONG == REMEMBERS ? g[i] + last : g[i];
        w[i] -= (float)s->lr * s->scale * d;
        last = g[i];
    }
    if (WRONG == PAST_THE_END) w[n] = 0;
    if (WRONG == WRITES_GRADIENT) ((float *)(uintptr_t)g)[0] = 0;
}

static const struct engine_optimizer descent = {step};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "gradient descent", .optimizer = &descent};
