/* The running mean e of the weights w, after each update:
 *
 *     e = w                            at the first
 *     e = e + (1 - decay) * (w - e)
 */
#include "engine/optim/formula.h"

struct ema_numbers {
    float add, copies;
};

FORMULA void ema_step(const struct ema_numbers *k, struct element *e) {
    e->m = k->copies > 0 ? e->w : e->m + k->add * (e->w - e->m);
}

FORMULA_STEP(ema_step, ema_numbers, 1)
FORMULAS(ema, FORMULA_OF(ema_step))

#ifdef FORMULA_IN_C
#include "engine/optim/ema.h"

void ema_rule(double decay, int64_t t, struct rule *out) {
    const struct ema_numbers numbers = {.add = (float)(1 - decay), .copies = t == 1};
    *out = (struct rule){.step = ema_formulas};
    memcpy(out->number[0], &numbers, sizeof numbers);
}
#endif
