/* A search is an experiment of its own, whose last axis is the tries and whose seeds are those of tuning. It is run in
 * parts: of halving, those that go on to the next part are chosen in between. Where it is to be widened, it is opened
 * again with more tries, and what it has run before is taken as it is. */
#include "lab/runner/search.h"

#include "engine/base/file.h"
#include "engine/train/stop.h"
#include "lab/runner/impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct search {
    const struct runner *r; /* the experiment's */
    const struct experiment_source *source;
    const struct experiment *x; /* the comparison */
    struct tuned *out;
};

/* ---- one round ---- */

/* The mean of a try's seeds at a part, as it was measured; infinity: one diverged. */
static double search_mean(const struct runner_state *s, int cell, int part, int *diverged) {
    double sum = 0;
    *diverged = 0;
    for (int k = 0; k < s->most; k++) {
        double v = s->part->score[(cell * s->most + k) * TUNE_PARTS + part];
        *diverged += !isfinite(v);
        sum += v;
    }
    return *diverged ? INFINITY : sum / s->most;
}

/* Notes what the tries of a cell have come to in this part; their costs, of which less is better. */
static void search_score(const struct search *s, const struct runner_state *state, int cell, double *cost) {
    struct tuned *t = s->out;
    bool more = s->x->measure[0].more_is_better;
    for (int i = 0; i < t->ntries; i++) {
        struct tuned_try *one = &t->cell[cell].tried[i];
        int at = cell * t->ntries + i;
        cost[i] = INFINITY;
        if (!state->part->in[at]) continue;
        one->score[state->part->at] = search_mean(state, at, state->part->at, &one->diverged);
        one->parts = state->part->at + 1;
        cost[i] = isfinite(tuned_score(one)) && more ? -tuned_score(one) : tuned_score(one);
    }
}

/* What does not go on needs no checkpoint any more. */
static enum error search_drop_checkpoints(const struct runner_state *s, const bool *in) {
    for (int i = 0; i < s->x->ncells; i++)
        for (int k = 0; k < s->most && !in[i]; k++) TRY(file_remove_tree(runner_run_path(s, i, k, "/ckpt")));
    return ERR_NONE;
}

/* The parts one after the other, and the choice. Where this process is asked to stop, out->done stays false. */
static enum error search_parts(const struct search *s, struct runner_state *state, struct runner_part *part, bool *in) {
    struct tuned *t = s->out;
    const struct experiment *x = state->x;
    struct tune_part parts[TUNE_PARTS];
    int n = tune_parts((enum tune_search)t->tune->search, t->ntries, parts);
    for (int i = 0; i < x->ncells; i++) in[i] = true;
    for (; part->at < n; part->at++) {
        double cost[TUNE_TRIES];
        part->until = parts[part->at].until;
        memset(state->done, 0, (size_t)(x->ncells * state->most) * sizeof *state->done);
        runner_take_all(state);
        TRY(runner_run_all(state));
        if (stop_signal()) return ERR_NONE;
        for (int i = 0; i < s->x->ncells; i++) {
            search_score(s, state, i, cost);
            t->cell[i].chosen = tune_best(cost, in + i * t->ntries, t->ntries);
            if (part->at + 1 < n) tune_keep(cost, in + i * t->ntries, t->ntries, parts[part->at + 1].tries);
        }
        if (part->at + 1 == n) memset(in, 0, (size_t)x->ncells * sizeof *in);
        if (n > 1) TRY(search_drop_checkpoints(state, in));
    }
    t->done = true;
    return ERR_NONE;
}

