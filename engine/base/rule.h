/* An optimizer's step in a form that a device can compute on its own memory: a formula for each element, and its
 * numbers. optim/ provides it for every optimizer. A device runs the formula by its name, or the loop in plain C; the
 * bits are the same. */
#pragma once
#include "engine/base/vector.h"

#include <stdbool.h>
#include <stdint.h>

enum { RULE_NUMBERS = 12, RULE_SLOTS = 3, RULE_NORMS = 2, RULE_KINDS = 64 };
/* A part of a tensor, in the device's memory. */
struct rule_span {
    float *w; /* weights, updated */
    float *g; /* gradient of the global batch's mean loss; 'direct' leaves something else here for 'step' */
    float *slot[RULE_SLOTS]; /* state, updated; all zero before the first step */
    int64_t n;
    float rate;   /* of this tensor alone, from its norms or its shape; 0 where the optimizer asks for none */
    int kind;     /* of tensor: which of the rule's numbers are its own (optim_kind) */
    int64_t rows; /* of the whole matrix that this is, where the optimizer works on such; else 0 */
    int64_t columns;
};
/* What there is to work on a whole matrix: memory, and a way to share loops among threads. */
struct rule_work {
    float *scratch;
    void (*share)(void *by, int64_t n, void (*part)(void *ctx, int64_t begin, int64_t end), void *ctx);
    void *by;
};
struct formula {
    const char *name;
    void (*loop)(const float *number, const struct rule_span *s);
};
struct rule {
    const struct formula *step;
    const struct formula *direct; /* before norms are taken; NULL: nothing */
    /* Before the step, of spans with rows: leaves something else in the place of the gradient. On the host's memory alone.
     * NULL: nothing. */
    void (*whole)(const float *number, const struct rule_span *s, const struct rule_work *w);
    float *scratch;                         /* for it */
    bool adapts[RULE_KINDS];                /* whether it has norms, by rule_span.kind */
    float number[RULE_KINDS][RULE_NUMBERS]; /* what the formulas read, likewise */
};

/* The functions in plain C, on the host's memory. rule_measure gives sums of squares of w and g after 'direct', as
 * squares_sum does; zero if the tensor does not adapt. */
void rule_step(const struct rule *r, const struct rule_span *s);
void rule_measure(const struct rule *r, const struct rule_span *s, double square[RULE_NORMS]);
