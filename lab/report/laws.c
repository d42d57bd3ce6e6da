/* The laws of scaling, fitted to what was measured: how much of the work is divided among the devices, and whether what
 * is not divided is the same on any number of them. */
#include "lab/predict/cost.h"
#include "lab/report/data.h"

#include <math.h>
#include <string.h>

struct laws_row { /* a side's devices at a place, ascending; the first is what speed-ups are multiples of */
    const char *name;
    int n, devices[REPORT_COUNTS + 1];
    double seconds[REPORT_COUNTS + 1];
    double speedup[REPORT_COUNTS + 1];
};

static void laws_add_time(struct laws_row *w, const struct report_cell *base, const struct report_cell *c) {
    int at = w->n;
    if (w->n > REPORT_COUNTS) return;
    for (; at > 0 && w->devices[at - 1] > c->devices; at--) {
        w->devices[at] = w->devices[at - 1];
        w->seconds[at] = w->seconds[at - 1];
        w->speedup[at] = w->speedup[at - 1];
    }
    w->devices[at] = (int)c->devices;
    w->seconds[at] = c->median_s;
    w->speedup[at] = report_work(base, c) * base->median_s / c->median_s;
    w->n++;
}

/* Fills the row of a side at a place with its times by numbers of devices; false: too few of them for any law. */
static bool laws_fill_row(struct report *r, const struct report_data *d, int side, const char *place,
                          struct laws_row *w) {
    int base = report_base(d, side, place);
    *w = (struct laws_row){.name = report_say(r, "%s%s", d->side[side], report_in(r, place))};
    if (base < 0) return false;
    bool there = false;
    for (int i = 0; i < d->ncells; i++) {
        const struct report_cell *c = &d->cell[i];
        if (c->side != side || strcmp(c->place, place) != 0) continue;
        laws_add_time(w, &d->cell[base], c);
        there |= c->devices == d->cell[base].devices;
    }
    if (w->n && !there) laws_add_time(w, &d->cell[base], &d->cell[base]);
    return w->n > 1;
}

static const char *laws_share_text(struct report *r, double p) {
    char text[32];
    return report_say(r, "%s", scaling_share_text(p, text));
}

/* The serial share (Karp and Flatt) by the row's speedup on 'devices' devices; NaN where that time, or that of one device, is missing. */
static double row_serial(const struct laws_row *w, int devices) {
    for (int i = 1; i < w->n; i++)
        if (w->devices[0] == 1 && w->devices[i] == devices) return scaling_karp_flatt(w->speedup[i], devices);
    return (double)NAN;
}

/* Whether the serial share rises from the fewest of several devices to the most; e: the two shares. */
static bool row_rises(const struct laws_row *w, double e[2]) {
    if (w->n < 3 || w->devices[0] != 1) return false;
    e[0] = row_serial(w, w->devices[1]);
    e[1] = row_serial(w, w->devices[w->n - 1]);
    return e[1] > 0 && e[1] > 1.25 * e[0];
}

struct laws {
    bool weak;
    double counts[REPORT_COUNTS]; /* numbers of devices */
    struct laws_row *rows;
    int ncounts, nrows;
};

static void put_row(struct report *r, const struct laws *l, const struct laws_row *w, const char **out) {
    out[0] = w->name;
    out[1] = laws_share_text(r, l->weak ? scaling_gustafson(w->devices, w->seconds, w->n)
                                        : scaling_amdahl(w->devices, w->seconds, w->n));
    for (int i = 0, k = 2; i < l->ncounts && !l->weak; i++) {
        if (l->counts[i] < 2) continue;
        double e = row_serial(w, (int)l->counts[i]);
        out[k++] = isfinite(e) ? report_say(r, e < 10 ? "%.3f" : "%.0f", e) : "-";
    }
}

/* ---- words ---- */

