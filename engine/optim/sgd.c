/* Stochastic gradient descent with momentum, as torch.optim.SGD:
 *
 *     d = g + weight_decay * w
 *     b = momentum * b + (1 - dampening) * d         the first step's b is d
 *     w = w - lr * b               nesterov: w - lr * (d + momentum * b)
 *
 * Without momentum b is neither read nor written: w = w - lr * d. */
#include "engine/optim/formula.h"

struct sgd_numbers {
    float lr, scale, decay, momentum, add;
};

FORMULA float sgd_gradient(const struct sgd_numbers *k, const struct element *e) {
    return k->scale * e->g + k->decay * e->w;
}

FORMULA void sgd_plain(const struct sgd_numbers *k, struct element *e) {
    e->w -= k->lr * sgd_gradient(k, e);
}

FORMULA void sgd_momentum(const struct sgd_numbers *k, struct element *e) {
    e->m = k->momentum * e->m + k->add * sgd_gradient(k, e);
    e->w -= k->lr * e->m;
}

FORMULA void sgd_nesterov(const struct sgd_numbers *k, struct element *e) {
    float d = sgd_gradient(k, e);
    e->m = k->momentum * e->m + d;
    e->w -= k->lr * (d + k->momentum * e->m);
}

FORMULA_STEP(sgd_plain, sgd_numbers, 0)
FORMULA_STEP(sgd_momentum, sgd_numbers, 1)
FORMULA_STEP(sgd_nesterov, sgd_numbers, 1)
FORMULAS(sgd, FORMULA_OF(sgd_plain), FORMULA_OF(sgd_momentum), FORMULA_OF(sgd_nesterov))

#ifdef FORMULA_IN_C
struct sgd_config {
    double lr, momentum, dampening, weight_decay;
    int decay; /* enum optim_tensors */
    bool nesterov;
};

enum { PLAIN, MOMENTUM, NESTEROV }; /* of sgd_formulas */

static int sgd_variant(const void *config) {
    const struct sgd_config *c = config;
    return c->momentum == 0 ? PLAIN : c->nesterov ? NESTEROV : MOMENTUM;
}

static void sgd_numbers(const void *config, const struct optim_step *s, bool matrix, void *numbers) {
    const struct sgd_config *c = config;
    *(struct sgd_numbers *)numbers = (struct sgd_numbers){
        .lr = s->lr,
        .scale = s->scale,
        .decay = optim_applies(c->decay, matrix) ? (float)c->weight_decay : 0,
        .momentum = (float)c->momentum,
        .add = s->t == 1 ? 1 : (float)(1 - c->dampening),
    };
}

static void sgd_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct sgd_config *c = config;
    if (c->nesterov && c->momentum == 0)
        config_error(e, node_get(at, "nesterov"), true, "nesterov needs a momentum\nset momentum: 0.9");
    if (c->dampening > 0 && (c->nesterov || c->momentum == 0))
        config_error(e, node_get(at, "dampening"), true, "dampening is of a momentum without nesterov\nleave it out");
}

static const struct config_field fields[] = {
    OPTIM_REAL(sgd_config, lr, "0.05", "Learning rate, before lr_scale and schedule", .max = -1,
               .also = "learning_rate|base_lr|max_lr"),
    OPTIM_REAL(sgd_config, momentum, "0", "Share of the previous update that is kept; 0.9 is usual", .max = 1),
    OPTIM_REAL(sgd_config, dampening, "0",
               "Share of the gradient that is left out of the momentum after the first step", .max = 1),
    {.key = "nesterov",
     .type = CONFIG_BOOL,
     .offset = offsetof(struct sgd_config, nesterov),
     .standard = "false",
     .help = "Look one momentum step ahead"},
    OPTIM_REAL(sgd_config, weight_decay, "0", "This times the weights is added to the gradient (L2)", .max = -1,
               .also = "wd|l2"),
    OPTIM_TENSORS(sgd_config, decay, "all", DECAY_HELP),
    {.key = NULL},
};

const struct optim_ops optim_sgd = {
    .section = {.name = "sgd",
                .fields = fields,
                .size = sizeof(struct sgd_config),
                .shorthand = "lr",
                .help = "Gradient descent with momentum, like torch.optim.SGD",
                .check = sgd_check},
    .nslots = 1,
    .slot_names = {"momentum_buffer"},
    .formulas = sgd_formulas,
    .variant = sgd_variant,
    .numbers = sgd_numbers,
};
#endif
