/* Lines over x, with bands of confidence. */
#include "lab/draw/svg.h"

#include <math.h>
#include <stdio.h>

enum { HEIGHT = 170, MARKERS = 8, STRIPS = 60 };

struct line_frame {
    struct scale x, y;
};

static void extent_widen(double v, double *low, double *high) {
    if (!isfinite(v)) return;
    *low = fmin(*low, v);
    *high = fmax(*high, v);
}

/* The ranges of x and y that all series span; y with its bands. */
static void line_extent(const struct plot *p, double x[2], double y[2]) {
    x[0] = y[0] = INFINITY;
    x[1] = y[1] = -INFINITY;
    for (int i = 0; i < p->nseries; i++) {
        const struct plot_series *s = &p->series[i];
        for (int k = 0; k < s->n; k++) {
            if (!isfinite(s->y[k])) continue;
            extent_widen(s->x[k], &x[0], &x[1]);
            extent_widen(s->y[k], &y[0], &y[1]);
            if (s->low) extent_widen(s->low[k], &y[0], &y[1]);
            if (s->high) extent_widen(s->high[k], &y[0], &y[1]);
            if (s->from) extent_widen(s->from[k], &x[0], &x[1]);
            if (s->to) extent_widen(s->to[k], &x[0], &x[1]);
        }
    }
}

/* The left axis, with room for its widest tick; gives where the plot begins. */
static double line_left_room(const struct scale *s) {
    double widest = 0;
    for (int i = 0; i < s->nticks; i++) {
        char tick[32];
        svg_tick_text(s, i, tick);
        widest = fmax(widest, plot_text_width(tick));
    }
    return SVG_EDGE + widest + 6;
}

static void line_left_axis(struct svg_canvas *c, const struct scale *s, double left, double right) {
    for (int i = 0; i < s->nticks; i++) {
        double y = svg_at(s, s->tick[i] / s->factor);
        char tick[32];
        svg_tick_text(s, i, tick);
        svg_line(c, left, y, right, y, "grid");
        svg_text(c, left - 5, y + 4, SVG_END, left, "soft", tick);
    }
}

static void line_band(struct svg_canvas *c, const struct line_frame *f, const struct plot_series *s) {
    if (!s->low || !s->high || s->n < 2 || s->points) return;
    fprintf(c->m, "<path class=\"band f%d\" d=\"", s->colour % PLOT_COLOURS);
    bool any = false;
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < s->n; i++) {
            int k = half ? s->n - 1 - i : i;
            double v = half ? s->low[k] : s->high[k];
            if (!isfinite(v) || !isfinite(s->y[k])) continue;
            fprintf(c->m, "%s%.1f,%.1f", any ? "L" : "M", svg_at(&f->x, s->x[k]), svg_at(&f->y, v));
            any = true;
        }
    fprintf(c->m, "%s\"/>\n", any ? "z" : "M0,0");
}

static void line_path(struct svg_canvas *c, const struct line_frame *f, const struct plot_series *s) {
    bool pen = false;
    fprintf(c->m, "<path class=\"line %ss%d\" d=\"M0,0", s->model ? "model " : "", s->colour % PLOT_COLOURS);
    for (int k = 0; k < s->n; k++) {
        bool there = isfinite(s->y[k]);
        if (there) fprintf(c->m, "%s%.1f,%.1f", pen ? "L" : "M", svg_at(&f->x, s->x[k]), svg_at(&f->y, s->y[k]));
        pen = there;
    }
    fprintf(c->m, "\"/>\n");
}

/* Every point has a mark where they are few. */
static void line_marks(struct svg_canvas *c, const struct line_frame *f, const struct plot_series *s, int which) {
    int stride = s->points || s->n <= 2 * MARKERS ? 1 : s->n / MARKERS;
    double size =
        s->from ? 1 + fmin(0.45 * (c->p->nseries - 1 - which), 2) : 1; /* so that points that coincide are seen */
    char x[32], y[32];
    for (int k = stride > 1 ? which * stride / 3 % s->n : 0; k < s->n; k += stride) {
        if (!isfinite(s->y[k])) continue;
        plot_value_text(c->p->x.unit, s->x[k], x);
        plot_value_text(c->p->y.unit, s->y[k], y);
        fprintf(c->m, "<g><title>");
        markup_text(c->m, s->name);
        fprintf(c->m, ": %s at %s</title>\n", y, x);
        svg_marker(c, s->colour, svg_at(&f->x, s->x[k]), svg_at(&f->y, s->y[k]), size);
        fprintf(c->m, "</g>\n");
    }
}

