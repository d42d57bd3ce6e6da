/* An optimizer of your own: gradient descent with momentum.
 *
 *     m = keep * m + g
 *     w = w - lr * m
 *
 * Each weight is updated by itself, so that any cut of a tensor gives the same bits.
 *
 * Build and check it:  engine check optimizer.c
 * Use it:              engine run config.yaml --set "optimizer={name: ./optimizer.so, lr: 0.05, with: {keep: 0.9}}" */
#include "engine_plugin.h"

static const struct engine_parameter parameters[] = {{"keep", 0.9, "share of the momentum that is kept"},
                                                     {NULL, 0, NULL}};

static void step(const struct engine_step *s, float *w, const float *g, float *m, float *v, int64_t n) {
    float lr = (float)s->lr, keep = (float)s->parameter[0];
    (void)v; /* the second float of state is not needed */
    for (int64_t i = 0; i < n; i++) {
        m[i] = keep * m[i] + s->scale * g[i];
        w[i] -= lr * m[i];
    }
}

static const struct engine_optimizer momentum = {step};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION,
    .about = "gradient descent with momentum",
    .parameters = parameters,
    .optimizer = &momentum,
};
