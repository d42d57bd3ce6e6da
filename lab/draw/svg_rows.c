/* Rows of cells: what happened when, and how much of it where. */
#include "lab/draw/svg.h"

#include <math.h>
#include <stdio.h>

enum { NAMES_MOST = 150, ROW = 18 };

int svg_rows(const struct plot *p) {
    return p->ncategories < PLOT_ROWS ? p->ncategories : PLOT_ROWS;
}

double svg_names_left(const struct plot *p) {
    double widest = 0;
    for (int r = 0; r < svg_rows(p); r++) widest = fmax(widest, plot_text_width(p->category[r], SVG_TEXT));
    return SVG_EDGE + fmin(widest, NAMES_MOST) + 6;
}

void svg_row_names(struct svg_canvas *c, double left, double top, double pitch) {
    for (int r = 0; r < svg_rows(c->p); r++)
        svg_text(c, left - 6, top + (r + 0.5) * pitch + 4, SVG_END, left - SVG_EDGE - 5, "", c->p->category[r]);
}

/* ---- timeline ---- */

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

/* ---- heat ---- */

static double heat_most(const struct plot *p) {
    double best = 0;
    for (int i = 0; i < p->nseries; i++)
        for (int r = 0; r < svg_rows(p); r++)
            if (isfinite(p->series[i].y[r])) best = fmax(best, p->series[i].y[r]);
    return best;
}

static void heat_cell(struct svg_canvas *c, int row, int column, struct svg_field at) {
    const struct plot_series *s = &c->p->series[column];
    double v = s->y[row];
    char text[32];
    if (!isfinite(v)) return;
    plot_value_text(c->p->y.unit, v, text);
    fprintf(c->m,
            "<rect class=\"heat\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" "
            "fill-opacity=\"%.3f\">",
            at.x, at.y + 1, at.width - 1, ROW - 2, 0.06 + 0.94 * (at.most > 0 ? v / at.most : 0));
    svg_hover(c, row, s->name, text);
    fprintf(c->m, "</rect>\n");
}

/* Heads of columns, as many as do not touch each other; moves c->y. */
static void rows_column_heads(struct svg_canvas *c, double left, double width) {
    double widest = 0;
    for (int i = 0; i < c->p->nseries; i++) widest = fmax(widest, plot_text_width(c->p->series[i].name, SVG_TEXT));
    int stride = (int)ceil((widest + 4) / width);
    for (int i = 0; i < c->p->nseries; i += stride) {
        double half = plot_text_width(c->p->series[i].name, SVG_TEXT) / 2;
        double x = fmin(left + (i + 0.5) * width, PLOT_WIDTH - SVG_EDGE - half);
        svg_text(c, x, c->y + SVG_TEXT, SVG_MIDDLE, PLOT_WIDTH - left, "soft", c->p->series[i].name);
    }
    c->y += SVG_LINE + 2;
}

void svg_grid(struct svg_canvas *c, struct svg_field f, svg_field_draw *draw) {
    const int columns = c->p->nseries, rows = svg_rows(c->p);
    double left = svg_names_left(c->p), most = f.width;
    f.width = fmin((PLOT_WIDTH - f.margin - left) / (columns ? columns : 1), most);
    rows_column_heads(c, left, f.width);
    double top = c->y;
    svg_row_names(c, left, top, f.height);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns; i++) {
            f.x = left + i * f.width, f.y = top + r * f.height;
            draw(c, r, i, f);
        }
    c->y = top + rows * f.height + 4;
}

/* What the darkest and the lightest cell mean. */
static void heat_key(struct svg_canvas *c, double best) {
    char text[32], words[128];
    for (int i = 0; i <= 4; i++)
        fprintf(c->m,
                "<rect class=\"heat\" x=\"%d\" y=\"%.1f\" width=\"14\" height=\"11\" "
                "fill-opacity=\"%.3f\"/>\n",
                SVG_EDGE + 15 * i, c->y + 3, 0.06 + 0.235 * i);
    plot_value_text(c->p->y.unit, best, text);
    snprintf(words, sizeof words, "0 to %s: %s", text, c->p->y.label);
    svg_text(c, SVG_EDGE + 82, c->y + SVG_TEXT + 1, SVG_START, PLOT_WIDTH - 2 * SVG_EDGE - 82, "soft", words);
    c->y += SVG_LINE + 4;
}

void svg_draw_heat(struct svg_canvas *c) {
    double best = heat_most(c->p);
    svg_grid(c, (struct svg_field){.margin = 12, .width = 48, .height = ROW, .most = best}, heat_cell);
    heat_key(c, best);
}

/* ---- choices ---- */

static void choice_cell(struct svg_canvas *c, int row, int column, struct svg_field at) {
    const struct plot_series *kind = plot_choice_at(c->p, column, row);
    if (!kind) return;
    fprintf(c->m, "<rect class=\"b%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\">",
            kind->colour % PLOT_COLOURS, at.x, at.y + 1, at.width - 1, ROW - 2);
    svg_hover(c, row, c->p->series[column].name, kind->name);
    fprintf(c->m, "</rect>\n");
}

void svg_draw_choice(struct svg_canvas *c) {
    svg_grid(c, (struct svg_field){.margin = 12, .width = 48, .height = ROW}, choice_cell);
}
