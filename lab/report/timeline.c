/* The buckets of one traced step, rank by rank: when backward had finished each, when it travelled, and how long the
 * step waited. */
#include "lab/predict/step_trace.h"
#include "lab/report/data.h"

enum { QUEUED, TRAVELS, BACKWARD, WAITS, SERIES };

struct timeline_rows {
    struct report *r;
    struct plot *p;
    struct plot_span *span;
    int64_t zero;
};

static void timeline_span_add(struct timeline_rows *w, int row, int series, int64_t from, int64_t to) {
    if (to <= from || w->p->nspans == 2 * PLOT_ROWS) return;
    w->span[w->p->nspans++] = (struct plot_span){
        .row = row, .series = series, .from = (double)(from - w->zero) * 1e-9, .to = (double)(to - w->zero) * 1e-9};
}

static int timeline_row_add(struct timeline_rows *w, const char *name) {
    w->p->category[w->p->ncategories] = name;
    return w->p->ncategories++;
}

/* Adds a rank: a row of its computation, then one of each of its buckets, 'most' at most. */
static void timeline_rank_add(struct timeline_rows *w, int rank, const struct traced_step *s, int most) {
    int own = timeline_row_add(w, report_say(w->r, "%d: the step", rank));
    timeline_span_add(w, own, BACKWARD, s->backward_begin, s->backward_end);
    for (int i = 0; i < s->nbuckets && i < most; i++) {
        const struct trace_bucket *b = &s->bucket[i];
        const char *bytes = report_value(w->r, PLOT_BYTES, (double)b->bytes);
        int row = timeline_row_add(w, report_say(w->r, "%d: bucket %d, %s", rank, b->bucket, bytes));
        timeline_span_add(w, row, QUEUED, b->ready, b->start);
        timeline_span_add(w, row, TRAVELS, b->start, b->done);
        if (b->waited > 0) timeline_span_add(w, own, WAITS, b->taken - b->waited, b->taken);
    }
}

/* The plot of one step of the run named 'of': its title, its text, its axes and its kinds of spans. */
static void timeline_label(struct report *r, const struct step_trace *t, const char *of, int64_t step, struct plot *p) {
    static const char *const names[SERIES] = {
        [QUEUED] = "queued", [TRAVELS] = "on the wire", [BACKWARD] = "backward computes", [WAITS] = "the step waits"};
    static const int colours[SERIES] = {[QUEUED] = 2, [TRAVELS] = 0, [BACKWARD] = 3, [WAITS] = 1};
    p->title = report_say(r, "%s: step %lld, rank by rank", of, (long long)step);
    p->about = report_say(r,
                          "For each rank (in front) the phases of the step, and for each bucket of gradients the time "
                          "in the queue after backward had finished it, and the time on the wire. It is the step of "
                          "median length among the traced steps %lld to %lld.",
                          (long long)t->rank->first, (long long)t->rank->last);
    p->x = (struct plot_axis){.label = "time in the step", .unit = PLOT_SECONDS, .zero = true};
    for (int i = 0; i < SERIES; i++) p->series[i] = (struct plot_series){.name = names[i], .colour = colours[i]};
    p->nseries = SERIES;
}

/* Adds the plot of a cell's first run, if that has a trace that can be read. */
static enum error timeline_plot(struct report *r, struct report_section *s, const struct report_data *d,
                                const struct report_cell *c) {
    struct step_trace t;
    struct timeline_rows w = {.r = r, .zero = INT64_MAX};
    enum error err = step_trace_read(c->run[0].dir, r->pool, &t);
    if (err != ERR_NONE) return err == ERR_MEMORY ? err : ERR_NONE;
    int64_t step = step_trace_typical(&t);
    if (step == 0 || t.nranks > PLOT_ROWS / 2) return ERR_NONE;
    TRY(report_plot(r, s, PLOT_TIMELINE, SERIES, &w.p));
    if (!w.p) return ERR_NONE;
    timeline_label(r, &t, report_say(r, "%s%s", report_cell_name(r, d, c), report_in(r, c->place)), step, w.p);
    TRY(report_take(r, PLOT_ROWS, sizeof *w.p->category, &w.p->category));
    TRY(report_take(r, (size_t)2 * PLOT_ROWS, sizeof *w.span, &w.span));
    w.p->span = w.span;
    for (int k = 0; k < t.nranks; k++) {
        int64_t begin = step_trace_find(&t, k, step)->begin;
        if (begin < w.zero) w.zero = begin;
    }
    for (int k = 0; k < t.nranks; k++)
        timeline_rank_add(&w, t.rank[k].rank, step_trace_find(&t, k, step), PLOT_ROWS / t.nranks - 1);
    s->nplots -= w.p->nspans == 0;
    return ERR_NONE;
}

/* A side's cell with the most devices, where ranks are few enough to be read. */
static int timeline_shown_cell(const struct report_data *d, int side) {
    enum { RANKS_SHOWN = 8 };
    int best = -1;
    for (int i = 0; i < d->ncells; i++) {
        const struct report_cell *c = &d->cell[i];
        if (c->side != side || c->run[0].ranks < 2 || c->run[0].ranks > RANKS_SHOWN || c->run[0].nsteps == 0) continue;
        if (best < 0 || c->devices > d->cell[best].devices) best = i;
    }
    return best;
}

enum error report_timeline(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "timeline", "One step, bucket by bucket");
    for (int side = 0; side < d->nsides; side++) {
        int k = timeline_shown_cell(d, side);
        if (k >= 0) TRY(timeline_plot(r, s, d, &d->cell[k]));
    }
    if (s->nplots == 0)
        s->missing = "No step on 2 to 8 devices was traced. With --set log.trace=10..20st a run records some steps.";
    else
        report_paragraph(s, "The ranks share one clock. A call that begins late on one rank delays all other ranks in "
                            "it. Communication is hidden as long as backward still runs; the device waits for the "
                            "rest.");
    return ERR_NONE;
}
