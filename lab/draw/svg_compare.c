/* Comparisons: the runs themselves, and a map of who is ahead. */
#include "lab/draw/svg.h"

#include <math.h>
#include <stdio.h>

/* ---- dots ---- */

enum { TRACK = 13, GAP = 8, FIELD = 30 };

static void dots_hover(struct svg_canvas *c, int row, const struct plot_series *s, const char *what, double v) {
    char value[32], words[64];
    plot_value_text(c->p->x.unit, v, value);
    snprintf(words, sizeof words, "%s%s", what, value);
    svg_hover(c, row, s->name, words);
}

static double dots_at_row(const double *v, int row) {
    return v ? v[row] : (double)NAN;
}

static double dots_track(const struct svg_canvas *c, double top, int row, int series) {
    return top + row * (c->p->nseries * TRACK + GAP) + GAP / 2. + (series + 0.5) * TRACK;
}

/* The interval as a bar, the median as a line across it. */
static void dots_middle(struct svg_canvas *c, const struct scale *x, double top, int row, int series) {
    const struct plot_series *s = &c->p->series[series];
    double y = dots_track(c, top, row, series), at = svg_at(x, s->y[row]);
    int k = s->colour % PLOT_COLOURS;
    if (!isfinite(s->y[row])) return;
    double low = dots_at_row(s->low, row), high = dots_at_row(s->high, row), from = svg_at(x, low),
           to = svg_at(x, high);
    if (isfinite(low) && isfinite(high)) {
        fprintf(c->m, "<rect class=\"f%d\" opacity=\".3\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"/>\n", k,
                from, y - 5, fmax(to - from, 0.5), 10);
    }
    fprintf(c->m, "<g>");
    dots_hover(c, row, s, "median ", s->y[row]);
    fprintf(c->m, "<rect class=\"f%d\" x=\"%.1f\" y=\"%.1f\" width=\"3\" height=\"12\"/></g>\n", k, at - 1.5, y - 6);
}

void svg_draw_dots(struct svg_canvas *c) {
    const struct plot *p = c->p;
    double left = svg_names_left(p), top = c->y, low = INFINITY, high = -INFINITY;
    double pitch = p->nseries * TRACK + GAP;
    for (int i = 0; i < p->nspans; i++) low = fmin(low, p->span[i].from), high = fmax(high, p->span[i].from);
    for (int i = 0; i < p->nseries; i++)
        for (int r = 0; r < svg_rows(p); r++)
            if (isfinite(p->series[i].y[r])) low = fmin(low, p->series[i].y[r]), high = fmax(high, p->series[i].y[r]);
    struct scale x = svg_scale(&p->x, low, high, left + 4, PLOT_WIDTH - 12);
    c->y = top + svg_rows(p) * pitch;
    svg_bottom_axis(c, &p->x, &x, top);
    svg_row_names(c, left, top, pitch);
    for (int r = 0; r <= svg_rows(p); r++) svg_line(c, left, top + r * pitch, PLOT_WIDTH - 12, top + r * pitch, "grid");
    for (int r = 0; r < svg_rows(p); r++)
        for (int i = 0; i < p->nseries; i++) dots_middle(c, &x, top, r, i);
    for (int i = 0; i < p->nspans; i++) {
        const struct plot_span *d = &p->span[i];
        const struct plot_series *s = &p->series[d->series];
        if (d->row >= svg_rows(p)) continue;
        fprintf(c->m, "<g class=\"run\">");
        dots_hover(c, d->row, s, "", d->from);
        svg_marker(c, s->colour, svg_at(&x, d->from), dots_track(c, top, d->row, d->series), 0.85);
        fprintf(c->m, "</g>\n");
    }
}

/* ---- map ---- */

/* The factor by which the side that is ahead is ahead. */
static double map_times(double ratio) {
    return ratio < 1 ? 1 / ratio : ratio;
}

/* Writes a field's factor with as many digits as fit into the width; "" if not even one does. */
static void dots_field_text(const struct plot_series *s, int row, double width, char out[32]) {
    double v = map_times(s->y[row]);
    bool same = s->won[row] == PLOT_SAME;
    for (int digits = v >= 100 ? 0 : v >= 10 ? 1 : 2; digits >= 0; digits--) {
        snprintf(out, 32, "%.*f\xC3\x97%s", digits, v, s->won[row] == PLOT_UNTOLD ? "?" : "");
        if (same) snprintf(out, 32, "same");
        if (plot_text_width(out) < width) return;
    }
    *out = '\0';
}

struct map_field { /* where a field stands, and the ratio of the strongest one */
    double x, y, width, most;
};

