#include "engine/base/rule.h"

#include "engine/base/vector.h"

void rule_step(const struct rule *r, const struct rule_span *s) {
    r->step->loop(r->number[s->kind], s);
}

void rule_measure(const struct rule *r, const struct rule_span *s, double square[RULE_NORMS]) {
    bool adapts = r->adapts[s->kind];
    if (r->direct) r->direct->loop(r->number[s->kind], s);
    square[0] = adapts ? squares_sum(s->w, s->n) : 0;
    square[1] = adapts ? squares_sum(s->g, s->n) : 0;
}
