/* digits: 28x28 grey figures drawn by the engine itself, so that a run needs no file and no
 * network. A sample is a pure function of (seed, split, number), drawn on first use and kept.
 *
 * A figure is two or three ways of writing a digit, each a pen's path through a few points. A
 * sample moves every point a little, then turns, slants, stretches and shifts the whole; the pen is
 * a round one of random width. Each segment of the path lowers the squared distances of the pixels
 * in its own box, so that the cost is that of the ink, not of the picture. Paper, ink and noise
 * then make bytes of the distances. Only + - * / and square roots: the same bytes on every machine.
 */
#include "engine/base/rng.h"
#include "engine/data/dataset.h"

#include <math.h>
#include <stdatomic.h>
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

struct digits_config {
    int64_t train, val;
};
struct digits {
    struct dataset base;
    struct rng_key key;
    uint64_t split;
    uint8_t *pixels; /* (size, PIXELS); owns the states too */
    atomic_uchar *state;
};
enum { EMPTY, BUSY, READY };

/* ---- randomness: one stream of words a sample ---- */
struct draw {
    struct rng_key key;
    uint64_t sample, block; /* block: the split in its upper half, what was drawn below */
    uint32_t words[4];
    int left;
};

static uint32_t draw_word(struct draw *d) {
    if (!d->left) rng_words(d->key, d->sample, d->block++, d->words), d->left = 4;
    return d->words[--d->left];
}

static float draw_range(struct draw *d, float low, float high) {
    return low + (high - low) * rng_unit(draw_word(d));
}

static int draw_below(struct draw *d, int n) {
    return (int)((uint64_t)draw_word(d) * (uint64_t)n >> 32);
}

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
    struct motion m = {c * width, (c * slant - s) * height, s * width, (s * slant + c) * height, 0,
                       0};
    m.x0 = 13.5f + draw_range(d, -3, 3) - 50 * (m.xx + m.xy);
    m.y0 = 13.5f + draw_range(d, -3, 3) - 50 * (m.yx + m.yy);
    return m;
}

static int clamp(int v, int low, int high) {
    v = v < low ? low : v;
    return v > high ? high : v;
}

/* far[y][x] = min(itself, squared distance to the segment a b in 1/1024 pixels), where that is
 * within reach. What is compared is integer: compilers do not turn comparisons of floats into
 * vectors as long as these may trap. */
