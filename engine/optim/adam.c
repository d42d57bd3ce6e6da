/* Adam, as torch.optim.Adam: t counts from 1,
 *
 *     w = w * shrink                       (adamw alone; 1 here)
 *     d = g + weight_decay * w             (adam alone)
 *     m = beta1 * m + (1 - beta1) * d      running mean of the gradient
 *     v = beta2 * v + (1 - beta2) * d * d  and of its square; both begin as zero and are too small
 * at first, hence w = w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * Whatever does not depend on the element is computed in double and rounded once. */
#include "engine/optim/adam.h"

#include "engine/base/vector.h"
#include <math.h>

VECTORISED static void adam_loop(const struct optim_span *s, const struct adam_factors *factors) {
    float *restrict w = s->w, *restrict m = s->slot[0], *restrict v = s->slot[1];
    const float *restrict g = s->g;
    struct adam_factors f = *factors;
    int64_t n = s->n;
    for (int64_t i = 0; i < n; i++) {
        float d = f.scale * g[i] + f.l2 * w[i];
        m[i] = f.keep_m * m[i] + f.add_m * d;
        v[i] = f.keep_v * v[i] + f.add_v * d * d;
        w[i] = f.shrink * w[i] - f.step * (m[i] / (sqrtf(v[i]) * f.unbias_v + f.eps));
    }
}

struct adam_factors adam_factors(const struct adam_config *c, const struct optim_span *s) {
    const double *beta = c->betas.items;
    double t = (double)s->t;
    return (struct adam_factors){
        .shrink = 1,
        .keep_m = (float)beta[0],
        .add_m = (float)(1 - beta[0]),
        .keep_v = (float)beta[1],
        .add_v = (float)(1 - beta[1]),
        .unbias_v = (float)(1 / sqrt(1 - pow(beta[1], t))),
        .eps = (float)c->eps,
        .step = (float)(s->lr / (1 - pow(beta[0], t))),
        .scale = s->scale,
    };
}

void adam_update(const struct adam_config *c, const struct optim_span *s, float l2, float shrink) {
    struct adam_factors f = adam_factors(c, s);
    if (optim_applies(c->decay, s)) f.l2 = l2, f.shrink = shrink;
    adam_loop(s, &f);
}

void adam_rule_of(const struct adam_config *c, const struct optim_span *s, float l2, float shrink,
                  struct rule *out) {
    struct adam_factors f = adam_factors(c, s);
    *out = (struct rule){.kind = RULE_ADAM,
                         .number = {[ADAM_KEEP_M] = f.keep_m,
                                    [ADAM_ADD_M] = f.add_m,
                                    [ADAM_KEEP_V] = f.keep_v,
                                    [ADAM_ADD_V] = f.add_v,
                                    [ADAM_UNBIAS_V] = f.unbias_v,
                                    [ADAM_EPS] = f.eps,
                                    [ADAM_L2] = l2,
                                    [ADAM_SHRINK] = shrink,
                                    [ADAM_STEP] = f.step},
                         .lr = s->lr,
                         .scale = s->scale,
                         .t = s->t,
                         .decay_all = c->decay == TENSORS_ALL};
}

double adam_lr(const void *config) {
    return ((const struct adam_config *)config)->lr;
}

void adam_check(const void *config, const struct node *at, struct config_errors *e) {
    const struct adam_config *c = config;
    optim_check_betas(&c->betas, at, "[0.9, 0.999]", e);
}

static void adam_step(const void *config, const struct optim_span *s) {
    const struct adam_config *c = config;
    adam_update(c, s, (float)c->weight_decay, 1);
}

static void adam_rule(const void *config, const struct optim_span *s, struct rule *out) {
    const struct adam_config *c = config;
    adam_rule_of(c, s, (float)c->weight_decay, 1, out);
}

static const struct config_field fields[] = {
    ADAM_FIELDS("1e-3", "1e-8", "0",
                "Times the weights, added to the gradient (L2); see adamw for decay apart", "all"),
};

const struct optim_ops optim_adam = {
    .section = {.name = "adam",
                .fields = fields,
                .size = sizeof(struct adam_config),
                .shorthand = "lr",
                .help = "Adaptive moments, as torch.optim.Adam",
                .check = adam_check},
    .nslots = 2,
    .slot_names = {"exp_avg", "exp_avg_sq"},
    .step = adam_step,
    .rule = adam_rule,
    .lr = adam_lr,
    .adaptive = true,
};
