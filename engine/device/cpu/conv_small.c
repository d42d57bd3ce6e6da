/* Convolutions of few channels with their ReLU and 2x2 max-pool: plans, packed weights, samples
 * over threads. The arithmetic is in conv_small_kernels.c.
 *
 * These layers fill neither the blocks of conv_direct.c nor its products: by it and a pool of its own LeNet's step takes
 * 3.7 times as long. Of the ways in here, channel lanes alone are a tenth of LeNet's step.
 *
 * A sample's y and dx do not depend on the others. Their gradients of the weights are added in parts, at most PARTS of a
 * segment: samples of a part in order, then parts in order, then segments along the tree. Threads share the parts of all
 * segments evenly. A part is added to those before it at once, in the cache, if the same thread has made them all; where a
 * thread begins amid a segment, its parts of that are kept one by one, to be added in order when all are there. No bit
 * depends on the number of threads.
 *
 * Kept from forward to backward: one byte for each pooled pixel, which says where its maximum was. */
#include "engine/device/cpu/conv_small.h"
#include "engine/device/cpu/lanes.h"
#include "engine/device/cpu/layout.h"

#include <string.h>

enum { PARTS = 8 };
/* Floats of dw and db of an output channel, as they are packed. */
enum { CHANNEL_MAX = CONV_SIDE_MAX * CONV_SIDE_MAX * CONV_IN_MAX + CONV_LANES_MAX };

struct part {
    int64_t from, to; /* samples */
    int sums;         /* that it is added to */
    bool joins;       /* other parts are in them already */
};
struct conv_small {
    struct op op;
    struct conv_plan plan;
    int runs, begin[SEGMENTS_MAX * PARTS + 1]; /* parts that one thread adds up: run r is [begin[r], begin[r + 1]) */
    struct part part[SEGMENTS_MAX * PARTS];
    int sums[SEGMENTS_MAX + 1]; /* of segment i, in order: [sums[i], sums[i + 1]) */
};

static int round_up(int n, int to) {
    return (n + to - 1) / to * to;
}
static size_t size_larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* ---- what it takes --------------------------------------------------------------------------- */
/* Convolutions of blocks keep what they are faster in: many channels on both sides, above all in pairs of bf16, and
 * images too small for the vectors here. Before a pool the sparse backward wins everywhere. */
static bool small_is_faster(const struct op_desc *d) {
    const struct window *w = &d->conv.window;
    int64_t width = d->y.dim[2], area = (int64_t)w->kernel[0] * w->kernel[1];
    if (d->conv.maxpool) return true;
    if (d->x.dim[0] * d->y.dim[0] < 256) return width >= 12;
    return width >= 16 && area <= 9 && !(d->precision == PRECISION_BF16 && HAS_PAIRS);
}

static bool small_takes(const struct op_desc *d) {
    enum { IMAGE_SIDE_MAX = 512 }; /* a workspace holds whole planes of x and dy */
    const struct window *w = &d->conv.window;
    for (int axis = 0; axis < 2; axis++)
        if (w->kernel[axis] > CONV_SIDE_MAX || w->stride[axis] != 1 || w->pad[axis] >= w->kernel[axis] ||
            d->x.dim[1 + axis] > IMAGE_SIDE_MAX)
            return false;
    return d->conv.groups == 1 && d->x.dim[0] <= CONV_IN_MAX && d->y.dim[0] <= CONV_OUT_MAX && small_is_faster(d) &&
           (d->precision == PRECISION_F32 || d->precision == PRECISION_BF16) && op_takes_plain(d);
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
    p->round = d->precision == PRECISION_BF16;
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
    p->positions = (p->rows - 1) * p->pitch + p->ow;
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
static size_t floats_place(size_t *at, size_t count) {
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
    (void)floats_place(&p->init_at, size_larger((size_t)p->forward.taps * p->oc_step, packed));
    p->shared = p->init_at;
    (void)floats_place(&p->shared, CONV_OUT_MAX);

    (void)floats_place(&p->sums, p->sparse ? patches : every);
    p->db_at = floats_place(&p->sums, p->sparse ? (size_t)p->oc : 0);

    p->x_at = floats_place(&p->work, p->x_size);
    p->dy_at = floats_place(&p->work, dy + CONV_LANES_MAX); /* its first pixel on a cache line */
    p->dy_at += (CONV_LANES_MAX - p->dy_origin % CONV_LANES_MAX) % CONV_LANES_MAX;
    p->own_at = floats_place(&p->work, p->sums);
    p->out_at = floats_place(&p->work, size_larger(out, p->first ? 0 : dx));
    size_t pixels = (size_t)p->yh * p->yw * p->oc_step; /* and a byte for each */
    p->copy_at = floats_place(&p->work, p->channel_lanes ? pixels + pixels / sizeof(float)
                                        : p->pool        ? (size_t)p->oc * p->y_plane
                                                         : 0);
    p->codes_at = floats_place(&p->work, p->pool ? (size_t)p->oc * p->y_plane / sizeof(float) : 0);
}

static int parts_of(const struct segments *all, int i) {
    int64_t n = segment_size(all, i);
    return n < PARTS ? (int)n : PARTS;
}

/* Cuts the segments into parts, and those into runs: one for each segment where each thread gets as many, else for each
 * thread. */
static void parts_plan(struct conv_small *s) {
    const struct segments all = op_segments(&s->op.desc);
    int count = 0, at = 0, run = 0, sums = 0;
    for (int i = 0; i < all.count; i++) count += parts_of(&all, i);
    s->runs = s->op.dev->params.threads;
    if (all.count % s->runs == 0) s->runs = all.count;
    if (s->runs > count) s->runs = count;
    for (int r = 0; r <= s->runs; r++) s->begin[r] = count * r / s->runs;
    for (int i = 0; i < all.count; i++) {
        int64_t begin = all.begin[i], n = segment_size(&all, i), parts = parts_of(&all, i);
        s->sums[i] = sums;
        for (int t = 0; t < parts; t++, at++) {
            if (at == s->begin[run + 1]) run++;
            bool joins = t > 0 && at - t >= s->begin[run]; /* the run has all that are before it */
            sums += !joins;
            s->part[at] = (struct part){begin + n * t / parts, begin + n * (t + 1) / parts, sums - 1, joins};
        }
    }
    s->sums[all.count] = sums;
}

static enum error conv_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct conv_small *s = (struct conv_small *)op;
    struct conv_plan *p = &s->plan;
    plan_shape(p, d);
    plan_planes(p);
    plan_choose(p);
    plan_scratch(p);
    parts_plan(s);
    size_t codes = p->pool ? (size_t)p->oc * p->y_plane : 0;
    size_t floats =
        p->shared + (size_t)op->dev->params.threads * p->work + (size_t)s->sums[op_segments(d).count] * p->sums;
    TRY(memory_size((size_t)d->n, codes, "a convolution's codes", &op->saved_bytes));
    TRY(memory_size(floats, sizeof(float), "a convolution's workspaces", &op->scratch_bytes));
    return ERR_NONE;
}

