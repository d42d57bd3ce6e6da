/* A plot's numbers as a table: what cannot be seen in it can be read. */
#include "lab/draw/svg.h"

#include <math.h>

static const char *plot_value(enum plot_unit unit, double v, struct pool *pool) {
    char text[32];
    plot_value_text(unit, v, text);
    return pool_printf(pool, "%s", text);
}

/* Series over one x: a row for each x of any of them, ascending. */
static double plot_next_x(const struct plot *p, double after) {
    double best = INFINITY;
    for (int i = 0; i < p->nseries; i++)
        for (int k = 0; k < p->series[i].n; k++)
            if (p->series[i].x[k] > after) best = fmin(best, p->series[i].x[k]);
    return best;
}

static const char *plot_value_interval(const struct plot_series *s, int k, enum plot_unit unit, struct pool *pool) {
    char v[32], low[32], high[32];
    plot_value_text(unit, s->y[k], v);
    if (!s->low || !s->high || !isfinite(s->low[k] + s->high[k] + s->y[k])) return pool_printf(pool, "%s", v);
    plot_value_text(unit, s->low[k], low);
    plot_value_text(unit, s->high[k], high);
    return pool_printf(pool, "%s [%s, %s]", v, low, high);
}

static const char *plot_line_cell(const struct plot *p, const struct plot_series *s, double x, struct pool *pool) {
    for (int k = 0; k < s->n; k++)
        if (s->x[k] == x) return plot_value_interval(s, k, p->y.unit, pool);
    return "";
}

static enum error line_table(const struct plot *p, struct pool *pool, struct table *t) {
    int rows = 0, r = 1;
    for (double x = plot_next_x(p, -INFINITY); isfinite(x); x = plot_next_x(p, x)) rows++;
    TRY(table_init(t, p->title, 1 + p->nseries, rows, pool));
    table_row(t, 0)[0] = p->x.label;
    for (int i = 0; i < p->nseries; i++) table_row(t, 0)[1 + i] = p->series[i].name;
    for (double x = plot_next_x(p, -INFINITY); isfinite(x); x = plot_next_x(p, x), r++) {
        table_row(t, r)[0] = plot_value(p->x.unit, x, pool);
        for (int i = 0; i < p->nseries; i++) table_row(t, r)[1 + i] = plot_line_cell(p, &p->series[i], x, pool);
    }
    return ERR_NONE;
}

static enum error grid_table(const struct plot *p, struct pool *pool, struct table *t) {
    enum plot_unit unit = p->kind == PLOT_MAP ? p->y.unit : p->x.unit;
    TRY(table_init(t, p->title, 1 + p->nseries, p->ncategories, pool));
    table_row(t, 0)[0] = p->x.label;
    for (int i = 0; i < p->nseries; i++) table_row(t, 0)[1 + i] = p->series[i].name;
    for (int r = 0; r < p->ncategories; r++) {
        table_row(t, r + 1)[0] = p->category[r];
        for (int i = 0; i < p->nseries; i++)
            table_row(t, r + 1)[1 + i] = plot_value_interval(&p->series[i], r, unit, pool);
    }
    return ERR_NONE;
}

static enum error span_table(const struct plot *p, struct pool *pool, struct table *t) {
    static const char *const heads[] = {"", "what", "from", "to", "takes"};
    TRY(table_init(t, p->title, 5, p->nspans, pool));
    t->words = 2;
    for (int c = 0; c < 5; c++) table_row(t, 0)[c] = heads[c];
    for (int i = 0; i < p->nspans; i++) {
        const struct plot_span *s = &p->span[i];
        const char **row = table_row(t, i + 1);
        row[0] = p->category[s->row];
        row[1] = p->series[s->series].name;
        row[2] = plot_value(p->x.unit, s->from, pool);
        row[3] = plot_value(p->x.unit, s->to, pool);
        row[4] = plot_value(p->x.unit, s->to - s->from, pool);
    }
    return ERR_NONE;
}

enum error plot_table(const struct plot *p, struct pool *pool, struct table *out) {
    return p->kind == PLOT_LINE       ? line_table(p, pool, out)
           : p->kind == PLOT_TIMELINE ? span_table(p, pool, out)
                                      : grid_table(p, pool, out);
}
