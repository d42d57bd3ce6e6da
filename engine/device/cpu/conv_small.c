/* Convolutions of few channels with their ReLU and 2x2 max-pool: plans, packed weights, samples
 * over threads. The arithmetic is in conv_small_kernels.c.
 *
 * Samples are cut into PARTS parts, which threads share; a part runs its samples in order and adds
 * their gradients of the weights in its own workspace, and the parts are added in order at the end:
 * no bit depends on the number of threads. A sample's y and dx do not depend on the others. Kept from forward to backward: one byte for each pooled pixel, which says where its
 * maximum was. */
#include "engine/device/cpu/conv_small.h"
#include "engine/device/cpu/lanes.h"

#include <string.h>

enum { PARTS = 8 };

struct conv_small {
    struct op op;
    struct conv_plan plan;
    int parts; /* PARTS, or as many as there are samples */
};

static int round_up(int n, int to) {
    return (n + to - 1) / to * to;
}
static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* ---- what it takes --------------------------------------------------------------------------- */
/* Convolutions of blocks keep what they are faster in: many channels on both sides, and images too
 * small for the vectors here. Behind a pool the sparse backward wins everywhere. */
static bool is_faster(const struct op_desc *d) {
    const struct window *w = &d->conv.window;
    int64_t width = d->y.dim[2], area = (int64_t)w->kernel[0] * w->kernel[1];
    if (d->conv.maxpool) return true;
    if (d->x.dim[0] * d->y.dim[0] < 256) return width >= 12;
    return width >= 16 && area <= 9;
}

static bool takes(const struct op_desc *d) {
    enum { IMAGE_SIDE_MAX = 512 }; /* a workspace holds whole planes of x and dy */
    const struct window *w = &d->conv.window;
    for (int axis = 0; axis < 2; axis++)
        if (w->kernel[axis] > CONV_SIDE_MAX || w->stride[axis] != 1 || w->pad[axis] >= w->kernel[axis] ||
            d->x.dim[1 + axis] > IMAGE_SIDE_MAX)
            return false;
    return d->conv.groups == 1 && d->x.dim[0] <= CONV_IN_MAX && d->y.dim[0] <= CONV_OUT_MAX && is_faster(d) &&
           d->precision == PRECISION_F32 && op_takes_plain(d);
}

/* ---- the plan -------------------------------------------------------------------------------- */
static void plan_shape(struct conv_plan *p, const struct op_desc *d) {
    const struct window *w = &d->conv.window;
    p->c = (int)d->x.dim[0], p->h = (int)d->x.dim[1], p->w = (int)d->x.dim[2];
    p->oc = (int)d->y.dim[0], p->yh = (int)d->y.dim[1], p->yw = (int)d->y.dim[2];
    p->kh = w->kernel[0], p->kw = w->kernel[1], p->ph = w->pad[0], p->pw = w->pad[1];
    p->oh = p->h + 2 * p->ph - p->kh + 1, p->ow = p->w + 2 * p->pw - p->kw + 1;
    p->relu = d->act == ACT_RELU, p->pool = d->conv.maxpool, p->first = d->first;
    p->rows = p->pool ? 2 * p->yh : p->yh;
    p->oc_step = round_up(p->oc, LANES);
    p->row_vectors = round_up(p->kw * p->c, LANES) / LANES;
}

/* Times of the ways, in multiply-adds of one vector; the constants weigh what is not one, such as
 * moves of single floats, and fit measured times to a quarter or so. Both ways forward give the same bits; those backward
 * do not, so the choice between them is the same for vectors of any width. */
static void plan_choose(struct conv_plan *p) {
    enum { USUAL = 8 };
    double taps = p->c * p->kh * p->kw, x = (double)p->c * p->h * p->w;
    double windows = (double)p->yh * p->yw, y = windows * p->oc;
    double dense = (double)p->rows * p->pitch / LANES * p->oc * taps;
    double by_channels = (double)p->rows * p->ow * (p->oc_step / LANES) * taps + 3 * y;
    p->channel_lanes = by_channels < 1.2 * dense;

    dense = (double)p->rows * p->pitch / USUAL * p->oc * taps;
    double dx = (double)p->h * p->pitch / USUAL * p->oc * taps, patch = p->kh * (round_up(p->kw * p->c, USUAL) / USUAL);
    double every = 1.1 * dense + (p->first ? 0 : dx) + 8 * y / USUAL;
    double chosen = y * (3 * patch + 8) + 4 * windows * ((p->first ? 2 : 4) * patch + 10) + x * (p->first ? 2 : 4);
    p->sparse = p->pool && chosen < every;
}

