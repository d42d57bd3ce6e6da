/* Rows with names: what happened when. */
#include "lab/draw/svg.h"

#include <math.h>
#include <stdio.h>

enum { NAMES_MOST = 150, ROW = 18 };

int svg_rows(const struct plot *p) {
    return p->ncategories < PLOT_ROWS ? p->ncategories : PLOT_ROWS;
}

double svg_names_left(const struct plot *p) {
    double widest = 0;
    for (int r = 0; r < svg_rows(p); r++) widest = fmax(widest, plot_text_width(p->category[r]));
    return SVG_EDGE + fmin(widest, NAMES_MOST) + 6;
}

void svg_row_names(struct svg_canvas *c, double left, double top, double pitch) {
    for (int r = 0; r < svg_rows(c->p); r++)
        svg_text(c, left - 6, top + (r + 0.5) * pitch + 4, SVG_END, left - SVG_EDGE - 5, "", c->p->category[r]);
}

static void timeline_span(struct svg_canvas *c, const struct scale *x, const struct plot_span *s, double top) {
    const struct plot_series *kind = &c->p->series[s->series];
    char from[32], takes[32], words[80];
    double a = svg_at(x, s->from), b = svg_at(x, s->to);
    plot_value_text(c->p->x.unit, s->from, from);
    plot_value_text(c->p->x.unit, s->to - s->from, takes);
    snprintf(words, sizeof words, "from %s, for %s", from, takes);
    fprintf(c->m, "<rect class=\"b%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\">",
            kind->colour % PLOT_COLOURS, a, top + s->row * ROW + 2, fmax(b - a, 1), ROW - 4);
    svg_hover(c, s->row, kind->name, words);
    fprintf(c->m, "</rect>\n");
}

void svg_draw_timeline(struct svg_canvas *c) {
    const struct plot *p = c->p;
    double low = INFINITY, high = -INFINITY, left = svg_names_left(p), top = c->y;
    for (int i = 0; i < p->nspans; i++) {
        low = fmin(low, p->span[i].from);
        high = fmax(high, p->span[i].to);
    }
    struct scale x = svg_scale(&p->x, low, high, left, PLOT_WIDTH - 12);
    c->y = top + svg_rows(p) * ROW;
    svg_bottom_axis(c, &p->x, &x, top);
    svg_row_names(c, left, top, ROW);
    for (int r = 0; r <= svg_rows(p); r++) svg_line(c, left, top + r * ROW, PLOT_WIDTH - 12, top + r * ROW, "grid");
    for (int i = 0; i < p->nspans; i++)
        if (p->span[i].row < svg_rows(p)) timeline_span(c, &x, &p->span[i], top);
}
