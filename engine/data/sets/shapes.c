/* shapes: 32x32 colour pictures of ten plane figures, for networks that convolve. Colours, place,
 * size and turn are random, so that no pixel by itself says much: a linear model stays near
 * chance.
 *
 * A figure is a function of the plane, negative inside, in units of its radius and with a slope of
 * about one at its edge: from the function's value comes how much of a pixel it covers. From back
 * to front a picture is a ground that runs from one colour to another, some thin strokes and dots,
 * the figure, and noise. */
#include "engine/data/drawn.h"

#include <math.h>

enum { SIDE = 32, AREA = SIDE * SIDE, COLOURS = 3, FIGURES = 10 };

/* ---- figures ---- */
static float largest_of(float a, float b) {
    return a > b ? a : b;
}

static float smallest_of(float a, float b) {
    return a < b ? a : b;
}

static float shape_box(float u, float v, float width, float height) {
    return largest_of(fabsf(u) - width, fabsf(v) - height);
}

static float shape_disc(float u, float v) {
    return sqrtf(u * u + v * v) - 1;
}

static float shape_ring(float u, float v) {
    return fabsf(sqrtf(u * u + v * v) - 0.76f) - 0.24f;
}

static float shape_square(float u, float v) {
    return shape_box(u, v, 0.78f, 0.78f);
}

static float shape_frame(float u, float v) {
    return fabsf(shape_box(u, v, 0.62f, 0.62f)) - 0.2f;
}

static float shape_triangle(float u, float v) {
    return largest_of(v - 0.5f, fabsf(u) * 0.8660254f - v * 0.5f - 0.5f);
}

/* Inside a five-pointed star at most one of five lines is crossed. */
static float shape_star(float u, float v) {
    static const float x[] = {0, 0.95105652f, 0.58778525f, -0.58778525f, -0.95105652f},
                       y[] = {-1, -0.30901699f, 0.80901699f, 0.80901699f, -0.30901699f};
    float first = -9, second = -9;
    for (int k = 0; k < 5; k++) {
        float far = u * x[k] + v * y[k];
        second = largest_of(second, smallest_of(first, far));
        first = largest_of(first, far);
    }
    return second - 0.34f;
}

static float shape_cross(float u, float v) {
    return smallest_of(shape_box(u, v, 1, 0.3f), shape_box(u, v, 0.3f, 1));
}

static float shape_crescent(float u, float v) {
    float x = u - 0.5f;
    return largest_of(shape_disc(u, v), 0.82f - sqrtf(x * x + v * v));
}

static float shape_bar(float u, float v) {
    return shape_box(u, v, 1, 0.32f);
}

static float shape_corner(float u, float v) {
    return smallest_of(shape_box(u + 0.5f, v, 0.28f, 0.8f), shape_box(u, v - 0.52f, 0.78f, 0.28f));
}

static float (*const figures[FIGURES])(float u, float v) = {shape_disc,     shape_ring,  shape_square, shape_frame,
                                                            shape_triangle, shape_star,  shape_cross,  shape_crescent,
                                                            shape_bar,      shape_corner};

/* ---- painting ---- */
struct canvas {
    float at[COLOURS][AREA];
};
struct colour {
    float of[COLOURS];
};

static struct colour colour_draw(struct draw *d, float brightest) {
    struct colour c;
    for (int k = 0; k < COLOURS; k++) c.of[k] = draw_range(d, 0, brightest);
    return c;
}

static void canvas_paint(struct canvas *c, int place, const struct colour *colour, float cover) {
    cover = smallest_of(largest_of(cover, 0), 1);
    for (int k = 0; k < COLOURS; k++) c->at[k][place] += (colour->of[k] - c->at[k][place]) * cover;
}

/* Draws the ground, from one colour to another near it along a line of any direction; gives the colour between. */
static struct colour ground_draw(struct draw *d, struct canvas *c) {
    struct colour middle = colour_draw(d, 130);
    float dx = draw_range(d, -2, 2) / SIDE, dy = draw_range(d, -2, 2) / SIDE;
    for (int k = 0; k < COLOURS; k++) {
        float change = draw_range(d, -24, 24);
        for (int y = 0; y < SIDE; y++)
            for (int x = 0; x < SIDE; x++) {
                float t = dx * ((float)x - 15.5f) + dy * ((float)y - 15.5f);
                c->at[k][y * SIDE + x] = middle.of[k] + change * smallest_of(largest_of(t, -1), 1);
            }
    }
    return middle;
}