static enum error search_cells(const struct search *s, const struct experiment *x) {
    struct compared runs;
    struct runner r = *s->r;
    TRY_MEMORY(r.folder = pool_printf(x->pool, "%s/tune", s->r->folder));
    TRY(compare_begin(x, r.folder, &runs));
    bool *in = pool_alloc(x->pool, (size_t)x->ncells * sizeof *in);
    struct runner_part part = {.in = in};
    struct runner_state state = {.r = &r, .x = x, .out = &runs, .part = &part, .pool = x->pool, .most = x->most};
    part.score = pool_alloc(x->pool, (size_t)(x->ncells * x->most * TUNE_PARTS) * sizeof *part.score);
    if (!in || !part.score) return ERR_MEMORY;
    TRY(runner_begin(&state));
    enum error err = search_parts(s, &state, &part, in);
    if (!r.quiet && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    return err;
}

/* Opens the experiment of the tries, and runs it. *report: what is wrong with it, in x's pool; NULL: nothing. */
static enum error search_round(const struct search *s, const char **report) {
    struct tuned *t = s->out;
    const struct experiment_search tries = {
        .alone = s->source->search && s->source->search->alone, .tries = t->tries, .ntries = t->ntries};
    struct experiment_source source = *s->source;
    struct experiment x;
    char *wrong;
    source.search = &tries;
    t->done = false;
    for (int i = 0; i < s->x->ncells; i++) {
        TRY_MEMORY(t->cell[i].tried = pool_alloc(s->x->pool, (size_t)t->ntries * sizeof *t->cell[i].tried));
    }
    enum error err = experiment_open(&source, &x, &wrong);
    *report = wrong ? pool_strndup(s->x->pool, wrong, strlen(wrong)) : NULL;
    if (err == ERR_NONE) err = search_cells(s, &x);
    experiment_close(&x);
    return err;
}

/* ---- beyond the edges ---- */

static void search_find_edges(struct tuned *t, const struct experiment *x) {
    for (int i = 0; i < x->ncells; i++)
        for (int k = 0; k < t->tune->nkeys; k++)
            t->cell[i].edge[k] = tune_edge(t->tries, t->ntries, t->cell[i].chosen, k);
}

/* Adds the tries beyond the edges at which a cell has its best; all cells try them. Gives how many. */
static enum error search_widen(struct tuned *t, const struct experiment *x, int *added) {
    const int before = t->ntries;
    for (int i = 0; i < x->ncells; i++)
        for (int k = 0; k < t->tune->nkeys; k++) {
            const struct tuned_cell *cell = &t->cell[i];
            struct tune_try one;
            bool seen = false;
            if (!cell->edge[k] || t->ntries == TUNE_TRIES) continue;
            TRY(tune_beyond(t->tune, t->tries, before, cell->chosen, k, cell->edge[k], x->pool, &one));
            for (int j = 0; j < t->ntries; j++) seen |= tune_same(t->tune, &t->tries[j], &one);
            if (!seen) t->tries[t->ntries++] = one;
        }
    *added = t->ntries - before;
    return ERR_NONE;
}

/* Where all tries of a cell have diverged there is nothing to compare. */
static enum error search_check(const struct search *s) {
    for (int i = 0; i < s->x->ncells; i++)
        if (s->out->cell[i].chosen < 0)
            return FAIL(
                ERR_RESULT,
                "'%s': no try has a %s: all of them diverged, or do not measure it\nlook into %s/tune, and tune over "
                "other values",
                s->x->cell[i].label, s->x->measure[0].name, s->r->folder);
    return ERR_NONE;
}

static bool search_is_at_edge(const struct tuned *t, const struct experiment *x) {
    bool any = false;
    for (int i = 0; i < x->ncells; i++)
        for (int k = 0; k < t->tune->nkeys; k++) any |= t->cell[i].edge[k] != 0;
    return any;
}

/* One more round with tries beyond the edges. Where such a value is refused, what was tried before stands. */
static enum error search_wider(const struct search *s) {
    struct tuned *t = s->out, before = *t;
    const size_t cells = (size_t)s->x->ncells * sizeof *t->cell;
    const char *report;
    int added;
    if (!(before.cell = pool_alloc(s->x->pool, cells))) return ERR_MEMORY;
    memcpy(before.cell, t->cell, cells);
    TRY(search_widen(t, s->x, &added));
    if (t->widened == TUNE_WIDER || !added) {
        *t = before;
        t->narrow = pool_printf(s->x->pool, "the range was widened %d times, to %d tries", t->widened, t->ntries);
        return t->narrow ? ERR_NONE : ERR_MEMORY;
    }
    enum error err = search_round(s, &report);
    if (err == ERR_CONFIG && report) {
        *t = before;
        t->narrow = pool_printf(s->x->pool, "the next value is refused: %.*s", (int)strcspn(report, "\n"), report);
        return t->narrow ? ERR_NONE : ERR_MEMORY;
    }
    TRY(err);
    if (!t->done) return ERR_NONE;
    t->widened++;
    TRY(search_check(s));
    search_find_edges(t, s->x);
    return ERR_NONE;
}

/* ---- all ---- */

static enum error search_begin(const struct search *s) {
    struct tuned *t = s->out;
    *t = (struct tuned){.tune = &s->x->tune};
    TRY_MEMORY(t->cell = pool_alloc(s->x->pool, (size_t)s->x->ncells * sizeof *t->cell));
    return tune_first(t->tune, s->x->seed, s->x->pool, t->tries, &t->ntries);
}

static enum error search_run_all(const struct search *s) {
    struct tuned *t = s->out;
    const char *report;
    TRY(search_begin(s));
    if (!s->r->quiet)
        fprintf(stderr, "tuning: %d tries of each of %d cell%s (%s), %d seed%s each\n", t->ntries, s->x->ncells,
                s->x->ncells == 1 ? "" : "s", tune_searches[t->tune->search], t->tune->nseeds,
                t->tune->nseeds == 1 ? "" : "s");
    enum error err = search_round(s, &report);
    if (err == ERR_CONFIG && report) return FAIL(ERR_CONFIG, "%s", report);
    TRY(err);
    if (!t->done) return ERR_NONE;
    TRY(search_check(s));
    search_find_edges(t, s->x);
    while (t->done && t->tune->widen && !t->narrow && search_is_at_edge(t, s->x)) TRY(search_wider(s));
    return ERR_NONE;
}

enum error search_run(const struct runner *r, const struct experiment_source *source, const struct experiment *x,
                      struct tuned *out) {
    const struct search s = {r, source, x, out};
    int fd;
    TRY(file_make_folders(r->folder));
    TRY(runner_lock_folder(r->folder, x->pool, &fd));
    enum error err = search_run_all(&s);
    close(fd);
    return err;
}
