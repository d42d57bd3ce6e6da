/* LAMB (You et al. 2019, arXiv:1904.00962): AdamW whose step is scaled for each tensor to the size
 * of its weights, t from 1:
 *
 *     m = beta1 * m + (1 - beta1) * g         v = beta2 * v + (1 - beta2) * g * g
 *     u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay * w
 *     w = w - lr * |w| / |u| * u              the ratio is 1 where |w| or |u| is 0
 *
 * Biases and norms (tensors of one dimension) neither adapt nor decay, unless 'adapt' and 'decay'
 * say so. 'measure' makes u in the place of the gradient, so that 'step' only scales it. */
#include "engine/optim/adam.h"

#include "engine/base/vector.h"
#include <math.h>

struct lamb_config {
    struct adam_config adam; /* first: adam.h's rows are for it */
    int adapt;               /* enum optim_tensors */
};
enum { NORM_W, NORM_U, NORMS };

VECTORISED static void direct(const struct optim_span *s, const struct adam_factors *factors,
                              float unbias_m, float decay) {
    float *restrict g = s->g, *restrict m = s->slot[0], *restrict v = s->slot[1];
    const float *restrict w = s->w;
    struct adam_factors f = *factors;
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        float d = f.scale * g[i];
        m[i] = f.keep_m * m[i] + f.add_m * d;
        v[i] = f.keep_v * v[i] + f.add_v * d * d;
        g[i] = unbias_m * m[i] / (sqrtf(v[i]) * f.unbias_v + f.eps) + decay * w[i];
    }
}

VECTORISED static void move(const struct optim_span *s, float by) {
    float *restrict w = s->w;
    const float *restrict u = s->g;
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) w[i] -= by * u[i];
}

static void lamb_measure(const void *config, const struct optim_span *s, double *square) {
    const struct lamb_config *c = config;
    const double *beta = c->adam.betas.items;
    struct adam_factors f = adam_factors(&c->adam, s);
    float decay = optim_applies(c->adam.decay, s) ? (float)c->adam.weight_decay : 0;
    direct(s, &f, (float)(1 / (1 - pow(beta[0], (double)s->t))), decay);
    if (!optim_applies(c->adapt, s)) return;
    square[NORM_W] = squares_sum(s->w, s->n);
    square[NORM_U] = squares_sum(s->g, s->n);
}

static void lamb_step(const void *config, const struct optim_span *s) {
    const struct lamb_config *c = config;
    double w = s->norm[NORM_W], u = s->norm[NORM_U];
    bool adapts = optim_applies(c->adapt, s) && w > 0 && u > 0;
    move(s, (float)(s->lr * (adapts ? w / u : 1)));
}

static void lamb_rule(const void *config, const struct optim_span *s, struct rule *out) {
    const struct lamb_config *c = config;
    const double *beta = c->adam.betas.items;
    adam_rule_of(&c->adam, s, (float)c->adam.weight_decay, 1, out);
    out->kind = RULE_LAMB;
    out->number[LAMB_UNBIAS_M] = 1 / (1 - pow(beta[0], (double)s->t));
    out->adapt_all = c->adapt == TENSORS_ALL;
}

static const struct config_field fields[] = {
    ADAM_ROWS("1e-3", "1e-6", "0.01", "Times the weights, added to the direction of the step",
              "matrices"),
    {.key = "adapt",
     .type = CONFIG_ENUM,
     .offset = offsetof(struct lamb_config, adapt),
     .standard = "matrices",
     .choices = TENSORS_CHOICES,
     .help = ADAPT_HELP},
    {.key = NULL},
};

const struct optim_ops optim_lamb = {
    .section = {.name = "lamb",
                .fields = fields,
                .size = sizeof(struct lamb_config),
                .shorthand = "lr",
                .help = "AdamW with a learning rate for each tensor (arXiv:1904.00962), for large "
                        "batches",
                .check = adam_check},
    .nslots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .nnorms = NORMS,
    .measure = lamb_measure,
    .step = lamb_step,
    .rule = lamb_rule,
    .lr = adam_lr,
    .adaptive = true,
};