static void flat_init(struct conv_flat *f, int in_channels, int channels, int plane, int rows,
                      const struct conv_plan *p) {
    enum { BAND_FLOATS = 16 * 1024 };
    int t = 0;
    for (int c = 0; c < in_channels; c++)
        for (int r = 0; r < p->kh; r++)
            for (int k = 0; k < p->kw; k++) f->offset[t++] = c * plane + r * p->pitch + k;
    f->taps = t;
    f->channels = channels;
    f->band = BAND_FLOATS / (channels * p->pitch) / 2 * 2; /* even: whole windows of the pool */
    if (f->band < 2) f->band = 2;
    if (f->band > rows) f->band = rows;
    f->out_step = round_up(f->band * p->pitch, CONV_LANES_MAX) + p->slack;
}

/* Whole vectors are read and written past the end of rows, so every buffer ends in slack. */
static void plan_planes(struct conv_plan *p) {
    int qh = p->kh - 1 - p->ph, qw = p->kw - 1 - p->pw; /* the border of dy */
    p->pitch = p->w + p->pw;
    p->slack = (CONV_VECTORS + 1) * CONV_LANES_MAX;
    p->x_plane = round_up((p->h + 2 * p->ph) * p->pitch + p->pw, CONV_LANES_MAX);
    p->dy_plane = round_up((p->oh + 2 * qh) * p->pitch + qw + CONV_LANES_MAX, CONV_LANES_MAX);
    p->dy_origin = qh * p->pitch + qw;
    p->y_plane = round_up(p->yh * p->yw, CONV_LANES_MAX) + CONV_LANES_MAX;
    flat_init(&p->forward, p->c, p->oc, p->x_plane, p->rows, p);
    flat_init(&p->backward, p->oc, p->c, p->dy_plane, p->h, p);
    p->dw_taps = round_up(p->forward.taps + 1, CONV_DOT_TAPS);
    p->forward.offset[p->forward.taps] = p->c * p->x_plane; /* of the ones whose tap is db */
}

/* Gives the place of count floats after those placed before. */
static size_t place(size_t *at, size_t count) {
    size_t begin = *at;
    *at += (size_t)align_floats((int64_t)count);
    return begin;
}

static void plan_scratch(struct conv_plan *p) {
    size_t patches = (size_t)p->oc * p->kh * p->row_vectors * LANES;
    size_t every = (size_t)p->oc * p->dw_taps * CONV_SUMS;
    p->x_size = (size_t)(p->sparse ? p->c : p->c + 1) * p->x_plane + p->slack;
    size_t dy = p->sparse ? 0 : (size_t)p->oc * p->dy_plane + p->slack;

    size_t out = p->channel_lanes ? (size_t)2 * p->ow * p->oc_step : (size_t)p->oc * p->forward.out_step;
    size_t dx = p->sparse ? p->x_size : (size_t)p->c * p->backward.out_step;
    size_t packed = p->sparse ? patches : (size_t)p->c * p->backward.taps;
    (void)place(&p->init_at, larger((size_t)p->forward.taps * p->oc_step, packed));
    p->shared = p->init_at;
    (void)place(&p->shared, CONV_OUT_MAX);

    p->x_at = place(&p->part, p->x_size);
    p->dy_at = place(&p->part, dy + CONV_LANES_MAX); /* its first pixel on a cache line */
    p->dy_at += (CONV_LANES_MAX - p->dy_origin % CONV_LANES_MAX) % CONV_LANES_MAX;
    p->dw_at = place(&p->part, p->sparse ? patches : every);
    p->db_at = place(&p->part, p->sparse ? (size_t)p->oc : 0);
    p->out_at = place(&p->part, larger(out, p->first ? 0 : dx));
    size_t pixels = (size_t)p->yh * p->yw * p->oc_step; /* and a byte for each */
    p->copy_at = place(&p->part, p->channel_lanes ? pixels + pixels / sizeof(float)
                                 : p->pool        ? (size_t)p->oc * p->y_plane
                                                  : 0);
    p->codes_at = place(&p->part, p->pool ? (size_t)p->oc * p->y_plane / sizeof(float) : 0);
}

