/* AdamW, as torch.optim.AdamW: Adam whose weight decay bypasses the moments, w = w * (1 - lr *
 * weight_decay) first. */
#include "engine/optim/adam.h"

FORMULA void adamw_step(const struct adam_numbers *k, struct element *e) {
    adam_formula(k, 2, e);
}

FORMULA void adamw_amsgrad(const struct adam_numbers *k, struct element *e) {
    adam_formula(k, 3, e);
}

FORMULA_STEP(adamw_step, adam_numbers, 2)
FORMULA_STEP(adamw_amsgrad, adam_numbers, 3)
FORMULAS(adamw, FORMULA_OF(adamw_step), FORMULA_OF(adamw_amsgrad))

#ifdef FORMULA_IN_C
static void numbers_of(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct adam_config *c = config;
    struct adam_numbers k = adam_numbers(c, s);
    if (optim_applies(c->decay, matrix)) k.shrink = (float)(1 - s->lr * c->weight_decay);
    *(struct adam_numbers *)numbers = k;
}

static const struct config_field fields[] = {
    ADAM_ROWS("1e-3", "1e-8", "0.01", "This share of the weights, times the learning rate, is subtracted in every step",
              "all"),
    ADAM_AMSGRAD,
    {.key = NULL},
};

const struct optim_ops optim_adamw = {
    .section = {.name = "adamw",
                .fields = fields,
                .size = sizeof(struct adam_config),
                .shorthand = "lr",
                .help = "Adam with separate weight decay, like torch.optim.AdamW",
                .check = adam_check},
    .nslots = 3,
    .slots = adam_slots,
    .slot_names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
    .variant = adam_variant,
    .formulas = adamw_formulas,
    .numbers = numbers_of,
    .adaptive = true,
};
#endif
