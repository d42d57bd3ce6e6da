/* A solution of lab 27, and what goes wrong with -DWRONG=1 and so on. */
#include "engine_plugin.h"

enum { RIGHT, PLAIN_MOMENTUM, FORGETS_SCALE, UPHILL, STATE_OF_ITS_OWN };
#ifndef WRONG
#define WRONG RIGHT
#endif

static const struct engine_parameter parameters[] = {{"keep", 0.9, "share of the momentum that is kept"},
                                                     {NULL, 0, NULL}};

static void step(const struct engine_step *s, float *w, const float *g, float *m, float *v, int64_t n) {
    static float last;
    float lr = (float)s->lr, keep = (float)s->parameter[0];
    (void)v;
    for (int64_t i = 0; i < n; i++) {
        float d = WRONG == FORGETS_SCALE ? g[i] : s->scale * g[i];
        last = m[i] = keep * (WRONG == STATE_OF_ITS_OWN ? last : m[i]) + d;
        d = WRONG == PLAIN_MOMENTUM ? m[i] : d + keep * m[i];
        w[i] -= WRONG == UPHILL ? -lr * d : lr * d;
    }
}

static const struct engine_optimizer nesterov = {step};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "a solution", .parameters = parameters, .optimizer = &nesterov};
