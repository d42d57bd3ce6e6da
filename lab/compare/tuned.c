/* What tuning came to: the scores of all tries, the chosen ones and their edges, and how sure the choice is. */
#include "lab/compare/compare.h"

#include "engine/base/file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- how sure ---- */

/* A score as a shift: less is better. */
static double tuned_shift(const struct measure *m, double score) {
    if (m->more_is_better) score = m->scale == SCALE_RATIO ? 1 / score : -score;
    return m->scale == SCALE_RATIO ? log(score) : score;
}

/* Each try beside the chosen one where both were measured last. Of halving that may be early, and what lies between them, and
 * its noise, may grow in proportion to the rest of the training. */
static double tuned_missed(const struct experiment *x, int cell, double noise) {
    const struct tuned *t = x->tuned;
    const struct tuned_cell *of = &t->cell[cell];
    const struct tuned_try *chosen = &of->tried[of->chosen];
    double shift[TUNE_TRIES], apart[TUNE_TRIES];
    struct tune_part part[TUNE_PARTS];
    (void)tune_parts((enum tune_search)t->tune->search, t->ntries, part);
    for (int i = 0; i < t->ntries; i++) {
        int last = of->tried[i].parts - 1;
        const struct measure *m = &x->measure[0];
        double beside = tuned_shift(m, chosen->score[last]), mine = tuned_score(&of->tried[i]);
        shift[i] = isfinite(mine) ? (tuned_shift(m, mine) - beside) / part[last].until : INFINITY;
        apart[i] = noise / sqrt(t->tune->nseeds) / part[last].until;
    }
    return statistics_missed(shift, apart, t->ntries, of->chosen);
}

void compare_choice(const struct compared *c, const struct compared_pair *p) {
    struct compared_answer *a = &p->answer[0];
    double noise = isnan(a->noise.pairs) ? a->noise.groups : a->noise.pairs, square = 0;
    for (int side = 0; side < 2 && c->x->tuned; side++) square += tuned_missed(c->x, p->cell[side], noise);
    a->statistics.choice = sqrt(square);
}

/* ---- in words ---- */

/* "optimizer.lr 0.003, optimizer.momentum 0.9" */
static const char *tuned_values(const struct experiment *x, const struct tune_try *try) {
    const char *text = "";
    for (int k = 0; k < x->tune.nkeys; k++)
        text = pool_say(x->pool, "%s%s%s %s", text, *text ? ", " : "", x->tune.key[k].at->key, try->value[k]);
    return text;
}

/* "; this is the highest optimizer.lr that was tried, so that a better one may lie beyond it" */
static const char *tuned_edges(const struct experiment *x, const struct tuned_cell *cell) {
    const char *text = "";
    for (int k = 0; k < x->tune.nkeys; k++)
        if (cell->edge[k])
            text = pool_say(x->pool, "%s%s the %s %s that was tried", text, *text ? " and" : "; this is",
                            cell->edge[k] < 0 ? "lowest" : "highest", x->tune.key[k].at->key);
    if (!*text) return "";
    const char *why = x->tuned->narrow              ? pool_say(x->pool, " (%s)", x->tuned->narrow)
                      : x->tune.search == TUNE_GRID ? " (widen: true tries on)"
                                                    : "";
    return pool_say(x->pool, "%s, so that a better one may lie beyond it%s", text, why);
}

const char *compare_tuned(const struct experiment *x, int cell) {
    const struct tuned *t = x->tuned;
    const struct tuned_cell *of = &t->cell[cell];
    char number[32];
    int diverged = 0;
    for (int i = 0; i < t->ntries; i++) diverged += of->tried[i].diverged > 0;
    const char *unit =
        x->measure[0].scale == SCALE_RATIO && strcmp(x->measure[0].unit, "bytes") != 0 ? x->measure[0].unit : "";
    const char *some = diverged ? pool_say(x->pool, ", of which %d diverged", diverged) : "";
    return pool_say(x->pool, "%s: %s is %s%s%s at %s, the best of %d tries%s%s", x->cell[cell].label,
                    x->measure[0].name, compare_value(&x->measure[0], tuned_score(&of->tried[of->chosen]), number),
                    *unit ? " " : "", unit, tuned_values(x, &t->tries[of->chosen]), t->ntries, some,
                    tuned_edges(x, of));
}

/* ---- as a table ---- */

