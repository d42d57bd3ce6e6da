#include "lab/experiment/gate.h"

#include <stdio.h>
#include <string.h>

bool gate_read(const struct experiment *x, const char *text, struct gate *g, char wrong[CHECK_WRONG]) {
    const struct check *c = &g->check;
    *g = (struct gate){0};
    if (!check_read(text, &g->check, wrong)) return false;
    if (!*c->term[0].quantity) {
        snprintf(wrong, CHECK_WRONG, "SIDE.METRIC is wanted first, not '%.80s'", text);
        return false;
    }
    if (!quantity_read(x, c->term[0].quantity, &g->quantity[0], wrong)) return false;
    g->word = g->quantity[0].kind >= QUANTITY_WEIGHTS && !strchr(c->term[1].quantity, '.');
    if (*c->term[1].quantity && !g->word && !quantity_read(x, c->term[1].quantity, &g->quantity[1], wrong))
        return false;
    for (int i = 0; i < 2; i++)
        if (g->quantity[i].kind == QUANTITY_PREDICTED)
            snprintf(wrong, CHECK_WRONG, "gates cannot use predictions, because they are judged before");
    return !*wrong && quantity_conditions(x, c, g->axis, wrong);
}

bool gate_stands(const struct experiment *x, const struct gate *g, int cell, int out[2]) {
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
    if (!gate_read(x, at->text, &g, wrong)) {
        config_error(e, at->place, false,
                     "gate '%s': %s\nfor example 'ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4'", at->text,
                     wrong);
        return ERR_CONFIG;
    }
    for (int i = 0; i < x->ncells; i++) anywhere |= gate_stands(x, &g, i, cells);
    if (anywhere) return ERR_NONE;
    config_error(e, at->place, false, "gate '%s' matches no cell of the matrix: it can never fail", at->text);
    return ERR_CONFIG;
}
