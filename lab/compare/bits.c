/* Whether sides compute the same bits, and where they begin to differ. */
#include "lab/compare/compare.h"

#include <math.h>
#include <string.h>

/* The first step whose loss is not equal, of those that both have. */
static void bits_find_step(const struct run_result *a, const struct run_result *b, struct compared_pair *p) {
    int64_t i = 0, k = 0;
    while (i < a->nsteps && k < b->nsteps) {
        const struct result_step *s = &a->step[i], *t = &b->step[k];
        if (s->step < t->step) {
            i++;
        } else if (t->step < s->step) {
            k++;
        } else if (s->loss != t->loss && !(isnan(s->loss) && isnan(t->loss))) {
            p->step = s->step, p->loss[0] = s->loss, p->loss[1] = t->loss;
            return;
        } else {
            i++, k++;
        }
    }
}

/* The first run of a cell that has the same seed as a run: any run, where all have the configuration's. NULL: none. */
static const struct run_result *bits_same_seed(const struct compared *c, int cell, const struct compared_run *r) {
    const struct compared_cell *in = &c->cell[cell];
    for (int i = 0; i < in->nruns; i++)
        if (!c->x->nseeds || in->run[i].repeat == r->repeat) return &in->run[i].result;
    return NULL;
}

/* Each run of both sides is held against A's first of the same seed. */
static void compare_runs(struct compared *c, struct compared_pair *p) {
    p->same_losses = p->same_weights = true;
    p->step = 0, p->tensor = NULL;
    for (int side = 0; side < 2; side++) {
        const struct compared_cell *cell = &c->cell[p->cell[side]];
        for (int i = 0; i < cell->nruns; i++) {
            const struct run_result *r = &cell->run[i].result, *first = bits_same_seed(c, p->cell[0], &cell->run[i]);
            if (!first) continue;
            bool weights = *r->weights && !strcmp(first->weights, r->weights), known = *first->losses || *r->losses;
            bool losses = known ? !strcmp(first->losses, r->losses) : weights;
            if (!p->tensor && !(losses && weights)) p->tensor = compare_tensors(first->dir, r->dir, c->pool);
            if (p->same_losses && !losses) {
                bits_find_step(first, r, p);
                if (side == 0)
                    compare_warn(c, "%s: two runs of the same configuration have different losses (%s, %s)",
                                 c->x->cell[p->cell[0]].label, first->dir, r->dir);
            }
            p->same_losses &= losses, p->same_weights &= weights;
        }
    }
}

/* A command may tell of no weights. */
static bool bits_has_weights(const struct compared *c, int cell) {
    for (int i = 0; i < c->cell[cell].nruns; i++)
        if (!*c->cell[cell].run[i].result.weights) return false;
    return true;
}

static enum error bits_list_differences(struct compared *c, struct compared_pair *p) {
    const struct experiment_cell *a = &c->x->cell[p->cell[0]], *b = &c->x->cell[p->cell[1]];
    TRY_MEMORY(p->differs = pool_alloc(c->pool, COMPARE_DIFFERENCES * sizeof *p->differs));
    p->ndiffers = settings_differ(a, b, NULL, p->differs, COMPARE_DIFFERENCES);
    p->comparable = true;
    for (int i = 0; i < p->ndiffers; i++) p->comparable &= !p->differs[i].computes;
    if (settings_of_command(a->setting, a->nsettings) || settings_of_command(b->setting, b->nsettings))
        p->comparable = bits_has_weights(c, p->cell[0]) && bits_has_weights(c, p->cell[1]);
    return ERR_NONE;
}

/* Whether both cells should end in the same weights: nothing that decides what is computed differs. */
static bool bits_computes_the_same(const struct experiment_cell *a, const struct experiment_cell *b) {
    struct setting_difference d[COMPARE_DIFFERENCES];
    int n = settings_differ(a, b, NULL, d, COMPARE_DIFFERENCES);
    for (int i = 0; i < n; i++)
        if (d[i].computes) return false;
    return true;
}

enum error compare_all_bits(struct compared *c) {
    const struct experiment *x = c->x;
    bool any = false;
    for (int i = 0; i < x->npairs; i++) {
        struct compared_pair *p = &c->pair[i];
        TRY(bits_list_differences(c, p));
        p->held = p->comparable && c->cell[p->cell[0]].nruns > 0 && c->cell[p->cell[1]].nruns > 0;
        if (p->held) compare_runs(c, p);
    }
    c->alike = c->same_bits = true;
    for (int i = 0; i < x->ncells; i++) {
        c->alike &= bits_computes_the_same(&x->cell[0], &x->cell[i]);
        for (int k = 0; k < c->cell[i].nruns; k++) {
            const struct run_result *mine = &c->cell[i].run[k].result, *first = NULL;
            for (int other = 0; other <= i && !first; other++) first = bits_same_seed(c, other, &c->cell[i].run[k]);
            c->same_bits &= *mine->weights && !strcmp(first->weights, mine->weights);
            c->same_bits &= !strcmp(first->losses, mine->losses);
            any = true;
        }
    }
    c->same_bits &= c->alike && any;
    return ERR_NONE;
}
