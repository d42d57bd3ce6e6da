/* An optimizer's formula is what a step makes of one element, written once. C makes a loop over a span of it, and CUDA
 * (engine/device/cuda/update.cu, which includes the files of optims.def and rules.def and has macros of its own for those
 * below) a kernel. It is plain arithmetic, each operation rounded by itself on every device, so the bits are the same.
 *
 *   struct NAME_numbers { float ...; };                  what is the same for all elements
 *   FORMULA void NAME_step(const struct NAME_numbers *k, struct element *e) { ... }
 *   FORMULA_STEP(NAME_step, NAME_numbers, slots)         writes w and this number of slots
 *   FORMULA_DIRECT(NAME_direction, NAME_numbers, slots)     before norms are taken: writes g and this number of slots
 *   FORMULAS(NAME, FORMULA_OF(NAME_step), ...)           all of them, as the array NAME_formulas
 *   #ifdef FORMULA_IN_C ... #endif                       keys, numbers, the table's row: C alone reads the rest */
#pragma once
#include "engine/base/rule.h"

struct element {
    float w, g, m, v, x; /* m, v and x: slots 0, 1 and 2 */
    float rate;          /* the span's */
};

#ifndef FORMULA
#define FORMULA_IN_C
#include "engine/base/real.h"
#include "engine/optim/optim.h"

#include <math.h>
#include <string.h>

#define FORMULA static inline
#define FORMULA_LOOP(name, numbers, slots, to)                                                                         \
    VECTORISED static void name##_loop(const float *number, const struct rule_span *s) {                               \
        float *restrict w = s->w, *restrict g = s->g;                                                                  \
        float *restrict m = s->slot[0], *restrict v = s->slot[1], *restrict x = s->slot[2];                            \
        struct numbers k;                                                                                              \
        float rate = s->rate;                                                                                          \
        int64_t n = s->n;                                                                                              \
        _Static_assert(sizeof k <= RULE_NUMBERS * sizeof(float), "a rule has room for them");                          \
        memcpy(&k, number, sizeof k);                                                                                  \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            struct element e = {.w = w[i], .g = g[i], .rate = rate};                                                   \
            if ((slots) > 0) e.m = m[i];                                                                               \
            if ((slots) > 1) e.v = v[i];                                                                               \
            if ((slots) > 2) e.x = x[i];                                                                               \
            name(&k, &e);                                                                                              \
            to[i] = e.to;                                                                                              \
            if ((slots) > 0) m[i] = e.m;                                                                               \
            if ((slots) > 1) v[i] = e.v;                                                                               \
            if ((slots) > 2) x[i] = e.x;                                                                               \
        }                                                                                                              \
    }
#define FORMULA_STEP(name, numbers, slots) FORMULA_LOOP(name, numbers, slots, w)
#define FORMULA_DIRECT(name, numbers, slots) FORMULA_LOOP(name, numbers, slots, g)
#define FORMULA_OF(name)                                                                                               \
    { #name, name##_loop }
#define FORMULAS(optim, ...) static const struct formula optim##_formulas[] = {__VA_ARGS__};
#endif