struct span { /* pixels of one axis */
    int from, to;
};

static struct span span_of(float middle, float reach) {
    return (struct span){drawn_clamp((int)(middle - reach), 0, SIDE), drawn_clamp((int)(middle + reach) + 2, 0, SIDE)};
}

/* A stroke of some pixels' length; of none it is a dot. */
static void stroke_draw(struct draw *d, struct canvas *c) {
    struct colour colour = colour_draw(d, 200);
    float x0 = draw_range(d, 0, SIDE), y0 = draw_range(d, 0, SIDE);
    bool dot = draw_below(d, 2);
    float dx = draw_range(d, -7, 7), dy = draw_range(d, -7, 7), half = draw_range(d, 0.4f, 0.8f);
    if (dot) dx = dy = 0, half *= 2;
    float inverse = 1 / (dx * dx + dy * dy + 1e-6f);
    struct span xs = span_of(x0, fabsf(dx) + half + 1), ys = span_of(y0, fabsf(dy) + half + 1);
    for (int y = ys.from; y < ys.to; y++)
        for (int x = xs.from; x < xs.to; x++) {
            float px = (float)x - x0, py = (float)y - y0;
            float t = smallest_of(largest_of((px * dx + py * dy) * inverse, -1), 1);
            float ex = px - t * dx, ey = py - t * dy;
            canvas_paint(c, y * SIDE + x, &colour, half + 0.5f - sqrtf(ex * ex + ey * ey));
        }
}

/* Brighter than the ground, and much so in one channel at least. */
static struct colour contrast_draw(struct draw *d, const struct colour *ground) {
    struct colour c;
    int strong = draw_below(d, COLOURS);
    for (int k = 0; k < COLOURS; k++) {
        c.of[k] = ground->of[k] + draw_range(d, k == strong ? 80 : 10, 125);
    }
    return c;
}

static void figure_paint(struct draw *d, int figure, const struct colour *colour, struct canvas *c) {
    float radius = draw_range(d, 6.5f, 13), room = SIDE / 2 - radius * 0.85f;
    float x0 = 15.5f + draw_range(d, -room, room), y0 = 15.5f + draw_range(d, -room, room);
    float t = draw_range(d, -1, 1), turned = draw_below(d, 2) ? 1.0f : -1.0f; /* any angle */
    float cosine = turned * (1 - t * t) / (1 + t * t), sine = turned * 2 * t / (1 + t * t);
    struct span xs = span_of(x0, 1.3f * radius), ys = span_of(y0, 1.3f * radius);
    for (int y = ys.from; y < ys.to; y++)
        for (int x = xs.from; x < xs.to; x++) {
            float px = ((float)x - x0) / radius, py = ((float)y - y0) / radius;
            float f = figures[figure](cosine * px + sine * py, cosine * py - sine * px);
            canvas_paint(c, y * SIDE + x, colour, 0.5f - f * radius);
        }
}

static void noise_add(struct draw *d, const struct canvas *c, uint8_t *out) {
    float noise = draw_range(d, 8, 40) / 128;
    uint8_t grain[COLOURS * AREA];
    draw_bytes(d, grain, COLOURS * AREA);
    for (int k = 0; k < COLOURS; k++)
        for (int i = 0; i < AREA; i++) {
            float v = c->at[k][i] + noise * (float)(grain[k * AREA + i] - 128);
            out[k * AREA + i] = (uint8_t)drawn_clamp((int)v, 0, 255);
        }
}

static void shapes_draw(struct draw *d, int label, uint8_t *out) {
    struct canvas c;
    struct colour ground = ground_draw(d, &c);
    for (int n = 2 + draw_below(d, 4); n > 0; n--) stroke_draw(d, &c);
    struct colour colour = contrast_draw(d, &ground);
    figure_paint(d, label, &colour, &c);
    noise_add(d, &c, out);
}

/* ---- the set ---- */
static const struct drawn_kind kind = {.shape = {3, {COLOURS, SIDE, SIDE}}, .classes = FIGURES, .draw = shapes_draw};

const struct dataset_ops dataset_shapes =
    DRAWN_SET("shapes", "Colour 32x32 pictures of ten plane figures that the engine generates; needs no file");
