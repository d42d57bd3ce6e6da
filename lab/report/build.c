/* A report is built section by section; each finds by itself whether its data is there. */
#include "lab/report/report.h"

#include "engine/base/text.h"
#include "lab/report/data.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static const char *report_text(struct report *r, const char *fmt, va_list args) {
    const char *text = pool_vprintf(r->pool, fmt, args);
    r->failed |= !text;
    return text ? text : "";
}

const char *report_say(struct report *r, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *text = report_text(r, fmt, args);
    va_end(args);
    return text;
}

const char *report_title(struct report *r, const char *text) {
    return report_say(r, "%c%s", toupper((unsigned char)*text), *text ? text + 1 : "");
}

const char *report_short(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot ? dot + 1 : key;
}

const char *report_join(struct report *r, const char *text, const char *between, const char *more) {
    return report_say(r, "%s%s%s", text, *text ? between : "", more);
}

struct report_section *report_section(struct report *r, const char *id, const char *title) {
    struct report_section *s = &r->section[r->nsections++];
    *s = (struct report_section){.id = id, .title = title};
    return s;
}

void report_paragraph(struct report_section *s, const char *text) {
    if (s->ntexts < REPORT_TEXTS) s->text[s->ntexts++] = text;
}

void report_print(struct report *r, struct report_section *s, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    report_paragraph(s, report_text(r, fmt, args));
    va_end(args);
}

enum error report_take(struct report *r, size_t n, size_t size, void *out) {
    size_t bytes;
    TRY(memory_size(n ? n : 1, size, "a report", &bytes));
    void *p = pool_alloc(r->pool, bytes);
    memcpy(out, &p, sizeof p);
    return p ? ERR_NONE : ERR_MEMORY;
}

enum error report_plot(struct report *r, struct report_section *s, enum plot_kind kind, int series, struct plot **out) {
    *out = NULL;
    if (s->nplots == REPORT_PLOTS) {
        s->cut++;
        return ERR_NONE;
    }
    struct plot *p = *out = &s->plot[s->nplots++];
    *p = (struct plot){.kind = kind, .title = "", .about = ""};
    return report_take(r, (size_t)series, sizeof *p->series, &p->series);
}

enum error report_table(struct report *r, struct report_section *s, const char *title, int columns, int rows,
                        const char *const *heads, struct table **out) {
    *out = &s->table[s->ntables++];
    TRY(table_init(*out, title, columns, rows, r->pool));
    for (int c = 0; heads && c < columns; c++) table_row(*out, 0)[c] = heads[c];
    return ERR_NONE;
}

int report_places(const struct report_data *d, const char *place[REPORT_CELLS]) {
    int n = 0;
    for (int i = 0; i < d->ncells; i++) {
        int k = 0;
        while (k < n && strcmp(place[k], d->cell[i].place) != 0) k++;
        if (k == n) place[n++] = d->cell[i].place;
    }
    return n;
}

int report_find(const struct report_data *d, int side, const char *place, int64_t devices) {
    for (int i = 0; i < d->ncells; i++)
        if (d->cell[i].side == side && d->cell[i].devices == devices && !strcmp(d->cell[i].place, place)) return i;
    return -1;
}

const char *report_in(struct report *r, const char *place) {
    return *place ? report_say(r, ", %s", place) : "";
}

const char *report_cell_name(struct report *r, const struct report_data *d, const struct report_cell *c) {
    return report_say(r, "%s \xC3\x97 %lld", d->side[c->side], (long long)c->devices);
}

const char *report_value(struct report *r, enum plot_unit unit, double v) {
    char text[32];
    plot_value_text(unit, v, text);
    return report_say(r, "%s", text);
}

const char *report_ms(struct report *r, double seconds) {
    return report_value(r, PLOT_SECONDS, seconds);
}

static void report_tell_what_is_cut(struct report *r) {
    for (int i = 0; i < r->nsections; i++)
        if (r->section[i].cut)
            report_print(r, &r->section[i],
                         "%d more plots do not fit on a page and are left out; the final table has all cells.",
                         r->section[i].cut);
}

enum { EARLY = 3, LATE = 8 }; /* places of report_learning */

enum error report_read(const char *path, struct pool *pool, struct report *out) {
    static enum error (*const builders[])(struct report *, const struct report_data *) = {
        report_verdict,   report_tuning,   report_final,       report_learning, report_phases,    report_speedup,
        report_bytes,     report_timeline, report_learning,    report_metrics,  report_predicted, report_memory,
        report_same_bits, report_settings, report_environment, report_again};
    struct report_data d;
    if (text_ends(path, ".json")) return report_proof(path, pool, out);
    TRY(report_data_read(path, pool, &d));
    memset(out, 0, sizeof *out);
    out->pool = pool;
    out->verdict = out->question = "";
    out->name = *d.name ? d.name : d.path;
    /* how the training went is the first thing to see where the question is about that, else one of the last */
    const size_t skipped = d.experiment && !d.metric[0].training ? EARLY : LATE;
    for (size_t i = 0; i < sizeof builders / sizeof *builders; i++)
        if (i != skipped) TRY(builders[i](out, &d));
    report_tell_what_is_cut(out);
    return out->failed ? FAIL(ERR_MEMORY, "no memory for the report of '%s'", path) : ERR_NONE;
}