static enum error conv_create(struct device *dev, const struct op_desc *d, struct op **out) {
    struct op *op;
    size_t saved, scratch;
    TRY(op_alloc(sizeof(struct conv_small), &cpu_conv_small, dev, d, &op));
    struct conv_small *s = (struct conv_small *)op;
    s->parts = d->n < PARTS ? (int)d->n : PARTS;
    plan_shape(&s->plan, d);
    plan_planes(&s->plan);
    plan_choose(&s->plan);
    plan_scratch(&s->plan);
    size_t codes = s->plan.pool ? (size_t)s->plan.oc * s->plan.y_plane : 0;
    enum error err = memory_size((size_t)d->n, codes, "a convolution's codes", &saved);
    if (err == ERR_NONE)
        err = memory_size((size_t)s->parts * s->plan.part + s->plan.shared, sizeof(float), "a convolution's workspaces",
                          &scratch);
    if (err != ERR_NONE) {
        op_release(op);
        return err;
    }
    op->saved_bytes = saved;
    op->scratch_bytes = scratch;
    *out = op;
    return ERR_NONE;
}

/* ---- weights as the kernels want them -------------------------------------------------------- */

/* w[tap][oc_step] and the bias behind it. */
static void pack_forward(const struct conv_plan *p, const struct op_args *a, float *shared) {
    memset(shared, 0, p->shared * sizeof *shared);
    for (int o = 0; o < p->oc; o++)
        for (int t = 0; t < p->forward.taps; t++)
            shared[(size_t)t * p->oc_step + o] = a->w[0][(size_t)o * p->forward.taps + t];
    if (a->w[1]) memcpy(shared + p->init_at, a->w[1], (size_t)p->oc * sizeof *shared);
}

/* Sparse: w[o][row][kw * c, in whole vectors]. Else w[o, row, column, turned round][c] and zeros
 * behind it. */
static void pack_backward(const struct conv_plan *p, const float *w, float *shared) {
    memset(shared, 0, p->shared * sizeof *shared);
    for (int o = 0; o < p->oc; o++)
        for (int c = 0; c < p->c; c++)
            for (int r = 0; r < p->kh; r++)
                for (int k = 0; k < p->kw; k++, w++) {
                    int row = o * p->kh + r, turned = o * p->kh + p->kh - 1 - r;
                    if (p->sparse)
                        shared[row * p->row_vectors * LANES + k * p->c + c] = *w;
                    else
                        shared[(turned * p->kw + p->kw - 1 - k) * p->c + c] = *w;
                }
}

/* ---- passes ---------------------------------------------------------------------------------- */
struct pass {
    const struct conv_small *op;
    const struct op_args *args;
};

/* Part t's workspace and samples. */
struct part {
    float *work;
    int64_t from, to;
    size_t xs, ys, codes; /* from one sample to the next */
};

static struct part part_of(const struct conv_small *s, const struct op_args *a, int64_t t) {
    const struct op_desc *d = &s->op.desc;
    return (struct part){.work = (float *)a->scratch + s->plan.shared + (size_t)t * s->plan.part,
                         .from = d->n * t / s->parts,
                         .to = d->n * (t + 1) / s->parts,
                         .xs = (size_t)shape_count(&d->x),
                         .ys = (size_t)shape_count(&d->y),
                         .codes = (size_t)s->plan.oc * s->plan.y_plane};
}

