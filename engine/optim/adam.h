/* What adam, adamw and lamb share: the moments, adam's formula, and the keys. */
#pragma once
#include "engine/optim/formula.h"

/* The running means of the gradient and of its square, and what makes up for their being too small at first. */
struct moments {
    float keep_m, add_m, keep_v, add_v, unbias_v, eps;
};

FORMULA void moments_follow(const struct moments *k, float d, struct element *e) {
    e->m = k->keep_m * e->m + k->add_m * d;
    e->v = k->keep_v * e->v + k->add_v * d * d;
}

FORMULA float moments_root(const struct moments *k, const struct element *e) {
    return sqrtf(e->v) * k->unbias_v + k->eps;
}

struct adam_numbers {
    struct moments of;
    float l2, shrink, step, scale; /* decay goes into the gradient, or to the weights at once */
};

FORMULA void adam_formula(const struct adam_numbers *k, struct element *e) {
    float d = k->scale * e->g + k->l2 * e->w;
    moments_follow(&k->of, d, e);
    e->w = k->shrink * e->w - k->step * (e->m / moments_root(&k->of, e));
}

#ifdef FORMULA_IN_C
struct adam_config {
    double lr, eps, weight_decay;
    struct config_list betas; /* two */
    int decay;                /* enum optim_tensors */
};
struct moments adam_moments(const struct adam_config *c, int64_t t);
/* Without decay. */
struct adam_numbers adam_numbers(const struct adam_config *c, const struct optim_step *s);
double adam_lr(const void *config);
void adam_check(const void *config, const struct node *at, struct config_errors *e);

/* The schema's rows; only the standard weight decay differs. */
#define ADAM_ROWS(rate, small, decay_rate, decay_help, decay_of)                                   \
    {.key = "lr",                                                                                  \
     .type = CONFIG_REAL,                                                                          \
     .offset = offsetof(struct adam_config, lr),                                                   \
     .standard = rate,                                                                             \
     .max = -1,                                                                                    \
     .help = "Learning rate, before lr_scale and schedule"},                                       \
        {.key = "betas",                                                                           \
         .type = CONFIG_REALS,                                                                     \
         .offset = offsetof(struct adam_config, betas),                                            \
         .standard = "[0.9, 0.999]",                                                               \
         .max = 1,                                                                                 \
         .help = "How much is kept of the running means of the gradient and of its square"},       \
        {.key = "eps",                                                                             \
         .type = CONFIG_REAL,                                                                      \
         .offset = offsetof(struct adam_config, eps),                                              \
         .standard = small,                                                                        \
         .min = 1e-30,                                                                             \
         .max = 1,                                                                                 \
         .help = "Added to the denominator"},                                                      \
        {.key = "weight_decay",                                                                    \
         .type = CONFIG_REAL,                                                                      \
         .offset = offsetof(struct adam_config, weight_decay),                                     \
         .standard = decay_rate,                                                                   \
         .max = -1,                                                                                \
         .help = decay_help},                                                                      \
    {                                                                                              \
        .key = "decay", .type = CONFIG_ENUM, .offset = offsetof(struct adam_config, decay),        \
        .standard = decay_of, .choices = TENSORS_CHOICES, .help = DECAY_HELP                       \
    }
#define ADAM_FIELDS(...)                                                                           \
    ADAM_ROWS(__VA_ARGS__), {                                                                      \
        .key = NULL                                                                                \
    }
#endif
