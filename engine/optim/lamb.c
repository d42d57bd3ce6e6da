/* LAMB (You et al. 2019, arXiv:1904.00962): AdamW whose step is scaled for each tensor to the size
 * of its weights, t from 1:
 *
 *     m = beta1 * m + (1 - beta1) * g         v = beta2 * v + (1 - beta2) * g * g
 *     u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
 *     w = w - lr * |w| / |u| * u              the ratio is 1 where |w| or |u| is 0
 *
 * Biases and norms (tensors of one dimension) neither adapt nor decay, unless 'adapt' and 'decay'
 * say so. 'direct' makes u in the place of the gradient, so that 'step' only scales it. */
#include "engine/optim/adam.h"

struct lamb_numbers {
    struct moment_numbers of;
    float scale, unbias_m, decay;
};

/* Updates the moments of e, and puts the direction of its step, before the trust ratio, into e->g. */
FORMULA void lamb_direction(const struct lamb_numbers *k, struct element *e) {
    moments_follow(&k->of, k->scale * e->g, e);
    e->g = k->unbias_m * e->m / moments_root(&k->of, e->v) + k->decay * e->w;
}

FORMULA void lamb_step(const struct lamb_numbers *k, struct element *e) {
    (void)k;
    e->w -= e->rate * e->g;
}

FORMULA_STEP(lamb_step, lamb_numbers, 0)
FORMULA_DIRECT(lamb_direction, lamb_numbers, 2)
FORMULAS(lamb, FORMULA_OF(lamb_step), FORMULA_OF(lamb_direction))

#ifdef FORMULA_IN_C
enum { STEP, DIRECT }; /* of lamb_formulas */

struct lamb_config {
    struct adam_config adam; /* first: adam.h's rows are for it */
    int adapt;               /* enum optim_tensors */
};

static void lamb_numbers(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct adam_config *c = &((const struct lamb_config *)config)->adam;
    const double *beta = c->betas.items;
    *(struct lamb_numbers *)numbers = (struct lamb_numbers){
        .of = adam_moments(c, s->t),
        .scale = s->scale,
        .unbias_m = (float)(1 / (1 - real_pow(beta[0], (double)s->t))),
        .decay = optim_applies(c->decay, matrix) ? (float)c->weight_decay : 0,
    };
}

static bool lamb_adapts(const void *config, bool matrix) {
    return optim_applies(((const struct lamb_config *)config)->adapt, matrix);
}

static float lamb_rate(const void *config, const struct optim_step *s, bool matrix, const double norm[OPTIM_NORMS]) {
    bool adapts = lamb_adapts(config, matrix) && norm[0] > 0 && norm[1] > 0;
    return (float)(s->lr * (adapts ? norm[0] / norm[1] : 1));
}

static const struct config_field fields[] = {
    ADAM_ROWS("1e-3", "1e-6", "0.01", "This times the weights is added to the direction of the step", "matrices"),
    OPTIM_TENSORS(lamb_config, adapt, "matrices", ADAPT_HELP),
    {.key = NULL},
};

const struct optim_ops optim_lamb = {
    .section = {.name = "lamb",
                .fields = fields,
                .size = sizeof(struct lamb_config),
                .shorthand = "lr",
                .help = "AdamW with a learning rate for each tensor (arXiv:1904.00962), for large batches",
                .check = adam_check},
    .nslots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .nnorms = OPTIM_NORMS,
    .formulas = lamb_formulas,
    .direct = &lamb_formulas[DIRECT],
    .numbers = lamb_numbers,
    .adapts = lamb_adapts,
    .rate = lamb_rate,
    .adaptive = true,
};
#endif
