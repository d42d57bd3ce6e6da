/* The bytes over each link, and the memory of each device. */
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

/* The most devices of a side; its first place. -1: the side has no cell. */
static int place_largest_cell(const struct report_data *d, int side) {
    int best = -1;
    for (int i = 0; i < d->ncells; i++)
        if (d->cell[i].side == side && (best < 0 || d->cell[i].devices > d->cell[best].devices)) best = i;
    return best;
}

static int place_most_ranks(const struct report_data *d) {
    int n = 0;
    for (int i = 0; i < d->ncells; i++) n = d->cell[i].run[0].ranks > n ? d->cell[i].run[0].ranks : n;
    return n;
}

static enum error place_rank_names(struct report *r, int n, const char *word, const char ***out) {
    TRY(report_take(r, (size_t)n, sizeof **out, out));
    for (int i = 0; i < n; i++) (*out)[i] = report_say(r, "%s %d", word, i);
    return ERR_NONE;
}

/* A series over ranks; what the run does not have is NaN. */
static enum error place_rank_series(struct report *r, int n, const double *v, int have, double factor,
                                    const double **out) {
    double *y;
    TRY(report_take(r, (size_t)n, sizeof *y, &y));
    for (int i = 0; i < n; i++) y[i] = i < have ? v[i] * factor : (double)NAN;
    *out = y;
    return ERR_NONE;
}

/* ---- bytes ---- */

static double place_step_bytes(const struct run_result *run) {
    int64_t steps = run_result_stretch(run);
    return steps > 0 ? 1 / (double)steps : (double)NAN;
}

/* The largest cells of all sides: sent and received of each rank. */
static enum error place_plot_bytes(struct report *r, struct report_section *s, const struct report_data *d, int ranks) {
    struct plot *p;
    TRY(report_plot(r, s, PLOT_GROUPED, 2 * d->nsides, &p));
    if (!p) return ERR_NONE;
    p->title = "Bytes through each rank's port in a step";
    p->about = "The bytes that each rank sends and receives in a step. In dp rank 0 is the server: its port carries as "
               "much as all other ports together.";
    p->x = (struct plot_axis){.label = "bytes of a step", .unit = PLOT_BYTES, .zero = true};
    p->ncategories = ranks;
    TRY(place_rank_names(r, ranks, "rank", &p->category));
    for (int side = 0; side < d->nsides; side++) {
        int k = place_largest_cell(d, side);
        if (k < 0) continue;
        const struct run_result *run = &d->cell[k].run[0];
        const char *name = report_cell_name(r, d, &d->cell[k]);
        struct plot_series *out = &p->series[p->nseries];
        TRY(place_rank_series(r, ranks, run->sent, run->ranks, place_step_bytes(run), &out[0].y));
        TRY(place_rank_series(r, ranks, run->received, run->ranks, place_step_bytes(run), &out[1].y));
        bool alike = true; /* then one bar says it */
        for (int i = 0; i < run->ranks; i++) alike &= fabs(run->sent[i] - run->received[i]) <= 0.001 * run->sent[i];
        out[0].name = report_say(r, alike ? "%s, both sent and received" : "%s, sent", name);
        out[1].name = report_say(r, "%s, received", name);
        out[0].colour = side % PLOT_COLOURS;
        out[1].colour = (side + d->nsides) % PLOT_COLOURS;
        out[0].n = out[1].n = ranks;
        p->nseries += alike ? 1 : 2;
    }
    return ERR_NONE;
}

/* Every side and number of devices by ranks. The speed of a link does not change bytes: the first place stands for all. */
static enum error place_table_bytes(struct report *r, struct report_section *s, const struct report_data *d,
                                    int ranks) {
    struct table *t;
    TRY(report_table(r, s, "Sent and received by each rank in a step", 1 + ranks, d->ncells, NULL, &t));
    t->fold = FOLD_ASIDE;
    t->rows = 0;
    table_row(t, 0)[0] = "rank";
    for (int k = 0; k < ranks; k++) table_row(t, 0)[1 + k] = report_say(r, "%d", k);
    for (int i = 0; i < d->ncells; i++) {
        const struct run_result *run = &d->cell[i].run[0];
        if (run->ranks < 2 || strcmp(d->cell[i].place, d->cell[place_largest_cell(d, d->cell[i].side)].place) != 0)
            continue;
        const char **row = table_row(t, ++t->rows);
        row[0] = report_cell_name(r, d, &d->cell[i]);
        for (int k = 0; k < run->ranks; k++)
            row[1 + k] = report_value(r, PLOT_BYTES, (run->sent[k] + run->received[k]) * place_step_bytes(run));
    }
    return ERR_NONE;
}

/* Says what the bars contain, and how much the busiest of the shown runs sent before its first step. */
static void place_say_bytes(struct report *r, struct report_section *s, const struct report_data *d) {
    double most = 0;
    for (int i = 0; i < d->ncells; i++) {
        const struct run_result *run = &d->cell[i].run[0];
        for (int k = 0; k < run->ranks && run->start_sent; k++) most = fmax(most, run->start_sent[k]);
    }
    report_print(r, s,
                 "The engine counts the bytes at each rank during steps. They do not include the first weights, which "
                 "are sent once at the start (%s by the rank that sends most), evaluation and checkpoints.",
                 report_value(r, PLOT_BYTES, most));
}

