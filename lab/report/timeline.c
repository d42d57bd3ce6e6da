/* What the buckets of one step did, rank by rank: as the run has traced it, or else by the flight recorders, which know
 * of the last calls of every rank when each began and ended. */
#include "lab/report/data.h"

#include "engine/base/file.h"
#include "transport/flight/recorder.h"

#include <math.h>
#include <string.h>

enum { RANKS_SHOWN = 8, LEAST_COUNT = 256 };

/* Gradients and weights, not the few numbers of metrics and of evaluation. */
static bool is_bulk(const struct recording_call *c) {
    return c->ended > c->began && c->call.count >= LEAST_COUNT && c->error == 0 &&
           (!strncmp(c->name, "all_reduce", 10) || !strncmp(c->name, "reduce", 6) ||
            !strncmp(c->name, "broadcast", 9) || !strncmp(c->name, "all_gather", 10));
}

/* The last bulk call's end. */
static int64_t last_end(const struct recording *rec) {
    for (int i = rec->ncalls - 1; i >= 0; i--)
        if (is_bulk(&rec->calls[i])) return rec->calls[i].ended;
    return 0;
}

static double element_bytes(const char *type) {
    const char *digits = type + strcspn(type, "0123456789"); /* "f32", "bf16" */
    return !strncmp(digits, "64", 2) ? 8 : !strncmp(digits, "32", 2) ? 4 : !strncmp(digits, "16", 2) ? 2 : 1;
}

/* Adds the calls of the last step of a rank as rows. zero is when rank 0 began the step; another may have been early, so
 * a call belongs to the step that it lies in by more than half. */
static void add_rows(struct report *r, const struct recording *rec, int64_t zero, int most, struct plot *p,
                     struct plot_span *span) {
    for (int i = 0, n = 0; i < rec->ncalls && n < most; i++) {
        const struct recording_call *c = &rec->calls[i];
        if (!is_bulk(c) || c->began - zero + (c->ended - zero) < 0) continue;
        const char *bytes = report_value(r, PLOT_BYTES, (double)c->call.count * element_bytes(c->type));
        p->category[p->ncategories] = report_say(r, "%d: %s %s", rec->rank, bytes, c->name);
        span[p->nspans++] = (struct plot_span){
            .row = p->ncategories++, .from = (double)(c->began - zero) * 1e-9, .to = (double)(c->ended - zero) * 1e-9};
        n++;
    }
}

static enum error read_ranks(struct report *r, const struct run_result *run, struct plot *p, struct plot_span **out) {
    struct plot_span *span;
    int64_t zero = 0;
    TRY(report_take(r, PLOT_ROWS, sizeof *span, &span));
    *out = span;
    TRY(report_take(r, PLOT_ROWS, sizeof *p->category, &p->category));
    p->span = span;
    for (int k = 0; k < run->ranks; k++) {
        struct recording rec;
        const char *path = report_say(r, "%s/flight/rank%d.bin", run->dir, k);
        if (!file_exists(path)) continue;
        enum error err = recording_read(path, r->pool, &rec);
        if (err == ERR_MEMORY) return err;
        int64_t end = err == ERR_NONE ? last_end(&rec) : 0;
        if (!end) continue;
        if (!zero) zero = end - (int64_t)(run->step[run->nsteps - 1].ms * 1e6);
        add_rows(r, &rec, zero, PLOT_ROWS / run->ranks, p, span);
    }
    return ERR_NONE;
}

static void begin_at_zero(const struct plot *p, struct plot_span *span) {
    double first = 0;
    for (int i = 0; i < p->nspans; i++) first = fmin(first, span[i].from);
    for (int i = 0; i < p->nspans; i++) {
        span[i].from -= first;
        span[i].to -= first;
    }
}

static enum error cell_timeline(struct report *r, struct report_section *s, const struct report_data *d,
                                const struct report_cell *c) {
    struct plot *p;
    struct plot_span *span;
    bool told;
    TRY(report_traced(r, s, c->run[0].dir, report_say(r, "%s%s", report_cell_name(r, d, c), report_in(r, c->place)),
                      &told));
    if (told) return ERR_NONE;
    TRY(report_plot(r, s, PLOT_TIMELINE, 1, &p));
    if (!p) return ERR_NONE;
    p->title = report_say(r, "%s%s: the last step, rank by rank", report_cell_name(r, d, c), report_in(r, c->place));
    p->about = "Each row is a call that carried gradients or weights, with its rank in front, from the moment when the "
               "rank entered it until it was done. Which part of it the step waited for is not known without a trace.";
    p->x = (struct plot_axis){.label = "time in the step", .unit = PLOT_SECONDS, .zero = true};
    p->series[0] = (struct plot_series){.name = "communication", .colour = REPORT_NEUTRAL};
    p->nseries = 1;
    TRY(read_ranks(r, &c->run[0], p, &span));
    begin_at_zero(p, span);
    if (p->nspans == 0) s->nplots--; /* they do not tell */
    return ERR_NONE;
}

/* A side's cell with the most devices, where ranks are few enough to be read. */
static int shown_cell(const struct report_data *d, int side) {
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
        int k = shown_cell(d, side);
        if (k >= 0) TRY(cell_timeline(r, s, d, &d->cell[k]));
    }
    if (s->nplots == 0)
        s->missing = "There is no record of the buckets of a step. Runs on 2 to 8 devices of one host leave one "
                     "(RUN_DIR/flight).";
    else
        report_paragraph(s, "The ranks share one clock. A call that begins late on one rank delays all other ranks in "
                            "it. Communication is hidden as long as backward still runs; the device waits for the "
                            "rest. A trace of some steps (log.trace) distinguishes the two.");
    return ERR_NONE;
}