/* ---- weights as the kernels want them -------------------------------------------------------- */

/* w[tap][oc_step] and the bias after it. */
static void pack_forward(const struct conv_plan *p, const struct op_args *a, float *shared) {
    memset(shared, 0, p->shared * sizeof *shared);
    for (int o = 0; o < p->oc; o++)
        for (int t = 0; t < p->forward.taps; t++)
            shared[(size_t)t * p->oc_step + o] = a->w[0][(size_t)o * p->forward.taps + t];
    if (p->round) bf16_round_all((int64_t)p->init_at, shared, shared);
    if (a->w[1]) memcpy(shared + p->init_at, a->w[1], (size_t)p->oc * sizeof *shared);
}

/* Sparse: w[o][row][kw * c, in whole vectors]. Else w[o, row, column, turned round][c] and zeros
 * after it. */
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
    if (p->round) bf16_round_all((int64_t)p->init_at, shared, shared);
}

/* ---- passes ---------------------------------------------------------------------------------- */
struct pass {
    const struct conv_small *op;
    const struct op_args *args;
};

/* A sample's floats of x and y, and bytes of codes. */
struct steps {
    size_t x, y, codes;
};

static struct steps steps_of(const struct conv_small *s) {
    const struct op_desc *d = &s->op.desc;
    return (struct steps){(size_t)shape_count(&d->x), (size_t)shape_count(&d->y), (size_t)s->plan.oc * s->plan.y_plane};
}

/* The workspace of the calling thread. */
static float *small_work(const struct pass *f) {
    const struct conv_plan *p = &f->op->plan;
    return (float *)f->args->scratch + p->shared + (size_t)cpu_thread() * p->work;
}

static void small_forward_samples(void *ctx, int64_t begin, int64_t end) {
    const struct pass *f = ctx;
    const struct conv_plan *p = &f->op->plan;
    const struct op_args *a = f->args;
    const struct steps step = steps_of(f->op);
    float *work = small_work(f);
    memset(work + p->x_at, 0, p->x_size * sizeof *work);
    for (size_t i = (size_t)begin; i < (size_t)end; i++) {
        uint8_t *codes = (uint8_t *)(work + p->codes_at);
        if (p->pool && a->training) codes = (uint8_t *)a->saved + i * step.codes;
        conv_small_forward(p, a->scratch, work, a->x[0] + i * step.x, a->y + i * step.y, codes);
    }
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    const struct conv_small *s = (const struct conv_small *)op;
    struct pass f = {s, a};
    pack_forward(&s->plan, a, a->scratch);
    cpu_parallel(op->dev, op->desc.n, 1, small_forward_samples, &f);
    return ERR_NONE;
}

static float *sums_at(const struct pass *f, int sums) {
    const struct conv_plan *p = &f->op->plan;
    size_t threads = (size_t)f->op->op.dev->params.threads;
    return (float *)f->args->scratch + p->shared + threads * p->work + (size_t)sums * p->sums;
}