enum error report_bytes(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "bytes", "Bytes over each link");
    int ranks = place_most_ranks(d);
    if (ranks < 2) {
        s->missing = "One device has no link. A run on several devices, such as engine run --mode dp --devices cpu:4, "
                     "counts the bytes over each link.";
        return ERR_NONE;
    }
    TRY(place_plot_bytes(r, s, d, ranks));
    place_say_bytes(r, s, d);
    return place_table_bytes(r, s, d, ranks);
}

/* ---- memory ---- */

/* Plots, for the largest cell of each side, the bytes of each process or of each device. */
static enum error place_plot_memory(struct report *r, struct report_section *s, const struct report_data *d,
                                    bool processes) {
    struct plot *p;
    TRY(report_plot(r, s, PLOT_GROUPED, d->nsides, &p));
    p->title = processes ? "Peak memory of each process" : "Optimizer state on each device";
    p->about = processes ? "The largest resident memory. The devices of dp and single share one process; each device "
                           "of ddp has its own."
                         : "Bytes that the optimizer keeps on each device.";
    p->x = (struct plot_axis){
        .label = processes ? "peak resident memory" : "optimizer state", .unit = PLOT_BYTES, .zero = true};
    for (int i = 0; i < 2 * d->nsides; i++) { /* first how many rows there are, then what is in them */
        int side = i % d->nsides, k = place_largest_cell(d, side);
        if (k < 0) continue;
        const struct run_result *run = &d->cell[k].run[0];
        int n = processes ? run->processes : run->ranks;
        if (i < d->nsides) p->ncategories = n > p->ncategories ? n : p->ncategories;
        if (i < d->nsides) continue;
        struct plot_series *out = &p->series[p->nseries++];
        *out = (struct plot_series){
            .name = report_cell_name(r, d, &d->cell[k]), .n = p->ncategories, .colour = side % PLOT_COLOURS};
        TRY(place_rank_series(r, out->n, processes ? run->rss : run->state, n, 1, &out->y));
    }
    if (!p->ncategories) s->nplots--; /* no run has reported it */
    return place_rank_names(r, p->ncategories, processes ? "process" : "device", &p->category);
}

/* What the rank holds that holds the most; where all ranks are in one process, what all of them hold. */
static struct held place_held(const struct run_result *run) {
    struct held most = {0}, sum = {0};
    for (int k = 0; k < run->ranks; k++) {
        struct held h;
        for (int i = 0; i < HELD_PARTS; i++) h.of[i] = run->held[i][k], sum.of[i] += h.of[i];
        if (held_all(&h) > held_all(&most)) most = h;
    }
    return run->processes == 1 ? sum : most;
}

/* The largest cells of all sides: what a process holds by the engine's own count, beside the peak that was measured. */
static enum error place_table_memory(struct report *r, struct report_section *s, const struct report_data *d) {
    const char *heads[HELD_PARTS + 3] = {"process that holds most", [HELD_PARTS + 1] = "all", "peak, measured"};
    struct table *t;
    for (int i = 0; i < HELD_PARTS; i++) heads[1 + i] = held_keys[i];
    TRY(report_table(r, s, "Memory by its use, beside the measured peak", HELD_PARTS + 3, d->nsides, heads, &t));
    t->rows = 0;
    for (int side = 0; side < d->nsides; side++) {
        int k = place_largest_cell(d, side);
        const struct run_result *run = k < 0 ? NULL : &d->cell[k].run[0];
        if (!run || !run->ranks || !run->held[HELD_WEIGHTS]) continue;
        const struct held h = place_held(run);
        const char **row = table_row(t, ++t->rows);
        double peak = 0;
        for (int i = 0; i < run->processes; i++) peak = fmax(peak, run->rss[i]);
        row[0] = report_cell_name(r, d, &d->cell[k]);
        for (int i = 0; i < HELD_PARTS; i++) row[1 + i] = report_value(r, PLOT_BYTES, h.of[i]);
        row[1 + HELD_PARTS] = report_value(r, PLOT_BYTES, held_all(&h));
        row[2 + HELD_PARTS] = report_value(r, PLOT_BYTES, peak);
    }
    if (!t->rows) s->ntables--;
    if (t->rows)
        report_print(r, s,
                     "The engine counts what it keeps for training: weights, those of others that are gathered beside "
                     "them, gradients, gradients on their way, the optimizer's state and activations. The rest of the "
                     "peak is the program, data, messages, and pages of other ranks that a rank has read. Memory of "
                     "GPUs is no part of the peak.");
    return ERR_NONE;
}

enum error report_memory(struct report *r, const struct report_data *d) {
    struct report_section *s = report_section(r, "memory", "Memory of each device");
    s->fold = FOLD_ASIDE;
    TRY(place_plot_memory(r, s, d, true));
    TRY(place_plot_memory(r, s, d, false));
    return place_table_memory(r, s, d);
}