static const char *tuned_score_text(const struct experiment *x, const struct tuned_cell *cell, int i) {
    const struct tuned_try *one = &cell->tried[i];
    char number[32];
    bool last = one->parts == cell->tried[cell->chosen].parts;
    if (one->diverged) return "diverged";
    return pool_printf(x->pool, "%s%s", compare_value(&x->measure[0], tuned_score(one), number),
                       i == cell->chosen ? " *"
                       : last            ? ""
                                         : " (left out early)");
}

enum { TUNED_CELLS = 8 }; /* that a terminal has room for */

void compare_tuned_table(const struct experiment *x, void (*write)(const struct table *, FILE *), FILE *f) {
    const struct tuned *t = x->tuned;
    struct table grid;
    if (!t || x->ncells > TUNED_CELLS) return;
    if (table_init(&grid, "", x->tune.nkeys + x->ncells, t->ntries, x->pool) != ERR_NONE) return;
    grid.words = grid.columns;
    for (int k = 0; k < x->tune.nkeys; k++) table_row(&grid, 0)[k] = x->tune.key[k].at->key;
    for (int c = 0; c < x->ncells; c++) table_row(&grid, 0)[x->tune.nkeys + c] = x->cell[c].label;
    for (int i = 0; i < t->ntries; i++) {
        for (int k = 0; k < x->tune.nkeys; k++) table_row(&grid, i + 1)[k] = t->tries[i].value[k];
        for (int c = 0; c < x->ncells; c++)
            table_row(&grid, i + 1)[x->tune.nkeys + c] = tuned_score_text(x, &t->cell[c], i);
    }
    write(&grid, f);
}

/* ---- for programs ---- */

static void tuned_put_cell(const struct experiment *x, int cell, struct json *j) {
    static const char *const edges[] = {"lowest", NULL, "highest"};
    const struct tuned *t = x->tuned;
    const struct tuned_cell *of = &t->cell[cell];
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("label", x->cell[cell].label), JSON_TEXT("side", x->axis[0].label[x->cell[cell].at[0]]),
             JSON_INT("chosen", of->chosen), JSON_TEXT("words", compare_tuned(x, cell)));
    json_open(j, "edges", '{');
    for (int k = 0; k < t->tune->nkeys; k++) json_string(j, x->tune.key[k].at->key, edges[of->edge[k] + 1]);
    json_close(j, '}');
    json_array(j, "tries", i, t->ntries)
        json_object(j, NULL, JSON_REAL("score", tuned_score(&of->tried[i])),
                    JSON_INT("diverged", of->tried[i].diverged), JSON_INT("parts", of->tried[i].parts));
    json_close(j, '}');
}

void compare_tuned_json(const struct experiment *x, const char *key, struct json *j) {
    const struct tuned *t = x->tuned;
    if (!t) return;
    json_open(j, key, '{');
    json_put(j, JSON_TEXT("metric", x->measure[0].name), JSON_TEXT("search", tune_searches[t->tune->search]),
             JSON_INT("budget", t->tune->budget), JSON_REAL("runs_each", tune_cost(t->tune, t->ntries)),
             JSON_INT("widened", t->widened), JSON_TEXT("not_widened", t->narrow));
    json_ints(j, "seeds", t->tune->seeds, t->tune->nseeds);
    json_array(j, "tries", i, t->ntries) {
        json_open(j, NULL, '{');
        for (int k = 0; k < t->tune->nkeys; k++) json_string(j, x->tune.key[k].at->key, t->tries[i].value[k]);
        json_close(j, '}');
    }
    json_array(j, "cells", i, x->ncells) tuned_put_cell(x, i, j);
    json_close(j, '}');
}

/* A best configuration, which says at its head where it comes from. */
static enum error tuned_write_best(const struct experiment *x, int cell, const char *folder) {
    const char *name = x->ncells == 1 ? "" : x->cell[cell].label, *text = experiment_cell_file(x, cell);
    char *path = pool_printf(x->pool, "%s/best%s%s.yaml", folder, *name ? "-" : "", name);
    char *all = text ? pool_printf(x->pool, "# %s\n%s", compare_tuned(x, cell), text) : NULL;
    if (!path || !all) return ERR_MEMORY;
    experiment_clean(path + strlen(folder) + 1);
    return file_replace(path, all, strlen(all));
}

enum error compare_tuned_write(const struct experiment *x, const char *folder) {
    struct json j = {0};
    for (int i = 0; i < x->ncells; i++) TRY(tuned_write_best(x, i, folder));
    compare_tuned_json(x, NULL, &j);
    return json_save(&j, ERR_NONE, pool_printf(x->pool, "%s/tuning.json", folder));
}
