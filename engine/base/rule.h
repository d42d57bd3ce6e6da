/* What an optimizer does to each element, as numbers: so that a device can do it where the weights lie. optim/
 * gives it for every optimizer and is, in plain C, what a device's own way is tested against. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum rule_kind { RULE_SGD, RULE_ADAM, RULE_LAMB, RULE_LARS, RULE_LION, RULE_KINDS };
enum { RULE_NUMBERS = 9, RULE_SLOTS = 2, RULE_NORMS = 2 };
/* What number[] holds, for each kind. Factors of elements are exact as float; what is computed from a tensor's
 * norms is in double, as everywhere. */
enum rule_sgd { SGD_DECAY, SGD_MOMENTUM, SGD_NESTEROV };
enum rule_adam { /* lamb: L2 is its decay, UNBIAS_M 1 / (1 - beta1^t); shrink and step are adam's and adamw's */
                 ADAM_KEEP_M,
                 ADAM_ADD_M,
                 ADAM_KEEP_V,
                 ADAM_ADD_V,
                 ADAM_UNBIAS_V,
                 ADAM_EPS,
                 ADAM_L2,
                 ADAM_SHRINK,
                 ADAM_STEP,
                 LAMB_UNBIAS_M = ADAM_STEP
};
enum rule_lars { LARS_DECAY, LARS_MOMENTUM, LARS_TRUST };
enum rule_lion { LION_SHRINK, LION_KEEP_C, LION_ADD_C, LION_KEEP_M, LION_ADD_M };
struct rule {
    enum rule_kind kind;
    double number[RULE_NUMBERS];
    float lr, scale;           /* as in optim_span */
    int64_t t;                 /* 1 for the first step */
    bool decay_all, adapt_all; /* else matrices alone */
};
/* A part of a tensor, in the device's memory. */
struct rule_span {
    float *w, *g, *slot[RULE_SLOTS];
    int64_t n;
    bool matrix;
    double norm[RULE_NORMS]; /* of the whole tensor, as in optim_span */
};