static void segment_draw(int far[SIDE][STRIDE], struct point a, struct point b, float reach) {
    float dx = b.x - a.x, dy = b.y - a.y, inverse = 4096 / (dx * dx + dy * dy + 1e-6f);
    int x0 = clamp((int)((a.x < b.x ? a.x : b.x) - reach), 0, SIDE) & ~3;
    int x1 = (clamp((int)((a.x < b.x ? b.x : a.x) + reach + 1), 0, SIDE) + 3) & ~3;
    int y0 = clamp((int)((a.y < b.y ? a.y : b.y) - reach), 0, SIDE);
    int y1 = clamp((int)((a.y < b.y ? b.y : a.y) + reach + 1), 0, SIDE);
    for (int y = y0; y < y1; y++) {
        int *row = far[y];
        float py = (float)y - a.y;
        for (int x = x0; x < x1; x++) {
            float px = (float)x - a.x, along = (px * dx + py * dy) * inverse;
            float t = (float)clamp((int)along, 0, 4096) * (1.0f / 4096);
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
 * then noise. */
static void ink(int far[SIDE][STRIDE], struct draw *d, float radius, uint8_t *out) {
    int paper = draw_below(d, 40), range = 110 + draw_below(d, 105), noise = 13 + draw_below(d, 60);
    uint8_t grain[PIXELS];
    for (int k = 0; k < PIXELS; k += 16) {
        rng_words(d->key, d->sample, d->block++, d->words);
        memcpy(grain + k, d->words, 16);
    }
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            float edge = radius + 0.5f - sqrtf((float)far[y][x]) * (1.0f / 32);
            int cover = clamp((int)(edge * 256), 0, 256);
            int v = 256 * paper + range * cover + noise * (grain[y * SIDE + x] - 128) + 128;
            out[y * SIDE + x] = (uint8_t)(clamp(v, 0, 65535) >> 8);
        }
}

static struct draw draw_begin(const struct digits *s, int64_t i, int *figure) {
    struct draw d = {.key = s->key, .sample = (uint64_t)i, .block = s->split << 32};
    *figure = draw_below(&d, FIGURES);
    return d;
}

static void figure_draw(struct draw *d, int figure, uint8_t *out) {
    int far[SIDE][STRIDE];
    memset(far, 0x3f, sizeof far); /* farther than any pixel */
    const char *const *styles = figures[figure];
    const char *path = styles[draw_below(d, styles[2] ? 3 : 2)];
    float radius = draw_range(d, 0.6f, 1.7f);
    path_draw(far, path, d, radius + 1);
    ink(far, d, radius, out);
}

/* ---- the set ---- */
static void digits_close(struct dataset *base) {
    struct digits *s = (struct digits *)base;
    memory_free(s->pixels);
    memory_free(s);
}

static enum error digits_read(struct dataset *base, int64_t i, void *x, int32_t *label,
                              float *target) {
    (void)target;
    struct digits *s = (struct digits *)base;
    uint8_t *kept = s->pixels + i * PIXELS;
    int figure;
    struct draw d = draw_begin(s, i, &figure);
    *label = figure;
    unsigned char state = atomic_load_explicit(&s->state[i], memory_order_acquire);
    if (state == EMPTY && atomic_compare_exchange_strong(&s->state[i], &state, BUSY)) {
        figure_draw(&d, figure, kept);
        atomic_store_explicit(&s->state[i], READY, memory_order_release);
        state = READY;
    }
    if (state == READY)
        memcpy(x, kept, PIXELS);
    else
        figure_draw(&d, figure,
                    x); /* another thread is at it: no waiting, the bytes are the same */
    return ERR_NONE;
}

static const struct config_field fields[] = {
    {"train", CONFIG_INT, offsetof(struct digits_config, train), .standard = "10000",
     .help = "Training samples to draw", .min = 1, .max = 10e6},
    {"val", CONFIG_INT, offsetof(struct digits_config, val), .standard = "2000",
     .help = "Validation samples to draw", .min = 1, .max = 10e6},
    {0},
};
extern const struct dataset_ops dataset_digits;

static enum error digits_open(const void *config, bool train, uint64_t seed, struct dataset **out) {
    const struct digits_config *c = config;
    int64_t size = train ? c->train : c->val;
    size_t bytes;
    TRY(memory_size((size_t)size, PIXELS + 1, "digits", &bytes));
    struct digits *s;
    TRY(memory_alloc(sizeof *s, (void **)&s));
    s->base = (struct dataset){.ops = &dataset_digits,
                               .size = size,
                               .shape = {3, {1, SIDE, SIDE}},
                               .type = SAMPLE_U8,
                               .classes = FIGURES,
                               .name = "digits",
                               .plane = true};
    s->key = rng_key(seed, RNG_DATA);
    s->split = train ? 0 : 1;
    enum error err = memory_alloc(bytes, (void **)&s->pixels);
    if (err != ERR_NONE) {
        memory_free(s);
        return err;
    }
    s->state = (atomic_uchar *)(s->pixels + size * PIXELS);
    *out = &s->base;
    return ERR_NONE;
}

const struct dataset_ops dataset_digits = {
    .section = {.name = "digits",
                .fields = fields,
                .size = sizeof(struct digits_config),
                .help = "Grey 28x28 figures that the engine draws itself; needs no file"},
    .open = digits_open,
    .read = digits_read,
    .close = digits_close,
};
