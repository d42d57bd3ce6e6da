/* LARS (You, Gitman, Ginsburg 2017, arXiv:1708.03888): momentum whose learning rate is scaled for
 * each tensor by how large its weights are beside its gradient, so that large batches can take
 * large steps:
 *
 *     trust_ratio = trust * |w| / (|g| + weight_decay * |w|)      1 where |w| or |g| is 0
 *     b = momentum * b + lr * trust_ratio * (g + weight_decay * w)
 *     w = w - b
 *
 * The learning rate stands inside the momentum, as in the paper's algorithm 1. Biases and norms
 * (tensors of one dimension) neither adapt nor decay, unless 'adapt' and 'decay' say so. */
#include "engine/optim/formula.h"

struct lars_numbers {
    float scale, decay, momentum;
};

FORMULA void lars_step(const struct lars_numbers *k, struct element *e) {
    e->m = k->momentum * e->m + e->rate * (k->scale * e->g + k->decay * e->w);
    e->w -= e->m;
}

FORMULA_STEP(lars_step, lars_numbers, 1)
FORMULAS(lars, FORMULA_OF(lars_step))

#ifdef FORMULA_IN_C
struct lars_config {
    double lr, momentum, weight_decay, trust;
    int decay, adapt; /* enum optim_tensors */
};

static double lars_decay(const struct lars_config *c, bool matrix) {
    return optim_applies(c->decay, matrix) ? c->weight_decay : 0;
}

static void lars_numbers(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct lars_config *c = config;
    *(struct lars_numbers *)numbers =
        (struct lars_numbers){.scale = s->scale, .decay = (float)lars_decay(c, matrix), .momentum = (float)c->momentum};
}

static bool lars_adapts(const void *config, bool matrix) {
    return optim_applies(((const struct lars_config *)config)->adapt, matrix);
}

static float lars_rate(const void *config, const struct optim_step *s, bool matrix, const double norm[OPTIM_NORMS]) {
    const struct lars_config *c = config;
    double w = norm[0], g = norm[1] * (double)s->scale, ratio = 1;
    if (lars_adapts(c, matrix) && w > 0 && g > 0) ratio = c->trust * w / (g + lars_decay(c, matrix) * w);
    return (float)(s->lr * ratio);
}

static const struct config_field fields[] = {
    OPTIM_REAL(lars_config, lr, "1", "Learning rate, before trust, lr_scale and schedule", .max = -1),
    OPTIM_REAL(lars_config, momentum, "0.9", "Share of the previous update that is kept", .max = 1),
    OPTIM_REAL(lars_config, weight_decay, "5e-4", "This times the weights is added to the gradient", .max = -1),
    OPTIM_TENSORS(lars_config, decay, "matrices", DECAY_HELP),
    OPTIM_REAL(lars_config, trust, "1e-3",
               "Length of a tensor's step as a share of its norm, before the learning rate multiplies it", .min = 1e-12,
               .max = 1e12),
    OPTIM_TENSORS(lars_config, adapt, "matrices", ADAPT_HELP),
    {.key = NULL},
};

const struct optim_ops optim_lars = {
    .section = {.name = "lars",
                .fields = fields,
                .size = sizeof(struct lars_config),
                .shorthand = "lr",
                .help = "Momentum with a learning rate for each tensor (arXiv:1708.03888), for large batches"},
    .nslots = 1,
    .slot_names = {"momentum_buffer"},
    .nnorms = OPTIM_NORMS,
    .formulas = lars_formulas,
    .numbers = lars_numbers,
    .adapts = lars_adapts,
    .rate = lars_rate,
    .adaptive = true,
};
#endif