static void laws_say(struct report *r, struct report_section *s, bool weak) {
    report_paragraph(
        s,
        weak ? "By Gustafson's law N devices do N - (1 - p) (N - 1) times the work of one in "
               "the same time, where p is the share of the work that they divide; p is fitted to all numbers of "
               "devices of a row."
             : report_say(r, "By Amdahl's law a share p of the work is divided among the devices and the rest is not, "
                             "so no number of them is more than 1 / (1 - p) times as fast; p is fitted to all numbers "
                             "of devices of a row. e is the serial share that follows from the speed-up on this number "
                             "of devices alone (Karp and Flatt); if e is above 1, they are slower than one device."));
}

static void laws_say_rising(struct report *r, struct report_section *s, const struct laws_row *rows, int n) {
    enum { NAMED = 4 };
    const char *names = "";
    int count = 0;
    double e[2];
    for (int i = 0; i < n; i++) {
        if (!row_rises(&rows[i], e)) continue;
        if (count++ < NAMED)
            names = report_say(r, "%s%s%s (%.2f to %.2f)", names, *names ? "; " : "", rows[i].name, e[0], e[1]);
    }
    if (count > NAMED) names = report_say(r, "%s; and %d more", names, count - NAMED);
    if (count)
        report_print(r, s,
                     "e rises with the devices in %d of %d rows: %s. Costs that grow with the devices "
                     "make it rise: a server's traffic, latencies of messages, waiting for each other.",
                     count, n, names);
    if (count < n)
        report_print(r, s,
                     "e does not rise (by more than a quarter) in %d of %d rows: there the lost time is about the "
                     "same on any number of devices: the time of a part that is not divided, or of an all-reduce, "
                     "in which every device sends 2 (N - 1) / N times the gradients.",
                     n - count, n);
}

static void laws_say_cores(struct report *r, struct report_section *s, const struct report_data *d) {
    int64_t most = 0;
    int cores = 0;
    for (int i = 0; i < d->ncells; i++) {
        if (d->cell[i].run[0].environment.cores > cores) cores = d->cell[i].run[0].environment.cores;
        if (d->cell[i].devices > most) most = d->cell[i].devices;
    }
    if (cores > 0 && most > cores && !strncmp(run_result_setting(d->cell[0].run, "devices"), "cpu", 3))
        report_print(r, s,
                     "%lld devices share %d cores here: beyond %d of them computing is not divided "
                     "any further, which counts as serial work in p and e.",
                     (long long)most, cores, cores);
}

/* ---- all ---- */

static enum error laws_put_table(struct report *r, struct report_section *s, const struct laws *l) {
    const char *heads[REPORT_COUNTS + 2] = {"where", l->weak ? "p (Gustafson)" : "p (Amdahl)"};
    int columns = 2;
    struct table *t;
    for (int i = 0; i < l->ncounts && !l->weak; i++)
        if (l->counts[i] >= 2) heads[columns++] = report_say(r, "e on %.0f", l->counts[i]);
    TRY(report_table(r, s, "Laws of scaling", columns, l->nrows, heads, &t));
    for (int i = 0; i < l->nrows; i++) put_row(r, l, &l->rows[i], table_row(t, i + 1));
    return ERR_NONE;
}

enum error report_laws(struct report *r, struct report_section *s, const struct report_data *d) {
    const char *place[REPORT_CELLS];
    struct laws l = {.weak = !strcmp(d->scaling, "weak")};
    int nplaces = report_places(d, place);
    l.ncounts = report_device_counts(d, l.counts);
    TRY(report_take(r, (size_t)nplaces * (size_t)d->nsides, sizeof *l.rows, &l.rows));
    for (int i = 0; i < nplaces; i++)
        for (int side = 0; side < d->nsides; side++) l.nrows += laws_fill_row(r, d, side, place[i], &l.rows[l.nrows]);
    if (!l.nrows) return ERR_NONE;
    TRY(laws_put_table(r, s, &l));
    laws_say(r, s, l.weak);
    if (l.weak) return ERR_NONE;
    laws_say_rising(r, s, l.rows, l.nrows);
    laws_say_cores(r, s, d);
    return ERR_NONE;
}
