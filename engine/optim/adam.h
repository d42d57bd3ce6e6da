/* What adam and adamw share: all but where the weight decay goes. */
#pragma once
#include "engine/optim/optim.h"

struct adam_config {
    double lr, eps, weight_decay;
    struct config_list betas; /* two */
    int decay;                /* enum optim_tensors */
};
/* Of a step, whatever does not depend on the element: made in double and rounded once. */
struct adam_factors {
    float l2, shrink, keep_m, add_m, keep_v, add_v, unbias_v, eps, step, scale;
};
struct adam_factors adam_factors(const struct adam_config *c, const struct optim_span *s);
/* One step; the decay goes into the gradient (g + l2 * w) or to the weights at once (w * shrink).
 */
void adam_update(const struct adam_config *c, const struct optim_span *s, float l2, float shrink);
/* The step as numbers; l2 and shrink as in adam_update, where the tensor decays. */
void adam_rule_of(const struct adam_config *c, const struct optim_span *s, float l2, float shrink,
                  struct rule *out);
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
