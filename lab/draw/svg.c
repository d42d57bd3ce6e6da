/* The parts of every plot: text that stays in its box, signs, legend, frame. */
#include "lab/draw/svg.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ----------------------------------------------------------------------------------- */

/* The width of a character as a share of the font's size, by the advance widths of wide sans serif fonts, in classes: the reader's font is not known here. */
static double svg_character_width(unsigned char ch) {
    if (ch >= 0x80) return 0.85;
    if (strchr("mwMWQ@%", ch)) return 0.98;
    if (strchr("iljI.,:;|!' ", ch)) return 0.34;
    if (strchr("ftr()[]/-\"", ch)) return 0.43;
    return ch >= 'A' && ch <= 'Z' ? 0.75 : 0.645;
}

double plot_text_width(const char *s) {
    double width = 0;
    for (; *s; s++)
        if (((unsigned char)*s & 0xC0) != 0x80) width += svg_character_width((unsigned char)*s);
    return width * SVG_TEXT;
}

/* Bytes of s that fit into the width, whole characters. */
static size_t text_fitting(const char *s, double width) {
    size_t n = strlen(s), i = 0;
    double used = 0;
    while (i < n) {
        size_t step = text_utf8(s + i, n - i);
        used += svg_character_width((unsigned char)s[i]) * SVG_TEXT;
        if (used > width) break;
        i += step ? step : 1;
    }
    return i;
}

struct label { /* where a text stands, and how */
    double x, y;
    enum svg_anchor anchor;
    const char *style;
};

/* The first n bytes of a text; cut: with an ellipsis, under which the whole text is. */
static void svg_put_text(struct svg_canvas *c, const struct label *at, const char *text, size_t n, bool cut) {
    static const char *const anchors[] = {"start", "middle", "end"};
    char part[512];
    snprintf(part, sizeof part, "%.*s", (int)(n < sizeof part ? n : sizeof part - 1), text);
    fprintf(c->m, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\"", at->x, at->y, anchors[at->anchor]);
    if (*at->style) fprintf(c->m, " class=\"%s\"", at->style);
    fprintf(c->m, ">");
    markup_text(c->m, part);
    if (cut) {
        fprintf(c->m, "\xE2\x80\xA6<title>");
        markup_text(c->m, text);
        fprintf(c->m, "</title>");
    }
    fprintf(c->m, "</text>\n");
}

void svg_text(struct svg_canvas *c, double x, double y, enum svg_anchor anchor, double width, const char *style,
              const char *text) {
    bool cut = plot_text_width(text) > width;
    size_t n = cut ? text_fitting(text, width - SVG_TEXT) : strlen(text);
    svg_put_text(c, &(struct label){x, y, anchor, style}, text, n, cut);
}

/* The bytes of the next line: up to the last space that fits, or as much as fits. */
static size_t svg_line_length(const char *s, double width) {
    size_t n = text_fitting(s, width);
    if (!s[n]) return n;
    for (size_t i = n; i > 0; i--)
        if (s[i] == ' ') return i;
    return n ? n : 1;
}

/* A text from edge to edge, over as many lines as it needs, at most 'most', from c->y on; moves c->y. */
static void svg_put_words(struct svg_canvas *c, int most, const char *style, const char *text) {
    double width = PLOT_WIDTH - 2 * SVG_EDGE, wide = !strcmp(style, "bold") ? width / 1.1 : width;
    for (int i = 0; i < most && *text; i++) {
        size_t n = svg_line_length(text, wide);
        bool cut = i == most - 1 && text[n];
        if (cut) n = text_fitting(text, wide - SVG_TEXT);
        svg_put_text(c, &(struct label){SVG_EDGE, c->y + SVG_TEXT, SVG_START, style}, text, n, cut);
        c->y += SVG_LINE;
        text += n;
        while (*text == ' ') text++;
    }
}

void svg_hover(struct svg_canvas *c, int row, const char *name, const char *value) {
    fprintf(c->m, "<title>");
    markup_text(c->m, c->p->category[row]);
    fprintf(c->m, ", ");
    markup_text(c->m, name);
    fprintf(c->m, ": ");
    markup_text(c->m, value);
    fprintf(c->m, "</title>");
}

/* ---- signs ---------------------------------------------------------------------------------- */

