/* An optimizer of your own: RMSprop (Hinton, 2012). Each weight has a step of its own size: its gradient, divided by the
 * root of the mean of its squares.
 *
 *     v = keep * v + (1 - keep) * g * g
 *     w = w - lr * g / (sqrt(v) + 1e-8)
 *
 * Each weight is updated by itself, so that any cut of a tensor gives the same bits.
 *
 * Build and check it:  engine check optimizer.c
 * Use it:              engine run config.yaml --set "optimizer={name: ./optimizer.so, lr: 0.002, with: {keep: 0.99}}" */
#include "engine_plugin.h"

#include <math.h>

static const struct engine_parameter parameters[] = {{"keep", 0.99, "share of the mean of squares that is kept"},
                                                     {NULL, 0, NULL}};

static void step(const struct engine_step *s, float *w, const float *g, float *m, float *v, int64_t n) {
    float lr = (float)s->lr, keep = (float)s->parameter[0];
    (void)m; /* the first float of state is not needed */
    for (int64_t i = 0; i < n; i++) {
        float d = s->scale * g[i];
        v[i] = keep * v[i] + (1 - keep) * d * d;
        w[i] -= lr * d / (sqrtf(v[i]) + 1e-8f);
    }
}

static const struct engine_optimizer rmsprop = {step};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION,
    .about = "RMSprop",
    .parameters = parameters,
    .optimizer = &rmsprop,
};