static void forward_parts(void *ctx, int64_t begin, int64_t end) {
    const struct pass *f = ctx;
    const struct conv_plan *p = &f->op->plan;
    const struct op_args *a = f->args;
    for (int64_t t = begin; t < end; t++) {
        struct part part = part_of(f->op, a, t);
        memset(part.work + p->x_at, 0, p->x_size * sizeof(float));
        for (int64_t i = part.from; i < part.to; i++) {
            size_t n = (size_t)i;
            uint8_t *codes = (uint8_t *)(part.work + p->codes_at);
            if (p->pool && a->training) codes = (uint8_t *)a->saved + n * part.codes;
            conv_small_forward(p, a->scratch, part.work, a->x[0] + n * part.xs, a->y + n * part.ys, codes);
        }
    }
}

static void backward_parts(void *ctx, int64_t begin, int64_t end) {
    const struct pass *f = ctx;
    const struct conv_plan *p = &f->op->plan;
    const struct op_args *a = f->args;
    for (int64_t t = begin; t < end; t++) {
        struct part part = part_of(f->op, a, t);
        memset(part.work, 0, p->out_at * sizeof(float)); /* x, dy, dw, db */
        float *ones = part.work + p->x_at + (size_t)p->c * p->x_plane;
        for (int i = 0; !p->sparse && i < p->x_plane; i++) ones[i] = 1;
        for (int64_t i = part.from; i < part.to; i++) {
            size_t n = (size_t)i;
            const uint8_t *codes = (const uint8_t *)(part.work + p->codes_at);
            if (p->pool) codes = (const uint8_t *)a->saved + n * part.codes;
            conv_small_backward(p, a->scratch, part.work, a->x[0] + n * part.xs, a->y + n * part.ys,
                                a->dy + n * part.ys, codes, p->first ? NULL : a->dx[0] + n * part.xs);
        }
    }
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    const struct conv_small *s = (const struct conv_small *)op;
    struct pass f = {s, a};
    pack_forward(&s->plan, a, a->scratch);
    cpu_parallel(op->dev, s->parts, 1, forward_parts, &f);
    return ERR_NONE;
}

/* Adds the other parts' sums to the first's. */
static float *parts_add(const struct conv_small *s, float *scratch) {
    const struct conv_plan *p = &s->plan;
    float *sum = scratch + p->shared + p->dw_at;
    size_t count = p->out_at - p->dw_at;
    for (int t = 1; t < s->parts; t++)
        for (size_t i = 0; i < count; i++) sum[i] += sum[t * p->part + i];
    return sum;
}

static float sums_add(const float *v) {
    float half[CONV_SUMS / 2];
    for (int i = 0; i < CONV_SUMS / 2; i++) half[i] = v[i] + v[i + CONV_SUMS / 2];
    for (int n = CONV_SUMS / 4; n > 0; n /= 2)
        for (int i = 0; i < n; i++) half[i] += half[i + n];
    return half[0];
}

/* dw and db from the first part's workspace, where the sums are. */
static void unpack_gradients(const struct conv_small *s, const float *dw, const float *db, const struct op_args *a) {
    const struct conv_plan *p = &s->plan;
    int area = p->kh * p->kw;
    float *to = a->dw[0];
    for (int o = 0; o < p->oc; o++) {
        for (int t = 0; t < p->c * area; t++) {
            int row = o * p->kh + t % area / p->kw, at = t % p->kw * p->c + t / area;
            *to++ = p->sparse ? dw[row * p->row_vectors * LANES + at]
                              : sums_add(dw + (size_t)(o * p->dw_taps + t) * CONV_SUMS);
        }
        if (a->dw[1])
            a->dw[1][o] = p->sparse ? db[o] : sums_add(dw + ((size_t)o * p->dw_taps + p->forward.taps) * CONV_SUMS);
    }
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    const struct conv_small *s = (const struct conv_small *)op;
    const struct conv_plan *p = &s->plan;
    struct pass f = {s, a};
    if (!p->first) pack_backward(p, a->w[0], a->scratch);
    cpu_parallel(op->dev, s->parts, 1, backward_parts, &f);
    const float *sum = parts_add(s, a->scratch);
    unpack_gradients(s, sum, sum + (p->db_at - p->dw_at), a);
    return ERR_NONE;
}

const struct op_impl cpu_conv_small = {
    .name = "small",
    .takes = takes,
    .create = conv_create,
    .forward = conv_forward,
    .backward = conv_backward,
    .free = op_release,
};
