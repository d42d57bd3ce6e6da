/* Lion (Chen et al. 2023, arXiv:2302.06675): every weight moves by the learning rate, up or down,
 *
 *     c = beta1 * m + (1 - beta1) * g
 *     w = w * (1 - lr * weight_decay) - lr * sign(c)        sign(0) = 0
 *     m = beta2 * m + (1 - beta2) * g                       m begins as zero
 *
 * One slot, where Adam has two. It wants a learning rate three to ten times smaller than AdamW's,
 * and a weight decay as many times larger. */
#include "engine/optim/formula.h"

struct lion_numbers {
    float shrink, lr, scale, keep_c, add_c, keep_m, add_m;
};

FORMULA void lion_step(const struct lion_numbers *k, struct element *e) {
    float d = k->scale * e->g, c = k->keep_c * e->m + k->add_c * d;
    float move = c > 0 ? k->lr : c < 0 ? -k->lr : c * 0; /* not a number stays so */
    e->w = k->shrink * e->w - move;
    e->m = k->keep_m * e->m + k->add_m * d;
}

FORMULA_STEP(lion_step, lion_numbers, 1)
FORMULAS(lion, FORMULA_OF(lion_step))

#ifdef FORMULA_IN_C
struct lion_config {
    double lr, weight_decay;
    struct config_list betas; /* two */
    int decay;                /* enum optim_tensors */
};

static void lion_numbers(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct lion_config *c = config;
    const double *beta = c->betas.items;
    bool decays = optim_applies(c->decay, matrix);
    *(struct lion_numbers *)numbers = (struct lion_numbers){.shrink = decays ? (float)(1 - s->lr * c->weight_decay) : 1,
                                                            .lr = s->lr,
                                                            .scale = s->scale,
                                                            .keep_c = (float)beta[0],
                                                            .add_c = (float)(1 - beta[0]),
                                                            .keep_m = (float)beta[1],
                                                            .add_m = (float)(1 - beta[1])};
}

static void lion_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct lion_config *c = config;
    optim_check_betas(&c->betas, at, "[0.9, 0.99]", e);
}

static const struct config_field fields[] = {
    OPTIM_REAL(lion_config, lr, "1e-4",
               "Learning rate, before lr_scale and schedule: each step changes a weight by this much", .max = -1),
    OPTIM_BETAS(lion_config, "[0.9, 0.99]",
                "Shares of the running mean of the gradient that are kept: for the sign, and for itself"),
    OPTIM_REAL(lion_config, weight_decay, "0",
               "This share of the weights, times the learning rate, is subtracted in every step", .max = -1),
    OPTIM_TENSORS(lion_config, decay, "all", DECAY_HELP),
    {.key = NULL},
};

const struct optim_ops optim_lion = {
    .section = {.name = "lion",
                .fields = fields,
                .size = sizeof(struct lion_config),
                .shorthand = "lr",
                .help = "The sign of the momentum (arXiv:2302.06675): half of Adam's state",
                .check = lion_check},
    .nslots = 1,
    .slot_names = {"exp_avg"},
    .formulas = lion_formulas,
    .numbers = lion_numbers,
    .adaptive = true,
};
#endif
