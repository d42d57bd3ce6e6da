#include "lab/gate.h"

#include "lab/quantity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct gate {
    struct check check;
    int axis[CHECK_CONDITIONS];
    struct quantity quantity[2];
    bool word; /* the second term is a text as it stands: "inconclusive" */
};

static bool is_text(const struct quantity *q) {
    return q->kind >= QUANTITY_WEIGHTS;
}

static bool read_gate(const struct experiment *x, const char *text, struct gate *g, char wrong[CHECK_WRONG]) {
    const struct check *c = &g->check;
    *g = (struct gate){0};
    if (!check_read(text, &g->check, wrong)) return false;
    if (!*c->term[0].quantity) {
        snprintf(wrong, CHECK_WRONG, "SIDE.METRIC is wanted first, not '%.80s'", text);
        return false;
    }
    if (!quantity_read(x, c->term[0].quantity, &g->quantity[0], wrong)) return false;
    g->word = is_text(&g->quantity[0]) && !strchr(c->term[1].quantity, '.');
    if (*c->term[1].quantity && !g->word && !quantity_read(x, c->term[1].quantity, &g->quantity[1], wrong))
        return false;
    for (int i = 0; i < 2; i++)
        if (g->quantity[i].kind == QUANTITY_PREDICTED)
            snprintf(wrong, CHECK_WRONG, "gates cannot use predictions, because they are judged before");
    return !*wrong && quantity_conditions(x, c, g->axis, wrong);
}

/* The cells of both terms at the place of 'cell', which is one of its first side's. */
static bool stands(const struct experiment *x, const struct gate *g, int cell, int out[2]) {
    if (!quantity_stands(x, &g->quantity[0], &g->check, g->axis, cell)) return false;
    bool second = *g->check.term[1].quantity && !g->word;
    out[0] = cell;
    out[1] = second ? quantity_cell(x, &g->quantity[1], cell) : cell;
    return out[1] >= 0;
}

enum error gate_check(const struct experiment *x, int gate, struct config_errors *e) {
    struct gate g;
    char wrong[CHECK_WRONG];
    const struct experiment_gate *at = &x->gate[gate];
    int cells[2];
    bool anywhere = false;
    if (!read_gate(x, at->text, &g, wrong)) {
        config_error(e, at->place, false,
                     "gate '%s': %s\nfor example 'ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4'", at->text,
                     wrong);
        return ERR_CONFIG;
    }
    for (int i = 0; i < x->ncells; i++) anywhere |= stands(x, &g, i, cells);
    if (anywhere) return ERR_NONE;
    config_error(e, at->place, false, "gate '%s' matches no cell of the matrix: it can never fail", at->text);
    return ERR_CONFIG;
}

/* ---- judging ---- */

static void value_of(const struct compared *c, const struct gate *g, int term, int cell, struct check_value *out) {
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

static const char *words_of(const struct compared *c, const char *text, int cell, const struct check_value *a,
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
    if (!read_gate(c->x, text, &g, wrong)) return;
    for (int i = 0; i < c->x->ncells; i++) {
        if (!stands(c->x, &g, i, cells)) continue;
        value_of(c, &g, 0, cells[0], &a);
        value_of(c, &g, 1, cells[1], &b);
        places++;
        int holds = check_holds(&a, g.check.op, &b);
        if (holds < 0) {
            out->judged = false;
        } else if (holds) {
            out->passed = false;
            out->words = words_of(c, text, cells[0], &a, &b);
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