/* A point's intervals, across and along. */
static void line_whiskers(struct svg_canvas *c, const struct line_frame *f, const struct plot_series *s) {
    char style[24];
    snprintf(style, sizeof style, "whisker s%d", s->colour % PLOT_COLOURS);
    for (int k = 0; s->points && k < s->n; k++) {
        double x = svg_at(&f->x, s->x[k]), y = svg_at(&f->y, s->y[k]);
        if (s->low && isfinite(s->low[k] + s->high[k] + s->y[k]))
            svg_line(c, x, svg_at(&f->y, s->low[k]), x, svg_at(&f->y, s->high[k]), style);
        if (s->from && isfinite(s->from[k] + s->to[k] + s->y[k]))
            svg_line(c, svg_at(&f->x, s->from[k]), y, svg_at(&f->x, s->to[k]), y, style);
    }
}

/* Draws an invisible strip of the plot that shows, under the pointer, the value of every line at its x. */
static void line_strip(struct svg_canvas *c, const struct line_frame *f, const struct plot_series *by, int k,
                       double width, double top) {
    char x[32], y[32];
    plot_value_text(c->p->x.unit, by->x[k], x);
    fprintf(c->m, "<rect class=\"strip\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\"><title>%s",
            fmax(svg_at(&f->x, by->x[k]) - width / 2, 0), top, width, HEIGHT, x);
    for (int i = 0; i < c->p->nseries; i++) {
        const struct plot_series *s = &c->p->series[i];
        for (int at = 0; at < s->n; at++) {
            if (s->x[at] != by->x[k] || !isfinite(s->y[at])) continue;
            plot_value_text(c->p->y.unit, s->y[at], y);
            fprintf(c->m, "; ");
            markup_text(c->m, s->name);
            fprintf(c->m, ": %s", y);
        }
    }
    fprintf(c->m, "</title></rect>\n");
}

/* Draws strips if there are more points than marks, at most as many as a pointer can meet. */
static void line_strips(struct svg_canvas *c, const struct line_frame *f, double top, double left) {
    const struct plot_series *by = NULL;
    for (int i = 0; i < c->p->nseries; i++)
        if (!by || c->p->series[i].n > by->n) by = &c->p->series[i];
    if (!by || by->n <= 2 * MARKERS) return;
    int stride = (by->n + STRIPS - 1) / STRIPS;
    double width = (PLOT_WIDTH - 12 - left) * stride / by->n;
    for (int k = stride / 2; k < by->n; k += stride) line_strip(c, f, by, k, width, top);
}

void svg_draw_line(struct svg_canvas *c) {
    const struct plot *p = c->p;
    double x[2], y[2], top = c->y + SVG_LINE + 8, bottom = top + HEIGHT;
    char label[96];
    line_extent(p, x, y);
    struct line_frame f = {.y = svg_scale(&p->y, y[0], y[1], bottom, top)};
    double left = line_left_room(&f.y);
    f.x = svg_scale(&p->x, x[0], x[1], left, PLOT_WIDTH - 12);
    svg_axis_label(&p->y, &f.y, label);
    svg_text(c, SVG_EDGE, c->y + SVG_TEXT - 1, SVG_START, PLOT_WIDTH - 2 * SVG_EDGE, "soft", label);
    line_left_axis(c, &f.y, left, PLOT_WIDTH - 12);
    c->y = bottom;
    svg_bottom_axis(c, &p->x, &f.x, top);
    svg_line(c, left, bottom, PLOT_WIDTH - 12, bottom, "axis");
    for (int i = 0; i < p->nseries; i++) line_band(c, &f, &p->series[i]);
    for (int i = 0; i < p->nseries; i++)
        if (!p->series[i].points) line_path(c, &f, &p->series[i]);
    line_strips(c, &f, top, left);
    for (int i = 0; i < p->nseries; i++) line_whiskers(c, &f, &p->series[i]);
    for (int i = 0; i < p->nseries; i++)
        if (!p->series[i].model) line_marks(c, &f, &p->series[i], i);
}
