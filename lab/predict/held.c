#include "lab/predict/held.h"

#include <math.h>

/* The most bytes that so many neighbours have. */
static double held_run(const struct held_ask *a, int count) {
    double most = 0;
    for (int b = 0; b < a->buckets; b++) {
        double run = 0;
        for (int k = b; k < b + count && k < a->buckets; k++) run += a->bytes[k];
        most = fmax(most, run);
    }
    return most;
}

struct held held_find(const struct held_ask *a) {
    const struct exchange_plan *p = a->plan;
    double part = a->arena / a->devices, others = 1 - 1.0 / a->devices, largest = held_run(a, 1);
    double sums = floor(log2(a->passes > 1 ? a->passes : 1)) + 1; /* of passes, which are kept at once */
    bool owned = p->update == UPDATE_BY_OWNERS;
    struct held h = {.weights = p->kept == WEIGHTS_KEPT ? a->arena : part, .gradients = sums * a->arena};
    if (p->kept == WEIGHTS_A_PASS) h.gathered = a->arena - part;
    if (p->kept == WEIGHTS_A_LAYER) h.gathered = fmin(held_run(a, PLAN_AHEAD + 1), a->arena) * others;
    bool lean = p->lean && !p->staged; /* a stage's memory is that of its layers, which a plan does not know */
    if (lean && a->passes <= 1) h.gradients = fmin(part + largest, a->arena);
    if (lean) h.leaving = (PLAN_AHEAD + 1) * largest;
    h.state = a->serves_apart ? 0 : a->slots * (owned ? a->arena / a->owners : a->arena);
    return h;
}

double held_all(const struct held *h) {
    return h->weights + h->gathered + h->gradients + h->leaving + h->state;
}
