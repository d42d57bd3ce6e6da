/* The parts that adam, adamw and lamb share: the moments, adam's formula, and the keys. */
#pragma once
#include "engine/optim/formula.h"

/* The running means of the gradient and of its square, and what makes up for their being too small at first. */
struct moment_numbers {
    float keep_m, add_m, keep_v, add_v, unbias_v, eps;
};

FORMULA void moments_follow(const struct moment_numbers *k, float d, struct element *e) {
    e->m = k->keep_m * e->m + k->add_m * d;
    e->v = k->keep_v * e->v + k->add_v * d * d;
}

/* v: the running mean of the square, or what stands in for it. */
FORMULA float moments_root(const struct moment_numbers *k, float v) {
    return sqrtf(v) * k->unbias_v + k->eps;
}

struct adam_numbers {
    struct moment_numbers of;
    float l2, shrink, step, scale; /* decay goes into the gradient, or to the weights at once */
};

/* slots: 3 with amsgrad, which divides by the largest v so far, x. */
FORMULA void adam_formula(const struct adam_numbers *k, int slots, struct element *e) {
    float d = k->scale * e->g + k->l2 * e->w;
    moments_follow(&k->of, d, e);
    if (slots > 2) e->x = e->x >= e->v ? e->x : e->v;
    e->w = k->shrink * e->w - k->step * (e->m / moments_root(&k->of, slots > 2 ? e->x : e->v));
}

#ifdef FORMULA_IN_C
struct adam_config {
    double lr, eps, weight_decay;
    struct config_list betas; /* two */
    int decay;                /* enum optim_tensors */
    bool amsgrad;             /* adam and adamw alone have it */
};
struct moment_numbers adam_moments(const struct adam_config *c, int64_t t);
/* The numbers of a step, without decay. */
struct adam_numbers adam_numbers(const struct adam_config *c, const struct optim_step *s);
int adam_variant(const void *config); /* 1 with amsgrad */
int adam_slots(const void *config);
void adam_check(const void *config, const struct node *at, struct config_errors *e);

/* The schema's rows; only the standard weight decay differs. */
#define ADAM_ROWS(rate, small, decay_rate, decay_help, decay_of)                                                       \
    OPTIM_REAL(adam_config, lr, rate, "Learning rate, before lr_scale and schedule", .max = -1),                       \
        OPTIM_BETAS(adam_config, "[0.9, 0.999]",                                                                       \
                    "How much is kept of the running means of the gradient and of its square"),                        \
        OPTIM_REAL(adam_config, eps, small, "Added to the denominator", .min = 1e-30, .max = 1),                       \
        OPTIM_REAL(adam_config, weight_decay, decay_rate, decay_help, .max = -1),                                      \
        OPTIM_TENSORS(adam_config, decay, decay_of, DECAY_HELP)
#define ADAM_AMSGRAD                                                                                                   \
    {                                                                                                                  \
        .key = "amsgrad", .type = CONFIG_BOOL, .offset = offsetof(struct adam_config, amsgrad), .standard = "false",   \
        .help =                                                                                                        \
            "Divide by the largest running mean of the square so far, as torch's amsgrad: one more number a weight"    \
    }
#endif
