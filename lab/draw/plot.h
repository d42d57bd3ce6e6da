/* Plots as data, and what becomes of them: SVG that is the same text for the same numbers, and a table. Drawn for a
 * phone's width: where there is much to show, several small plots stand side by side on a wide page. Colour-blind
 * people can distinguish the colours, and what has a colour has a dash, a marker or a hatch as well. */
#pragma once
#include "lab/draw/markup.h"
#include "lab/draw/table.h"

enum plot_kind {
    PLOT_LINE,     /* series over x, with bands; a model's is dashed and has no markers */
    PLOT_STACKED,  /* a bar for each category, of all series' parts */
    PLOT_GROUPED,  /* a bar for each category and series */
    PLOT_TIMELINE, /* categories are rows, spans bars in them, series the kinds of spans */
    PLOT_DOTS, /* a row for each category and series: spans of no length are its runs, y its median with low and high */
    PLOT_MAP, /* categories are rows, series columns, of ratios: above 1 the second of 'who' is ahead, below it the first */
    PLOT_KINDS
};
enum plot_unit { PLOT_PLAIN, PLOT_SECONDS, PLOT_BYTES, PLOT_SHARE /* of 1, shown as percent */ };

/* The result of a comparison: undecided, the same, or the side that is ahead. */
enum plot_won { PLOT_UNTOLD, PLOT_SAME, PLOT_FIRST, PLOT_SECOND };

struct plot_axis {
    const char *label; /* without its unit */
    enum plot_unit unit;
    bool log, zero;     /* zero: shows 0, when linear */
    const double *tick; /* where ticks have to be; NULL: at round numbers */
    int nticks;
};
struct plot_series {
    const char *name;
    const double *x, *y;      /* y not finite: nothing there. x: PLOT_LINE only */
    const double *low, *high; /* around y, or NULL */
    const double *from, *to;  /* around x, or NULL */
    const enum plot_won *won; /* PLOT_MAP */
    int n;
    int colour;         /* of PLOT_COLOURS; two series may share one */
    bool model, points; /* a model's line; points: not joined */
};
struct plot_span { /* PLOT_DOTS: from and to are a run's value */
    int row, series;
    double from, to;
};
enum { PLOT_COLOURS = 7, PLOT_WIDTH = 340, PLOT_ROWS = 64 };
struct plot {
    enum plot_kind kind;
    const char *title, *about; /* about: a description of the plot for readers who cannot see it */
    struct plot_axis x, y;     /* bars, timeline: x is the axis of values */
    struct plot_series *series;
    int nseries;
    const char **category; /* PLOT_ROWS at most are drawn */
    int ncategories;
    const struct plot_span *span;
    int nspans;
    const char *who[2]; /* PLOT_MAP */
    bool both;          /* readers may choose between a linear and a logarithmic y */
    const char *style;  /* of the <svg>, beside "plot"; NULL: none */
};

/* Colours and styles, for a <style>; hatches, for an <svg>'s <defs>: both once in a document. */
void plot_style(FILE *out);
void plot_hatches(FILE *out);
/* One <svg>, placed at *y in an outer one; *y is then where it ends. */
MUST_CHECK enum error plot_svg(const struct plot *p, double *y, FILE *out);
/* Its numbers. */
MUST_CHECK enum error plot_table(const struct plot *p, struct pool *pool, struct table *out);

/* A value in its unit, as tables and tool tips show it. */
void plot_value_text(enum plot_unit unit, double v, char out[32]);
/* About how wide a text is, in units of the drawing: rather too wide than too narrow. */
double plot_text_width(const char *s);
