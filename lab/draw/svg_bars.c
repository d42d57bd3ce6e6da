/* Bars that lie: their names stand in front of them, however many there are. */
#include "lab/draw/svg.h"

#include <math.h>

enum { STACK = 18, BAR = 11 };

/* The longest bar. */
static double bars_longest(const struct plot *p) {
    double best = 0;
    for (int r = 0; r < svg_rows(p); r++) {
        double sum = 0;
        for (int i = 0; i < p->nseries; i++) {
            double v = p->series[i].y[r];
            if (isfinite(v)) sum = p->kind == PLOT_STACKED ? sum + v : fmax(sum, v);
        }
        best = fmax(best, sum);
    }
    return best;
}

static void bars_draw(struct svg_canvas *c, const struct plot_series *s, int row, double from, double to, double y) {
    char value[32];
    const int height = c->p->kind == PLOT_STACKED ? STACK : BAR;
    plot_value_text(c->p->x.unit, s->y[row], value);
    fprintf(c->m, "<rect class=\"b%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d.0\">", s->colour % PLOT_COLOURS,
            from, y, fmax(to - from, 0), height);
    svg_hover(c, row, s->name, value);
    fprintf(c->m, "</rect>\n");
}

static void row_bars(struct svg_canvas *c, const struct scale *x, int row) {
    double sum = 0, y = c->y;
    bool stacked = c->p->kind == PLOT_STACKED;
    for (int i = 0; i < c->p->nseries; i++) {
        const struct plot_series *s = &c->p->series[i];
        double v = s->y[row];
        if (isfinite(v)) bars_draw(c, s, row, svg_at(x, sum), svg_at(x, sum + v), y);
        if (stacked)
            sum += isfinite(v) ? v : 0;
        else
            y += BAR + 1;
    }
}

void svg_draw_bars(struct svg_canvas *c) {
    const struct plot *p = c->p;
    double left = svg_names_left(p), top = c->y;
    double height = p->kind == PLOT_STACKED ? STACK : p->nseries * (BAR + 1), gap = 7;
    double pitch = fmax(height, SVG_LINE) + gap;
    struct scale x = svg_scale(&p->x, 0, bars_longest(p), left, PLOT_WIDTH - 12);
    c->y = top + svg_rows(p) * pitch;
    svg_bottom_axis(c, &p->x, &x, top);
    double end = c->y;
    for (int r = 0; r < svg_rows(p); r++) {
        c->y = top + r * pitch + gap / 2;
        row_bars(c, &x, r);
    }
    svg_row_names(c, left, top, pitch);
    svg_line(c, left, top, left, top + svg_rows(p) * pitch, "axis");
    c->y = end;
}