static void map_field_draw(struct svg_canvas *c, int row, int column, struct map_field f) {
    const struct plot_series *s = &c->p->series[column];
    double v = s->y[row];
    char text[32], words[160];
    int ahead = s->won[row] == PLOT_FIRST ? 0 : s->won[row] == PLOT_SECOND ? 1 : -1;
    if (!isfinite(v) || v <= 0) return;
    double strong = ahead < 0 ? 0 : 0.12 + 0.5 * log(map_times(v)) / fmax(log(f.most), 1e-9);
    double low = dots_at_row(s->low, row), high = dots_at_row(s->high, row);
    int n = snprintf(words, sizeof words, "%.60s%s; ratio %.3f",
                     ahead < 0 ? "the runs do not decide" : c->p->who[ahead], ahead < 0 ? "" : " is ahead", v);
    if (isfinite(low) && isfinite(high)) snprintf(words + n, sizeof words - (size_t)n, " [%.3f, %.3f]", low, high);
    fprintf(c->m, "<g>");
    svg_hover(c, row, s->name, words);
    fprintf(c->m,
            "<rect class=\"field f%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
            "fill-opacity=\"%.3f\"/>\n",
            ahead < 0 ? PLOT_COLOURS - 1 : ahead, f.x, f.y + 1, f.width - 2, FIELD - 2, strong);
    dots_field_text(s, row, f.width - 4, text);
    svg_text(c, f.x + f.width / 2 - 1, f.y + FIELD / 2. + 4, SVG_MIDDLE, f.width, ahead < 0 ? "soft" : "bold", text);
    fprintf(c->m, "</g>\n");
}

/* Draws the key of the colours; moves c->y. */
static void map_key(struct svg_canvas *c) {
    static const char *const rest[] = {"same: no difference that matters", "?: more runs would be needed to decide"};
    char words[128];
    for (int i = 0; i < 4; i++) {
        if (i < 2) {
            snprintf(words, sizeof words, "%s is ahead", c->p->who[i]);
            fprintf(c->m,
                    "<rect class=\"field f%d\" fill-opacity=\".5\" x=\"%d\" y=\"%.1f\" width=\"20\" height=\"11\"/>\n",
                    i, SVG_EDGE, c->y + 3);
        }
        svg_text(c, i < 2 ? SVG_EDGE + 26 : SVG_EDGE, c->y + SVG_TEXT, SVG_START, PLOT_WIDTH - 2 * SVG_EDGE - 26,
                 i < 2 ? "" : "soft", i < 2 ? words : rest[i - 2]);
        c->y += SVG_LINE;
    }
}

/* Heads of columns, as many as do not touch each other; moves c->y. */
static void map_heads(struct svg_canvas *c, double left, double width) {
    double widest = 0;
    for (int i = 0; i < c->p->nseries; i++) widest = fmax(widest, plot_text_width(c->p->series[i].name));
    int stride = (int)ceil((widest + 4) / width);
    for (int i = 0; i < c->p->nseries; i += stride) {
        double half = plot_text_width(c->p->series[i].name) / 2;
        double x = fmin(left + (i + 0.5) * width, PLOT_WIDTH - SVG_EDGE - half);
        svg_text(c, x, c->y + SVG_TEXT, SVG_MIDDLE, PLOT_WIDTH - left, "soft", c->p->series[i].name);
    }
    c->y += SVG_LINE + 2;
}

void svg_draw_map(struct svg_canvas *c) {
    const struct plot *p = c->p;
    double left = svg_names_left(p);
    struct map_field f = {.width = fmin((PLOT_WIDTH - 8 - left) / (p->nseries ? p->nseries : 1), 64), .most = 1};
    for (int i = 0; i < p->nseries; i++)
        for (int r = 0; r < svg_rows(p); r++)
            if (isfinite(p->series[i].y[r]) && p->series[i].y[r] > 0)
                f.most = fmax(f.most, map_times(p->series[i].y[r]));
    svg_text(c, left, c->y + SVG_TEXT, SVG_START, PLOT_WIDTH - left - SVG_EDGE, "soft", p->x.label);
    c->y += SVG_LINE;
    map_heads(c, left, f.width);
    double top = c->y;
    svg_row_names(c, left, top, FIELD);
    for (int r = 0; r < svg_rows(p); r++)
        for (int i = 0; i < p->nseries; i++) {
            f.x = left + i * f.width, f.y = top + r * FIELD;
            map_field_draw(c, r, i, f);
        }
    c->y = top + svg_rows(p) * FIELD + 4;
    map_key(c);
}
