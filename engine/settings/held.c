#include "engine/settings/held.h"

#include <math.h>

const char *const held_keys[HELD_PARTS] = {"weights", "gathered", "gradients", "leaving", "optimizer", "activations"};

double held_sums(int passes) {
    return floor(log2(passes > 1 ? passes : 1)) + 1;
}

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
    bool owned = p->update == UPDATE_BY_OWNERS;
    struct held h = {.of = {[HELD_WEIGHTS] = p->kept == WEIGHTS_KEPT ? a->arena : part,
                            [HELD_GRADIENTS] = a->sums * a->arena,
                            [HELD_OPTIMIZER] = a->serves_apart ? 0 : a->slots * a->arena / (owned ? a->owners : 1)}};
    if (p->kept == WEIGHTS_A_PASS) h.of[HELD_GATHERED] = a->arena - part;
    if (p->kept == WEIGHTS_A_LAYER) h.of[HELD_GATHERED] = fmin(held_run(a, PLAN_AHEAD + 1), a->arena) * others;
    bool lean = p->lean && !p->staged; /* a stage's memory is that of its layers, which a plan does not know */
    if (lean && a->sums <= 1) h.of[HELD_GRADIENTS] = fmin(part + largest, a->arena);
    if (lean) h.of[HELD_LEAVING] = (PLAN_AHEAD + 1) * largest;
    return h;
}

double held_all(const struct held *h) {
    double all = 0;
    for (int i = 0; i < HELD_PARTS; i++) all += h->of[i];
    return all;
}
