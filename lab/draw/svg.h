/* Declarations that the drawing of plots shares. A drawing grows downwards: y is where the next part begins. */
#pragma once
#include "lab/draw/plot.h"

enum { SVG_TEXT = 12, SVG_LINE = 16, SVG_EDGE = 6 };

struct svg_canvas {
    const struct plot *p;
    FILE *m;
    double y;
};
enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };
/* A line of text, cut with an ellipsis where it is wider than 'width'. style: "soft", "bold" or "". */
void svg_text(struct svg_canvas *c, double x, double y, enum svg_anchor anchor, double width, const char *style,
              const char *text);
void svg_line(struct svg_canvas *c, double x1, double y1, double x2, double y2, const char *style);
/* The marker of a point; each has a different shape. */
void svg_marker(struct svg_canvas *c, int colour, double x, double y, double size);
/* The text that a part of a row shows under the pointer. */
void svg_hover(struct svg_canvas *c, int row, const char *name, const char *value);

/* ---- scales ---- */
enum { SVG_TICKS = 16 };
struct scale {
    double low, high; /* in shown units */
    double factor;    /* shown = value * factor */
    double from, to;  /* of the drawing */
    bool log;
    const char *unit; /* "" or as in "ms" */
    double tick[SVG_TICKS];
    int nticks;
};
/* A scale that holds the values low to high and shows them between from and to. */
struct scale svg_scale(const struct plot_axis *a, double low, double high, double from, double to);
double svg_at(const struct scale *s, double value);
void svg_tick_text(const struct scale *s, int i, char out[32]);
/* The axis's label with its unit: "step time, ms". */
void svg_axis_label(const struct plot_axis *a, const struct scale *s, char out[96]);
/* The horizontal axis of values with lines upwards to 'top' and its label; moves c->y. */
void svg_bottom_axis(struct svg_canvas *c, const struct plot_axis *a, const struct scale *s, double top);
void svg_draw_line(struct svg_canvas *c);
void svg_draw_bars(struct svg_canvas *c);
void svg_draw_timeline(struct svg_canvas *c);
void svg_draw_dots(struct svg_canvas *c);
void svg_draw_map(struct svg_canvas *c);
/* Of what has rows: how many are drawn; where their names end; the names, each in the middle of its row. */
int svg_rows(const struct plot *p);
double svg_names_left(const struct plot *p);
void svg_row_names(struct svg_canvas *c, double left, double top, double pitch);
