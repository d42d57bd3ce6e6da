/* Parts of pictures, and resizing. */
#include "engine/data/picture.h"

#include "engine/base/real.h"
#include "engine/base/vector.h"

#include <math.h>
#include <string.h>

/* ---- parts ---- */
enum { RNG_BLOCK = 1 /* of a visit's words; transform.c takes 0 */, ATTEMPTS = 10 };

struct box box_middle(double part, int width, int height) {
    double side = part * (width < height ? width : height);
    return (struct box){(width - side) / 2, (height - side) / 2, side, side};
}

/* What PyTorch takes when ten attempts did not fit: the largest part in the middle whose shape is
 * allowed. */
static struct box box_fallback(const struct crop_rule *r, int width, int height) {
    double w = width, h = height, shape = w / h;
    if (shape < r->ratio[0]) h = round(w / r->ratio[0]);
    if (shape > r->ratio[1]) w = round(h * r->ratio[1]);
    h = h < 1 ? 1 : h;
    w = w < 1 ? 1 : w;
    return (struct box){floor((width - w) / 2), floor((height - h) / 2), w, h};
}

struct box box_draw(const struct visit *v, int width, int height) {
    const struct crop_rule *r = &v->rule;
    for (uint64_t k = 0; k < ATTEMPTS; k++) {
        uint32_t word[4];
        rng_words(v->key, v->id, RNG_BLOCK + k, word);
        double area = (double)width * height * draw_between(r->scale[0], r->scale[1], word[0]);
        double shape = real_exp(draw_between(real_log(r->ratio[0]), real_log(r->ratio[1]), word[1]));
        double w = round(sqrt(area * shape)), h = round(sqrt(area / shape));
        if (w < 1 || h < 1 || w > width || h > height) continue;
        return (struct box){floor((width - w + 1) * (double)rng_unit(word[2])),
                            floor((height - h + 1) * (double)rng_unit(word[3])), w, h};
    }
    return box_fallback(r, width, height);
}

/* ---- views ---- */
/* The even one of two neighbours, as Python rounds. */
static int half_of(int n) {
    return n / 2 + (n % 2 && n / 2 % 2);
}

/* The length of a side once the picture is scaled so that its shorter one becomes "least"; rounded down. */
static int longer_side(int least, int side, int shorter) {
    enum { MOST = 1 << 30 }; /* of a side that no memory could hold whole */
    double v = (double)((int64_t)least * side) / shorter;
    return v < MOST ? (int)v : MOST;
}

struct view view_middle(enum resample by, double part, int size, int width, int height) {
    struct view v = {box_middle(part, width, height), .size = size, .by = by};
    if (by == RESAMPLE_ENGINE) return v;
    int least = (int)(size / part + 0.5), shorter = width < height ? width : height;
    v.box = (struct box){0, 0, width, height};
    v.width = longer_side(least, width, shorter);
    v.height = longer_side(least, height, shorter);
    v.left = half_of(v.width - size);
    v.top = half_of(v.height - size);
    return v;
}

struct view view_part(enum resample by, struct box box, int size) {
    return (struct view){box, size, by, size, size, 0, 0};
}

/* ---- resizing ----
 * Rows first, as whole rows are added with one weight each, which vectors do well; what comes of it
 * is rounded to bytes. Then columns. Weights are whole numbers, so the result is the same on every
 * machine. */
enum { ONE_BITS = 14, ONE = 1 << ONE_BITS };

void resizer_fini(struct resizer *r) {
    memory_free(r->memory);
    *r = (struct resizer){0};
}

static int taps_of(double length, int size) {
    double support = length / size;
    return 2 * (int)ceil(support < 1 ? 1 : support) + 2;
}

static size_t axis_bytes(int size, int taps) {
    return align_bytes((size_t)size * (2 * sizeof(int) + (size_t)taps * sizeof(int32_t)));
}

static char *axis_place(struct axis *a, int size, int taps, char *at) {
    int *first = (void *)at;
    *a = (struct axis){size, taps, first, first + size, first + 2 * size};
    return at + axis_bytes(size, taps);
}

/* Places both axes in memory, and 'more' bytes after them, from r->row on. */
static enum error resizer_room(struct resizer *r, int size, int xtaps, int ytaps, size_t more) {
    size_t need = axis_bytes(size, xtaps) + axis_bytes(size, ytaps) + more;
    if (r->room < need) {
        resizer_fini(r);
        TRY(memory_alloc(need, &r->memory));
        r->room = need;
    }
    r->row = (void *)axis_place(&r->y, size, ytaps, axis_place(&r->x, size, xtaps, r->memory));
    return ERR_NONE;
}