/* The samples of a part; their sums, from zero, in 'sums'. */
static void backward_part(const struct pass *f, const struct part *part, float *work, float *sums) {
    const struct conv_plan *p = &f->op->plan;
    const struct op_args *a = f->args;
    const struct steps step = steps_of(f->op);
    memset(sums, 0, p->sums * sizeof *sums);
    for (size_t i = (size_t)part->from; i < (size_t)part->to; i++) {
        const uint8_t *codes = p->pool ? (const uint8_t *)a->saved + i * step.codes : NULL;
        const struct conv_sample s = {a->x[0] + i * step.x, a->y + i * step.y, a->dy + i * step.y, codes,
                                      p->first ? NULL : a->dx[0] + i * step.x};
        conv_small_backward(p, a->scratch, work, sums, &s);
    }
}

static void small_backward_runs(void *ctx, int64_t begin, int64_t end) {
    const struct pass *f = ctx;
    const struct conv_small *s = f->op;
    const struct conv_plan *p = &s->plan;
    float *work = small_work(f), *own = work + p->own_at, *ones = work + p->x_at + (size_t)p->c * p->x_plane;
    memset(work, 0, p->own_at * sizeof *work);
    for (int i = 0; !p->sparse && !p->round && i < p->x_plane; i++) ones[i] = 1;
    for (int k = s->begin[begin]; k < s->begin[end]; k++) {
        const struct part *part = &s->part[k];
        float *sums = sums_at(f, part->sums);
        backward_part(f, part, work, part->joins ? own : sums);
        for (size_t j = 0; part->joins && j < p->sums; j++) sums[j] += own[j];
    }
}

/* ---- gradients of the weights ---------------------------------------------------------------- */
static float sums_add(const float *v) {
    float half[CONV_SUMS / 2];
    for (int i = 0; i < CONV_SUMS / 2; i++) half[i] = v[i] + v[i + CONV_SUMS / 2];
    for (int n = CONV_SUMS / 4; n > 0; n /= 2)
        for (int i = 0; i < n; i++) half[i] += half[i + n];
    return half[0];
}

/* Sums of dw of output channel o in segment i, as they are packed, or tap by tap; db after them. */
static void channel_sum(const struct pass *f, int i, int o, int64_t weights, float *to) {
    const struct conv_plan *p = &f->op->plan;
    const float *from = sums_at(f, f->op->sums[i]);
    int count = f->op->sums[i + 1] - f->op->sums[i];
    if (count == 0) memset(to, 0, (size_t)(weights + 1) * sizeof *to);
    for (int k = 0; p->sparse && k < count; k++, from += p->sums) {
        const float *dw = from + o * weights;
        for (int64_t w = 0; w < weights; w++) to[w] = k ? to[w] + dw[w] : dw[w];
        to[weights] = k ? to[weights] + from[p->db_at + o] : from[p->db_at + o];
    }
    for (int t = 0; !p->sparse && count && t <= weights; t++) {
        float sums[CONV_SUMS];
        const float *dw = from + ((size_t)o * p->dw_taps + t) * CONV_SUMS;
        memcpy(sums, dw, sizeof sums);
        for (int k = 1; k < count; k++)
            for (int j = 0; j < CONV_SUMS; j++) sums[j] += dw[k * p->sums + j];
        to[t] = sums_add(sums);
    }
}

/* dw and db of output channels. */
static void gradients_of_channels(void *ctx, int64_t begin, int64_t end) {
    const struct pass *f = ctx;
    const struct conv_plan *p = &f->op->plan;
    int segments = op_segments(&f->op->op.desc).count, area = p->kh * p->kw, taps = p->forward.taps;
    int64_t weights = p->sparse ? p->kh * p->row_vectors * LANES : taps;
    float slots[SEGMENT_SLOTS][CHANNEL_MAX];
    for (int o = (int)begin; o < end; o++) {
        for (int i = 0; i < segments; i++) {
            channel_sum(f, i, o, weights, slots[segment_slot(i)]);
            slots_add(slots[0], CHANNEL_MAX, i, weights + 1);
        }
        for (int t = 0; t < taps; t++) {
            int packed = t % area / p->kw * p->row_vectors * LANES + t % p->kw * p->c + t / area;
            f->args->dw[0][(size_t)o * taps + t] = slots[0][p->sparse ? packed : t];
        }
        if (f->args->dw[1]) f->args->dw[1][o] = slots[0][weights];
    }
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    const struct conv_small *s = (const struct conv_small *)op;
    struct pass f = {s, a};
    if (!s->plan.first) pack_backward(&s->plan, a->w[0], a->scratch);
    cpu_parallel(op->dev, s->runs, 1, small_backward_runs, &f);
    cpu_parallel(op->dev, s->plan.oc, 1, gradients_of_channels, &f);
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_conv_small) = {
    .name = "small",
    .takes = small_takes,
    .size = sizeof(struct conv_small),
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .segments = op_takes_any,
};
