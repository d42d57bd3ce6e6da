/* Axes: which range, which ticks, which unit. */
#include "lab/draw/svg.h"

#include "engine/base/text.h"

#include <math.h>
#include <stdio.h>

struct scale_unit {
    double least, factor; /* from this value on */
    const char *name;
};

static void choose_unit(struct scale *s, enum plot_unit unit, double most) {
    static const struct scale_unit seconds[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {0, 1e6, "us"}};
    static const struct scale_unit bytes[] = {
        {1073741824., 1 / 1073741824., "GB"}, {1048576., 1 / 1048576., "MB"}, {1024, 1 / 1024., "KB"}, {0, 1, "B"}};
    s->factor = unit == PLOT_SHARE ? 100 : 1;
    s->unit = unit == PLOT_SHARE ? "%" : "";
    const struct scale_unit *u = unit == PLOT_SECONDS ? seconds : unit == PLOT_BYTES ? bytes : NULL;
    if (!u) return;
    while (u->least > most && u->least > 0) u++;
    s->factor = u->factor;
    s->unit = u->name;
}

/* 1, 2 or 5 times a power of ten, so that 'range' has at most 'parts' of them. */
static double scale_nice_step(double range, int parts) {
    double rough = range / parts, power = pow(10, floor(log10(rough)));
    double part = rough / power;
    return power * (part <= 1.0001 ? 1 : part <= 2.0001 ? 2 : part <= 5.0001 ? 5 : 10);
}

static void linear_ticks(struct scale *s, bool given) {
    double step = scale_nice_step(s->high - s->low, 6);
    double first = floor(s->low / step + 1e-9), last = ceil(s->high / step - 1e-9);
    if (given) return;
    s->low = first * step;
    s->high = last * step;
    for (double k = first; k <= last && s->nticks < SVG_TICKS; k++) s->tick[s->nticks++] = k * step;
}

/* Powers of ten; with 5 times them where there are few, and 2 times where there are fewer; not so many that they
 * touch. */
static void log_ticks(struct scale *s, bool given) {
    static const double parts[] = {1, 2, 5};
    double decades = log10(s->high / s->low);
    s->low /= 1.15;
    s->high *= 1.15;
    if (given) return;
    int stride = decades > 6 ? (int)ceil(decades / 6) : 1, first = (int)floor(log10(s->low));
    for (int e = first; pow(10, e) <= s->high && s->nticks < SVG_TICKS; e += stride)
        for (int k = 0; k < (decades < 3.5 ? 3 : 1); k++) {
            if (k == 1 && decades >= 2.5) continue;
            double v = parts[k] * pow(10, e);
            if (v >= s->low && v <= s->high && s->nticks < SVG_TICKS) s->tick[s->nticks++] = v;
        }
    if (s->nticks >= 3 || decades > 1.5) return;
    double step = scale_nice_step(s->high - s->low, 4); /* less than a decade: evenly */
    s->nticks = 0;
    for (double v = ceil(s->low / step) * step; v <= s->high; v += step)
        if (v > 0 && s->nticks < SVG_TICKS) s->tick[s->nticks++] = v;
}

struct scale svg_scale(const struct plot_axis *a, double low, double high, double from, double to) {
    struct scale s = {.from = from, .to = to, .log = a->log && low > 0};
    if (!(low <= high)) low = 0, high = 1; /* nothing was measured */
    if (a->zero && !s.log) low = fmin(low, 0), high = fmax(high, 0);
    choose_unit(&s, a->unit, fmax(fabs(low), fabs(high)));
    s.low = low * s.factor;
    s.high = high * s.factor;
    if (!(s.high - s.low > 1e-9 * fabs(s.high))) { /* one value */
        double about = s.high == 0 ? 1 : fabs(s.high) / 2;
        s.low = s.log || (a->zero && low >= 0) ? s.low : s.low - about;
        s.high += about;
    }
    for (int i = 0; i < a->nticks && i < SVG_TICKS; i++) s.tick[s.nticks++] = a->tick[i] * s.factor;
    if (s.log)
        log_ticks(&s, a->nticks > 0);
    else
        linear_ticks(&s, a->nticks > 0);
    return s;
}

double svg_at(const struct scale *s, double value) {
    double v = value * s->factor;
    double part = s->log ? log(v / s->low) / log(s->high / s->low) : (v - s->low) / (s->high - s->low);
    return s->from + fmin(fmax(part, 0), 1) * (s->to - s->from);
}

void svg_tick_text(const struct scale *s, int i, char out[32]) {
    double v = s->tick[i];
    snprintf(out, 32, fabs(v) >= 1e6 || (v != 0 && fabs(v) < 1e-4) ? "%.3g" : "%.6g",
             fabs(v) < 1e-12 * (fabs(s->low) + fabs(s->high)) ? 0 : v);
}

void svg_axis_label(const struct plot_axis *a, const struct scale *s, char out[96]) {
    snprintf(out, 96, *s->unit ? "%s, %s" : "%s", a->label, s->unit);
}

void plot_value_text(enum plot_unit unit, double v, char out[32]) {
    if (!isfinite(v))
        snprintf(out, 32, "-");
    else if (unit == PLOT_BYTES)
        text_of_bytes(v, out);
    else if (unit == PLOT_SHARE)
        snprintf(out, 32, "%.1f %%", v * 100);
    else if (unit == PLOT_SECONDS)
        snprintf(out, 32,
                 v < 1e-3 ? "%.1f us"
                 : v < 1  ? "%.3g ms"
                          : "%.4g s",
                 v < 1e-3 ? v * 1e6
                 : v < 1  ? v * 1e3
                          : v);
    else
        snprintf(out, 32, "%.5g", v);
}

void svg_bottom_axis(struct svg_canvas *c, const struct plot_axis *a, const struct scale *s, double top) {
    char text[96];
    double free_from = -1e9;
    for (int i = 0; i < s->nticks; i++) {
        double x = svg_at(s, s->tick[i] / s->factor);
        char tick[32];
        svg_tick_text(s, i, tick);
        double half = plot_text_width(tick) / 2;
        double middle = fmin(x, PLOT_WIDTH - SVG_EDGE - half);
        svg_line(c, x, top, x, c->y, "grid");
        if (middle - half < free_from) continue; /* it would touch its neighbour */
        svg_text(c, middle, c->y + SVG_LINE - 2, SVG_MIDDLE, PLOT_WIDTH, "soft", tick);
        free_from = middle + half + 5;
    }
    c->y += SVG_LINE + 2;
    svg_axis_label(a, s, text);
    double middle = (s->from + s->to) / 2, half = plot_text_width(text) / 2;
    middle = fmin(middle, PLOT_WIDTH - SVG_EDGE - half);
    svg_text(c, fmax(middle, half + SVG_EDGE), c->y + SVG_TEXT, SVG_MIDDLE, PLOT_WIDTH - 2 * SVG_EDGE, "soft", text);
    c->y += SVG_LINE + 2;
}
