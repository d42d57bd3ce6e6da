/* Adam, as torch.optim.Adam: t counts from 1,
 *
 *     w = w * shrink                       (adamw alone; 1 here)
 *     d = g + weight_decay * w             (adam alone)
 *     m = beta1 * m + (1 - beta1) * d      running mean of the gradient
 *     v = beta2 * v + (1 - beta2) * d * d  and of its square; both begin as zero and are too small
 * at first, hence w = w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps). With amsgrad the largest v so far
 * stands in the place of v. */
#include "engine/optim/adam.h"

FORMULA void adam_step(const struct adam_numbers *k, struct element *e) {
    adam_formula(k, 2, e);
}

FORMULA void adam_amsgrad(const struct adam_numbers *k, struct element *e) {
    adam_formula(k, 3, e);
}

FORMULA_STEP(adam_step, adam_numbers, 2)
FORMULA_STEP(adam_amsgrad, adam_numbers, 3)
FORMULAS(adam, FORMULA_OF(adam_step), FORMULA_OF(adam_amsgrad))

#ifdef FORMULA_IN_C
struct moment_numbers adam_moments(const struct adam_config *c, int64_t t) {
    const double *beta = c->betas.items;
    return (struct moment_numbers){.keep_m = (float)beta[0],
                                   .add_m = (float)(1 - beta[0]),
                                   .keep_v = (float)beta[1],
                                   .add_v = (float)(1 - beta[1]),
                                   .unbias_v = (float)(1 / sqrt(1 - real_pow(beta[1], (double)t))),
                                   .eps = (float)c->eps};
}

struct adam_numbers adam_numbers(const struct adam_config *c, const struct optim_step *s) {
    const double *beta = c->betas.items;
    return (struct adam_numbers){.of = adam_moments(c, s->t),
                                 .shrink = 1,
                                 .step = (float)(s->lr / (1 - real_pow(beta[0], (double)s->t))),
                                 .scale = s->scale};
}

int adam_variant(const void *config) {
    return ((const struct adam_config *)config)->amsgrad;
}

int adam_slots(const void *config) {
    return adam_variant(config) ? 3 : 2;
}

void adam_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct adam_config *c = config;
    optim_check_betas(&c->betas, at, "[0.9, 0.999]", e);
}

/* Writes the struct adam_numbers of this step to 'numbers'; matrix: of the weights that may decay by themselves. */
static void adam_numbers_of(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct adam_config *c = config;
    struct adam_numbers k = adam_numbers(c, s);
    if (optim_applies(c->decay, matrix)) k.l2 = (float)c->weight_decay;
    *(struct adam_numbers *)numbers = k;
}

static const struct config_field fields[] = {
    ADAM_ROWS("1e-3", "1e-8", "0",
              "This times the weights is added to the gradient (L2); adamw applies the decay separately", "all"),
    ADAM_AMSGRAD,
    {.key = NULL},
};

const struct optim_ops optim_adam = {
    .section = {.name = "adam",
                .fields = fields,
                .size = sizeof(struct adam_config),
                .shorthand = "lr",
                .help = "Adaptive moments, like torch.optim.Adam",
                .check = adam_check},
    .nslots = 3,
    .slots = adam_slots,
    .slot_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .variant = adam_variant,
    .formulas = adam_formulas,
    .numbers = adam_numbers_of,
    .adaptive = true,
};
#endif
