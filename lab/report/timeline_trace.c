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

static void add_span(struct timeline_rows *w, int row, int series, int64_t from, int64_t to) {
    if (to <= from || w->p->nspans == 2 * PLOT_ROWS) return;
    w->span[w->p->nspans++] = (struct plot_span){
        .row = row, .series = series, .from = (double)(from - w->zero) * 1e-9, .to = (double)(to - w->zero) * 1e-9};
}

static int add_row(struct timeline_rows *w, const char *name) {
    w->p->category[w->p->ncategories] = name;
    return w->p->ncategories++;
}

/* Computation's own row, then its buckets, 'most' at most. */
static void add_rank(struct timeline_rows *w, int rank, const struct traced_step *s, int most) {
    int own = add_row(w, report_say(w->r, "%d: the step", rank));
    add_span(w, own, BACKWARD, s->backward_begin, s->backward_end);
    for (int i = 0; i < s->nbuckets && i < most; i++) {
        const struct trace_bucket *b = &s->bucket[i];
        const char *bytes = report_value(w->r, PLOT_BYTES, (double)b->bytes);
        int row = add_row(w, report_say(w->r, "%d: bucket %d, %s", rank, b->bucket, bytes));
        add_span(w, row, QUEUED, b->ready, b->start);
        add_span(w, row, TRAVELS, b->start, b->done);
        if (b->waited > 0) add_span(w, own, WAITS, b->taken - b->waited, b->taken);
    }
}

static void name_plot(struct report *r, const struct step_trace *t, const char *of, int64_t step, struct plot *p) {
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

enum error report_traced(struct report *r, struct report_section *s, const char *run_dir, const char *of, bool *told) {
    struct step_trace t;
    struct timeline_rows w = {.r = r};
    *told = false;
    enum error err = step_trace_read(run_dir, r->pool, &t);
    if (err != ERR_NONE) return err == ERR_MEMORY ? err : ERR_NONE;
    int64_t step = step_trace_typical(&t);
    if (step == 0 || t.nranks > PLOT_ROWS / 2) return ERR_NONE;
    TRY(report_plot(r, s, PLOT_TIMELINE, SERIES, &w.p));
    if (!w.p) return ERR_NONE;
    name_plot(r, &t, of, step, w.p);
    TRY(report_take(r, PLOT_ROWS, sizeof *w.p->category, &w.p->category));
    TRY(report_take(r, (size_t)2 * PLOT_ROWS, sizeof *w.span, &w.span));
    w.p->span = w.span;
    w.zero = INT64_MAX;
    for (int k = 0; k < t.nranks; k++) {
        int64_t begin = step_trace_find(&t, k, step)->begin;
        if (begin < w.zero) w.zero = begin;
    }
    for (int k = 0; k < t.nranks; k++)
        add_rank(&w, t.rank[k].rank, step_trace_find(&t, k, step), PLOT_ROWS / t.nranks - 1);
    *told = w.p->nspans > 0;
    if (!*told) s->nplots--;
    return ERR_NONE;
}
