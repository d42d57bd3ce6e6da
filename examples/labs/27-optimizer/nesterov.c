/* Lab 27: an optimizer. At first it changes no weight, and 'engine check nesterov.c' says so.
 *
 * Nesterov's momentum, as PyTorch's SGD and the engine's have it, of each weight by itself:
 *
 *     d = scale * g               the gradient, as clipping leaves it
 *     m = keep * m + d            the momentum, which begins at 0 and is kept from step to step
 *     w = w - lr * (d + keep * m)
 *
 * In this order, and in floats, the weights are the engine's, bit for bit. */
#include "engine_plugin.h"

static const struct engine_parameter parameters[] = {{"keep", 0.9, "share of the momentum that is kept"},
                                                     {NULL, 0, NULL}};

/* n weights w and their gradients g; m and v are two floats of state for each weight. */
static void step(const struct engine_step *s, float *w, const float *g, float *m, float *v, int64_t n) {
    float lr = (float)s->lr, keep = (float)s->parameter[0];
    (void)lr, (void)keep, (void)w, (void)g, (void)m, (void)v, (void)n; /* TODO; s->scale is the scale */
}

static const struct engine_optimizer nesterov = {step};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {.version = ENGINE_PLUGIN_VERSION,
                                                          .about = "my Nesterov's momentum",
                                                          .parameters = parameters,
                                                          .optimizer = &nesterov};
