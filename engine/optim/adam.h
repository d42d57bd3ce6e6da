/* What adam and adamw share: all but where the weight decay goes. */
#pragma once
#include "engine/optim/optim.h"

struct adam_config {
    double lr, eps, weight_decay;
    struct config_list betas; /* two */
};
/* One step; the decay goes into the gradient (g + l2 * w) or to the weights at once (w * shrink).
 */
void adam_update(const struct adam_config *c, const struct optim_span *s, float l2, float shrink);
double adam_lr(const void *config);
void adam_check(const void *config, const struct node *at, struct config_errors *e);

/* The schema's rows; only the standard weight decay differs. */
#define ADAM_FIELDS(decay, decay_help)                                                             \
    {.key = "lr",                                                                                  \
     .type = CONFIG_REAL,                                                                          \
     .offset = offsetof(struct adam_config, lr),                                                   \
     .standard = "1e-3",                                                                           \
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
         .standard = "1e-8",                                                                       \
         .min = 1e-30,                                                                             \
         .max = 1,                                                                                 \
         .help = "Added to the denominator"},                                                      \
        {.key = "weight_decay",                                                                    \
         .type = CONFIG_REAL,                                                                      \
         .offset = offsetof(struct adam_config, weight_decay),                                     \
         .standard = decay,                                                                        \
         .max = -1,                                                                                \
         .help = decay_help},                                                                      \
    {                                                                                              \
        .key = NULL                                                                                \
    }