void svg_line(struct svg_canvas *c, double x1, double y1, double x2, double y2, const char *style) {
    fprintf(c->m, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", style, x1, y1, x2, y2);
}

void svg_marker(struct svg_canvas *c, int colour, double x, double y, double size) {
    static const char *const shapes[] = {"M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
                                         "M-4,-4h8v8h-8z",
                                         "M0,-5l5,9h-10z",
                                         "M0,-5l5,5l-5,5l-5,-5z",
                                         "M0,5l5,-9h-10z",
                                         "M-5,-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z",
                                         "M-5,-3l2,-2l3,3l3,-3l2,2l-3,3l3,3l-2,2l-3,-3l-3,3l-2,-2l3,-3z"};
    int k = colour % PLOT_COLOURS;
    fprintf(c->m, "<path class=\"m%d\" transform=\"translate(%.1f %.1f) scale(%.3g)\" d=\"%s\"/>\n", k, x, y, size,
            shapes[k]);
}

static void svg_legend_sign(struct svg_canvas *c, const struct plot_series *s, double x, double y) {
    int k = s->colour % PLOT_COLOURS;
    if (c->p->kind != PLOT_LINE && c->p->kind != PLOT_DOTS) {
        fprintf(c->m, "<rect class=\"b%d\" x=\"%.1f\" y=\"%.1f\" width=\"20\" height=\"11\"/>\n", k, x, y - 9);
        return;
    }
    char style[24];
    snprintf(style, sizeof style, s->model ? "model s%d" : "s%d", k);
    if (!s->points && c->p->kind == PLOT_LINE) svg_line(c, x, y - 4, x + 20, y - 4, style);
    if (!s->model) svg_marker(c, k, x + 10, y - 4, 1);
}

/* Names of the series with their signs; moves c->y. */
static void draw_legend(struct svg_canvas *c) {
    double x = SVG_EDGE, room = PLOT_WIDTH - 2 * SVG_EDGE;
    bool any = false;
    for (int i = 0; i < c->p->nseries; i++) {
        const struct plot_series *s = &c->p->series[i];
        double width = 26 + fmin(plot_text_width(s->name), room - 26) + 12;
        if (any && x + width - 12 > PLOT_WIDTH - SVG_EDGE) {
            x = SVG_EDGE;
            c->y += SVG_LINE;
        }
        svg_legend_sign(c, s, x, c->y + SVG_TEXT);
        svg_text(c, x + 26, c->y + SVG_TEXT, SVG_START, room - 26, "", s->name);
        x += width;
        any = true;
    }
    if (any) c->y += SVG_LINE + 2;
}

static void svg_left_out_rows(struct svg_canvas *c) {
    char words[64];
    if (c->p->ncategories <= PLOT_ROWS) return;
    snprintf(words, sizeof words, "%d more rows are in the table", c->p->ncategories - PLOT_ROWS);
    svg_put_words(c, 1, "soft", words);
}

/* ---- the frame ------------------------------------------------------------------------------ */

enum error plot_svg(const struct plot *p, double *y, FILE *out) {
    static void (*const draw[])(struct svg_canvas *) = {svg_draw_line,     svg_draw_bars, svg_draw_bars,
                                                        svg_draw_timeline, svg_draw_dots, svg_draw_map};
    struct file_text body; /* is drawn first, as the frame has its height */
    TRY(file_text_open(&body));
    struct svg_canvas c = {.p = p, .m = body.out, .y = 4};
    svg_put_words(&c, 3, "bold", p->title);
    c.y += 3;
    if (p->kind != PLOT_MAP && (p->nseries > 1 || p->kind != PLOT_LINE)) draw_legend(&c);
    draw[p->kind](&c);
    svg_left_out_rows(&c);
    double height = ceil(c.y + 4);
    TRY(file_text_close(&body, ERR_NONE));
    fprintf(out,
            "<svg class=\"plot%s%s\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" y=\"%.0f\" "
            "width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\">\n",
            p->style ? " " : "", p->style ? p->style : "", *y, PLOT_WIDTH, height, PLOT_WIDTH, height);
    markup_element(out, "title", p->title);
    markup_element(out, "desc", p->about);
    fprintf(out, "%s</svg>\n", body.text);
    free(body.text);
    *y += height;
    return ERR_NONE;
}
