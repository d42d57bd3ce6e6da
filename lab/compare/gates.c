/* What a quantity of an experiment came to over the runs of a cell, and whether its gates hold. */
#include "lab/compare/compare.h"

#include <math.h>

/* The pair of side A and this cell; NULL: it is A's own. */
static const struct compared_pair *gate_pair_of(const struct compared *c, int cell) {
    for (int i = 0; i < c->x->npairs; i++)
        if (c->pair[i].cell[1] == cell && c->x->cell[c->pair[i].cell[0]].at[0] == 0) return &c->pair[i];
    return NULL;
}

/* NULL: of a pair that could not be tested, whose verdict nothing may rest on. */
static const char *gate_verdict_of(const struct compared *c, int measure, int cell) {
    const struct compared_pair *p = gate_pair_of(c, cell);
    if (!p) return "none"; /* side A is what others are held against */
    return p->answer[measure].verdict == VERDICT_UNTESTED ? NULL : compare_word(c, p, measure);
}

static double gate_answer_of(const struct compared *c, const struct quantity *q, int cell) {
    const struct compared_pair *p = gate_pair_of(c, cell);
    const struct compared_answer *a = p ? &p->answer[q->asked] : NULL;
    if (!a || !a->judged) return (double)NAN;
    switch (q->kind) {
    case QUANTITY_EFFECT:
        return a->statistics.estimate;
    case QUANTITY_LOW:
        return a->statistics.low;
    case QUANTITY_HIGH:
        return a->statistics.high;
    case QUANTITY_P:
        return a->verdict == VERDICT_UNTESTED || a->equal ? (double)NAN : a->statistics.p_all;
    default:
        return a->power;
    }
}

/* Takes the texts of a quantity in a cell: the digests of weights or losses of its runs, or its verdict. */
static void gate_texts_of(const struct compared *c, const struct quantity *q, int cell, struct check_value *out) {
    const struct compared_cell *runs = &c->cell[cell];
    if (q->kind == QUANTITY_VERDICT) {
        out->text[0] = gate_verdict_of(c, q->asked, cell), out->ntexts = out->text[0] != NULL, out->of[0] = 0;
        return;
    }
    for (int i = 0; i < runs->nruns; i++) {
        const struct run_result *r = &runs->run[i].result;
        const char *text = q->kind == QUANTITY_WEIGHTS ? r->weights : r->losses;
        if (!*text) continue; /* a command may tell of none */
        out->of[out->ntexts] = c->x->nseeds ? c->x->seeds[runs->run[i].repeat] + 1 : 0;
        out->text[out->ntexts++] = text;
    }
}

void quantity_value(const struct compared *c, const struct quantity *q, int cell, struct check_value *out) {
    const struct compared_cell *runs = &c->cell[cell];
    out->number = (double)NAN, out->ntexts = 0;
    switch (q->kind) {
    case QUANTITY_MEASURE:
        out->number = compare_median(c, cell, &q->measure);
        break;
    case QUANTITY_SPEEDUP:
        out->number = runs->speedup;
        break;
    case QUANTITY_EFFICIENCY:
        out->number = runs->efficiency;
        break;
    case QUANTITY_SPREAD:
        out->number = runs->spread;
        break;
    case QUANTITY_PREDICTED:
        out->number = c->predicted ? runs->predicted.step * 1000 : (double)NAN;
        break;
    case QUANTITY_WEIGHTS:
    case QUANTITY_LOSSES:
    case QUANTITY_VERDICT:
        gate_texts_of(c, q, cell, out);
        break;
    default:
        out->number = gate_answer_of(c, q, cell);
    }
}

/* ---- gates ---- */

static void gate_term_value(const struct compared *c, const struct gate *g, int term, int cell,
                            struct check_value *out) {
    const struct check_term *t = &g->check.term[term];
    *out = (struct check_value){.number = t->factor};
    if (!*t->quantity) return;
    if (term == 1 && g->word) {
        out->text[out->ntexts++] = t->quantity;
        return;
    }
    quantity_value(c, &g->quantity[term], cell, out);
    out->number = t->factor * out->number + t->plus;
}

static const char *gate_failed_words(const struct compared *c, const char *text, int cell, const struct check_value *a,
                                     const struct check_value *b) {
    const char *label = c->x->cell[cell].label;
    if (a->ntexts) return pool_printf(c->pool, "%s: %s has %.16s beside %.16s", text, label, a->text[0], b->text[0]);
    return pool_printf(c->pool, "%s: %s has %.6g, the limit is %.6g", text, label, a->number, b->number);
}

void gate_judge(const struct compared *c, int gate, struct compared_gate *out) {
    const char *text = c->x->gate[gate].text;
    struct gate g;
    char wrong[CHECK_WRONG];
    struct check_value a, b;
    int cells[2], places = 0;
    *out = (struct compared_gate){.judged = true, .passed = true, .words = text};
    if (!gate_read(c->x, text, &g, wrong)) return;
    for (int i = 0; i < c->x->ncells; i++) {
        if (!gate_stands(c->x, &g, i, cells)) continue;
        gate_term_value(c, &g, 0, cells[0], &a);
        gate_term_value(c, &g, 1, cells[1], &b);
        places++;
        int holds = check_holds(&a, g.check.op, &b);
        if (holds < 0) {
            out->judged = false;
        } else if (holds) {
            out->passed = false;
            out->words = gate_failed_words(c, text, cells[0], &a, &b);
            return;
        }
    }
    bool verdict = g.quantity[0].kind == QUANTITY_VERDICT;
    if (!out->judged)
        out->words = pool_printf(c->pool, "%s: not judged, since %s", text,
                                 verdict ? "a pair has no verdict" : "runs or their numbers are missing");
    else
        out->words = pool_printf(c->pool, "%s: holds in none of %d place%s", text, places, places == 1 ? "" : "s");
    if (!out->words) out->words = text;
}