static double filter_triangle(double x) {
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double weight_at(const struct axis *a, int i, int j, double center, double support) {
    return filter_triangle((a->first[i] + j + 0.5 - center) / support);
}

/* The weights of output pixel i around 'center'. Sums are rounded, not weights, so that they come
 * to ONE however many there are. */
static void weights_find(struct axis *a, int i, double center, double support) {
    double sum = 0, before = 0;
    int32_t *out = a->weight + (int64_t)i * a->taps;
    for (int j = 0; j < a->count[i]; j++) sum += weight_at(a, i, j, center, support);
    for (int j = 0; j < a->count[i]; j++) {
        double after = before + weight_at(a, i, j, center, support);
        out[j] = (int)(after / sum * ONE + 0.5) - (int)(before / sum * ONE + 0.5);
        before = after;
    }
}

/* 'size' pixels over [from, from + length) of an axis; pixels of [low, high) are looked at. */
static void axis_fill(struct axis *a, double from, double length, int low, int high) {
    double scale = length / a->size, support = scale < 1 ? 1 : scale;
    for (int i = 0; i < a->size; i++) {
        double center = from + (i + 0.5) * scale;
        int first = (int)floor(center - support + 0.5), last = (int)floor(center + support + 0.5);
        first = first < low ? low : first > high - 1 ? high - 1 : first;
        last = last > high ? high : last <= first ? first + 1 : last;
        a->first[i] = first;
        a->count[i] = last - first < a->taps ? last - first : a->taps;
        weights_find(a, i, center, support);
    }
}

/* out[0..n) = the weighted sum of 'count' rows, rounded. Pieces, so that sums stay in registers or the
 * nearest cache. */
VECTORISED static void rows_add(const unsigned char *rows, int64_t stride, const int32_t *weight, int count, int64_t n,
                                int32_t *out) {
    enum { PIECE = 512 };
    for (int64_t at = 0; at < n; at += PIECE, out += PIECE) {
        int64_t some = n - at < PIECE ? n - at : PIECE;
        for (int64_t i = 0; i < some; i++) out[i] = ONE / 2;
        for (int k = 0; k < count; k++) {
            const unsigned char *row = rows + k * stride + at;
            int32_t w = weight[k];
            for (int64_t i = 0; i < some; i++) out[i] += w * row[i];
        }
        for (int64_t i = 0; i < some; i++) out[i] >>= ONE_BITS;
    }
}

/* Red, green and blue of a pixel, and a lane that is not used. */
typedef int32_t colour __attribute__((vector_size(16)));

/* The weighted sum of 'count' pixels; one more number follows them. */
static inline colour colours_add(const int32_t *p, const int32_t *weight, int count, int half) {
    colour sum = {half, half, half}, one;
    for (int k = 0; k < count; k++, p += 3) {
        memcpy(&one, p, sizeof one);
        sum += weight[k] * one;
    }
    return sum;
}

/* One row of the output, of each channel, from a row of pixels whose first is 'low', and a 0 after them. */
VECTORISED static void columns_add(const struct axis *a, const int32_t *restrict row, int low,
                                   unsigned char *restrict out) {
    int64_t plane = (int64_t)a->size * a->size;
    for (int i = 0; i < a->size; i++) {
        const int32_t *p = row + (int64_t)(a->first[i] - low) * 3;
        const colour sum = colours_add(p, a->weight + (int64_t)i * a->taps, a->count[i], ONE / 2) >> ONE_BITS;
        for (int c = 0; c < 3; c++) out[i + c * plane] = (unsigned char)sum[c];
    }
}

enum error picture_resize(struct resizer *r, const unsigned char *pixels, int width, int height, const struct view *v,
                          unsigned char *out) {
    const struct box box = v->box;
    int left = (int)floor(box.x), right = (int)ceil(box.x + box.w);
    int top = (int)floor(box.y), bottom = (int)ceil(box.y + box.h);
    right = right > width ? width : right;
    bottom = bottom > height ? height : bottom;
    TRY(resizer_room(r, v->size, taps_of(box.w, v->size), taps_of(box.h, v->size),
                     ((size_t)box.w + 3) * 3 * sizeof *r->row));
    axis_fill(&r->x, box.x, box.w, left, right);
    axis_fill(&r->y, box.y, box.h, top, bottom);
    for (int i = 0; i < v->size; i++) {
        const unsigned char *rows = pixels + ((int64_t)r->y.first[i] * width + left) * 3;
        rows_add(rows, (int64_t)width * 3, r->y.weight + (int64_t)i * r->y.taps, r->y.count[i],
                 (int64_t)(right - left) * 3, r->row);
        r->row[(right - left) * 3] = 0;
        columns_add(&r->x, r->row, left, out + (int64_t)i * v->size);
    }
    return ERR_NONE;
}

/* ---- resizing as Pillow does ----
 * Columns first, then rows, each rounded to bytes; weights are whole numbers of 22 bits. Only what the square shows is
 * computed, which changes none of its bytes. */
enum { PILLOW_BITS = 22 };

static int pillow_taps(double length, int size) {
    double scale = length / size;
    return (int)ceil(scale < 1 ? 1 : scale) * 2 + 1;
}

/* Output pixels from 'from' on, of 'size' over 'length' pixels. */
static void pillow_fill(struct axis *a, int length, int size, int from) {
    double scale = (double)length / size, support = scale < 1 ? 1 : scale, narrow = 1 / support;
    for (int i = 0; i < a->size; i++) {
        double center = (from + i + 0.5) * scale, sum = 0;
        int first = (int)(center - support + 0.5), last = (int)(center + support + 0.5);
        first = first < 0 ? 0 : first;
        last = last > length ? length : last;
        a->first[i] = first;
        a->count[i] = last - first;
        for (int k = 0; k < last - first; k++) sum += filter_triangle((k + first - center + 0.5) * narrow);
        for (int k = 0; k < last - first; k++) {
            double w = filter_triangle((k + first - center + 0.5) * narrow);
            a->weight[(int64_t)i * a->taps + k] = (int32_t)(0.5 + w / sum * (1 << PILLOW_BITS));
        }
    }
}

static unsigned char pillow_byte(int32_t sum) {
    int32_t v = sum >> PILLOW_BITS;
    return (unsigned char)(v > 255 ? 255 : v);
}

/* out[0..n) = the weighted sum of 'count' rows, in pieces as in rows_add. */
VECTORISED static void pillow_add(const unsigned char *rows, int64_t stride, const int32_t *weight, int count,
                                  int64_t n, unsigned char *out) {
    enum { PIECE = 512 };
    int32_t sum[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t some = n - at < PIECE ? n - at : PIECE;
        for (int64_t i = 0; i < some; i++) sum[i] = 1 << (PILLOW_BITS - 1);
        for (int k = 0; k < count; k++)
            for (int64_t i = 0; i < some; i++) sum[i] += weight[k] * rows[k * stride + at + i];
        for (int64_t i = 0; i < some; i++) out[at + i] = pillow_byte(sum[i]);
    }
}

/* rows: those that y needs, of its size each, and room for one more after them at 'row'. */
static void pillow_rows(const struct axis *y, const unsigned char *rows, int low, unsigned char *row,
                        unsigned char *out) {
    int size = y->size;
    int64_t plane = (int64_t)size * size, stride = (int64_t)size * 3;
    for (int i = 0; i < size; i++, out += size) {
        pillow_add(rows + (y->first[i] - low) * stride, stride, y->weight + (int64_t)i * y->taps, y->count[i], stride,
                   row);
        for (int x = 0; x < size; x++)
            for (int c = 0; c < 3; c++) out[c * plane + x] = row[3 * x + c];
    }
}

/* One row of the axis's pixels from one of n numbers, which 'wide' has room for and one more. */
VECTORISED static void pillow_columns(const struct axis *x, const unsigned char *row, int64_t n, int32_t *restrict wide,
                                      unsigned char *restrict out) {
    for (int64_t i = 0; i < n; i++) wide[i] = row[i];
    wide[n] = 0;
    for (int i = 0; i < x->size; i++) {
        const int32_t *w = x->weight + (int64_t)i * x->taps;
        const colour sum = colours_add(wide + (int64_t)x->first[i] * 3, w, x->count[i], 1 << (PILLOW_BITS - 1));
        for (int c = 0; c < 3; c++) *out++ = pillow_byte(sum[c]);
    }
}

enum error picture_resize_exactly(struct resizer *r, const unsigned char *pixels, int width, const struct view *v,
                                  unsigned char *out) {
    int size = v->size, w = (int)v->box.w, h = (int)v->box.h;
    int64_t wide = (int64_t)w * 3, stride = (int64_t)size * 3;
    TRY(resizer_room(r, size, pillow_taps(w, v->width), pillow_taps(h, v->height),
                     (size_t)(wide + 1) * sizeof *r->row + (size_t)(h + 1) * (size_t)stride));
    unsigned char *rows = (unsigned char *)(r->row + wide + 1);
    pillow_fill(&r->x, w, v->width, v->left);
    pillow_fill(&r->y, h, v->height, v->top);
    int low = r->y.first[0], high = r->y.first[size - 1] + r->y.count[size - 1];
    for (int i = low; i < high; i++) {
        const unsigned char *row = pixels + (((int64_t)v->box.y + i) * width + (int64_t)v->box.x) * 3;
        pillow_columns(&r->x, row, wide, r->row, rows + (i - low) * stride);
    }
    pillow_rows(&r->y, rows, low, rows + h * stride, out);
    return ERR_NONE;
}
