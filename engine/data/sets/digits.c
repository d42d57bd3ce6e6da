/* digits: 28x28 grey figures drawn by the engine itself.
 *
 * A figure is two or three ways of writing a digit, each a pen's path through a few points. A
 * sample moves every point a little, then turns, slants, stretches and shifts the whole; the pen is
 * a round one of random width. Each segment of the path lowers the squared distances of the pixels
 * in its own box, so that the cost is that of the ink, not of the picture. Paper, ink and noise
 * then make bytes of the distances. Only + - * / and square roots: the same bytes on every machine.
 */
#include "engine/base/vector.h"
#include "engine/data/drawn.h"

#include <math.h>
#include <string.h>

enum { SIDE = 28, STRIDE = 32, PIXELS = SIDE * SIDE, FIGURES = 10, STYLES = 3 };
/* Ways of writing each digit: points as letters for x and y, from a to u over the box, y downward;
 * the pen leaves the paper at a blank. */
static const char *const figures[FIGURES][STYLES] = {
    {"kaqctkqskuesbkecka", "mareromuhudqegibob"},
    {"kaku", "eflalu", "fekaku euru"},
    {"cfeblarcshnmbutu", "cejaqcrhkoeubreqmtus"},
    {"cciaqcrgojikqltpqtiucs", "casajiqktpptiucs"},
    {"ouoabouo", "eaclsl pcou"},
    {"saeacjjiqjtoqtiucs", "fbdjlismqsjucs fbsa"},
    {"qajcdjcpftmusrsmnkglcp", "mafjcqhuptrolldp"},
    {"bataiu", "cccasaju gkrj"},
    {"kkehddkardqhkkdmcrkusrrmkk", "rckaeeqonugteorc"},
    {"sgpkhlciccjaqbsgrmmu", "rdkaedeilkrdqkqpqu"},
};

/* ---- drawing ---- */
struct point {
    float x, y;
};
struct motion { /* box of 100 x 100 -> pixels */
    float xx, xy, yx, yy, x0, y0;
};

static struct motion motion_draw(struct draw *d) {
    float t = draw_range(d, -0.13f, 0.13f); /* tangent of half the angle: 15 degrees either way */
    float c = (1 - t * t) / (1 + t * t), s = 2 * t / (1 + t * t);
    float width = draw_range(d, 0.085f, 0.15f), height = draw_range(d, 0.145f, 0.205f);
    float slant = draw_range(d, -0.3f, 0.3f);
    struct motion m = {c * width, (c * slant - s) * height, s * width, (s * slant + c) * height, 0, 0};
    m.x0 = 13.5f + draw_range(d, -3, 3) - 50 * (m.xx + m.xy);
    m.y0 = 13.5f + draw_range(d, -3, 3) - 50 * (m.yx + m.yy);
    return m;
}

/* far[y][x] = min(itself, squared distance to the segment a b in 1/1024 pixels), where that is
 * within reach. What is compared is integer: compilers do not turn comparisons of floats into
 * vectors as long as these may trap. */
VECTORISED static void segment_draw(int far[SIDE][STRIDE], struct point a, struct point b, float reach) {
    float dx = b.x - a.x, dy = b.y - a.y, inverse = 4096 / (dx * dx + dy * dy + 1e-6f);
    int x0 = drawn_clamp((int)((a.x < b.x ? a.x : b.x) - reach), 0, SIDE) & ~3;
    int x1 = (drawn_clamp((int)((a.x < b.x ? b.x : a.x) + reach + 1), 0, SIDE) + 3) & ~3;
    int y0 = drawn_clamp((int)((a.y < b.y ? a.y : b.y) - reach), 0, SIDE);
    int y1 = drawn_clamp((int)((a.y < b.y ? b.y : a.y) + reach + 1), 0, SIDE);
    for (int y = y0; y < y1; y++) {
        int *row = far[y];
        float py = (float)y - a.y;
        for (int x = x0; x < x1; x++) {
            float px = (float)x - a.x, along = (px * dx + py * dy) * inverse;
            float t = (float)drawn_clamp((int)along, 0, 4096) * (1.0f / 4096);
            float ex = px - t * dx, ey = py - t * dy;
            int e = (int)((ex * ex + ey * ey) * 1024);
            row[x] = e < row[x] ? e : row[x];
        }
    }
}

static void path_draw(int far[SIDE][STRIDE], const char *path, struct draw *d, float reach) {
    struct motion m = motion_draw(d);
    struct point last = {0, 0};
    bool down = false;
    for (; *path; path += 2) {
        if (*path == ' ') down = false, path++;
        float x = (float)(path[0] - 'a') * 5 + draw_range(d, -6, 6);
        float y = (float)(path[1] - 'a') * 5 + draw_range(d, -6, 6);
        struct point p = {m.xx * x + m.xy * y + m.x0, m.yx * x + m.yy * y + m.y0};
        if (down) segment_draw(far, last, p, reach);
        last = p;
        down = true;
    }
}

/* Coverage of each pixel by a pen of that radius with an edge one pixel wide, then ink on paper,
 * then noise. Rows are as long as vectors are, and what is beyond the picture goes. */
VECTORISED static void digit_ink(int far[SIDE][STRIDE], struct draw *d, float radius, uint8_t *out) {
    int paper = draw_below(d, 40), range = 110 + draw_below(d, 105), noise = 13 + draw_below(d, 60);
    uint8_t grain[PIXELS + STRIDE - SIDE] = {0}, row[STRIDE];
    draw_bytes(d, grain, PIXELS);
    for (int y = 0; y < SIDE; y++) {
        for (int x = 0; x < STRIDE; x++) {
            float edge = radius + 0.5f - sqrtf((float)far[y][x]) * (1.0f / 32);
            int cover = drawn_clamp((int)(edge * 256), 0, 256);
            int v = 256 * paper + range * cover + noise * (grain[y * SIDE + x] - 128) + 128;
            row[x] = (uint8_t)(drawn_clamp(v, 0, 65535) >> 8);
        }
        memcpy(out + y * SIDE, row, SIDE);
    }
}

static void figure_draw(struct draw *d, int figure, uint8_t *out) {
    int far[SIDE][STRIDE];
    memset(far, 0x3f, sizeof far); /* farther than any pixel */
    const char *const *styles = figures[figure];
    const char *path = styles[draw_below(d, styles[2] ? 3 : 2)];
    float radius = draw_range(d, 0.6f, 1.7f);
    path_draw(far, path, d, radius + 1);
    digit_ink(far, d, radius, out);
}

/* ---- the set ---- */
static const struct drawn_kind kind = {.shape = {3, {1, SIDE, SIDE}}, .classes = FIGURES, .draw = figure_draw};

const struct dataset_ops dataset_digits =
    DRAWN_SET("digits", "Grey 28x28 digits that the engine generates; needs no file");
