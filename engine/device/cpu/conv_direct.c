/* Convolutions of every shape as products of windows and weights, without a matrix of windows: a row
 * of a product is a window where it lies. It is read in runs (the channels of a block at one tap; of
 * a plain image, the taps of a row of the window), and where a run begins is a number of the window
 * plus one of the tap.
 *
 *   forward   y    (pixels, outputs)   = windows of x (pixels, channels and taps)  w'
 *   dx        dx   (pixels, channels)  = windows of dz (pixels, outputs and taps)  w
 *   dw        dw'  (channels and taps, outputs) = windows of x'  dz (pixels, outputs)
 *
 * dx of a strided convolution is a product for each phase of the stride, so nothing is multiplied
 * by zeros between the pixels of dz. For each chunk of pixels the windows of some channels are
 * copied with their padding to a near cache (or read where they lie, if there is none), and for each
 * panel of outputs the weights of these channels are packed there: both are used many times.
 *
 * Where the batch has segments, dw's sums are a segment's, and are added along the tree panel by panel.
 *
 * An element is a sum of short chains of multiply-adds in order of channels and taps, or of pixels:
 * its bits depend neither on threads, nor on the instruction set if that has fused multiply-adds,
 * nor, for y and dx, on the batch.
 *
 * In bf16 the factors are rounded as they are copied. Where the machine multiplies pairs of bf16, two neighbours in k
 * become one element then, and k, the copies and the work are half as large: two channels for y and dx; for dw, whose k
 * is pixels, the same pixel of two samples.
 *
 * Groups are products of their own; where every group is one channel, a block of channels is a
 * product lane by lane. An image whose groups are no whole blocks is copied into such first. */
#include "engine/base/whole.h"
#include "engine/device/cpu/conv_direct_image.h"
#include "engine/device/cpu/conv_direct_plan.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/lanes.h"
#include "engine/device/cpu/layout.h"

#include <string.h>

enum { B = LAYOUT_BLOCK, CHAIN = 320 };

struct direct {
    struct op op;
    enum packing how;              /* of factors */
    struct direct_weights weights; /* of a group */
    struct grouped x, y;           /* as blocks */
    struct plan plan[3];
};

/* A pass at work. */
struct job {
    const struct direct *c;
    const struct plan *p;
    const float *from, *w, *dz, *bias;
    float *to, *dw;
    char *own;    /* scratch of each thread */
    int64_t room; /* of it */
    int64_t panels, parts;
    struct segments segments; /* of dw */
};

/* ---- scratch -------------------------------------------------------------------------------- */
/* The room that a pass needs, whichever of the segments it is at. */
static int64_t room_bytes(const struct direct *c, enum pass pass) {
    const struct segments one = {1, {0, c->op.desc.n}}, s = pass == PASS_WEIGHTS ? op_segments(&c->op.desc) : one;
    int64_t most = 0;
    for (int i = 0; i < s.count; i++) {
        struct plan p = c->plan[pass];
        struct carving at = {0};
        if (s.count > 1 && segment_size(&s, i)) plan_cut(&p, segment_size(&s, i), c->op.dev->params.threads);
        (void)plan_room(&p, s.count, &at);
        if (at.used > most) most = at.used;
    }
    return most;
}

static struct room room_of_thread(const struct job *j) {
    struct carving at = {j->own + cpu_thread() * j->room, 0};
    return plan_room(j->p, j->segments.count, &at);
}

/* ---- weights -------------------------------------------------------------------------------- */
/* The weights of a group; lane by lane the last block of channels may be smaller. */
static struct direct_weights weights_of(const struct direct *c, int64_t group) {
    struct direct_weights s = c->weights;
    if (c->plan->lanewise) s.in = at_most(B, c->op.desc.x.dim[0] - group * B);
    return s;
}

static int64_t weights_at(const struct direct *c, int64_t group) {
    return group * c->weights.out * c->weights.in * c->weights.taps;
}

/* Packs the weights of block 'block' of columns, for some units. */
static void block_pack(const struct job *j, int64_t group, int64_t block, struct span units, float *to) {
    const struct plan *p = j->p;
    struct direct_weights s = weights_of(j->c, group);
    const float *w = j->w + weights_at(j->c, group);
    bool pairs = p->how == PACK_PAIRS;
    int64_t each = p->from.unit * (pairs ? 2 : 1); /* terms of a unit and a tap */
    if (p->pass == PASS_DATA || p->lanewise)
        direct_pack_turned(&s, w, block * B, units.begin * B, p->lanewise ? 1 : units.count * B, to);
    else
        direct_pack(&s, w, block * B, units.begin * each, units.count * each, to);
    if (pairs) direct_pair(units.count * each * s.taps, p->pairs == PAIRS_OF_UNITS ? s.taps : 1, to);
}

static void lanes_unpack(const struct direct_weights *s, const float *from, float *w) {
    for (int64_t lane = 0; lane < s->in; lane++)
        for (int64_t t = 0; t < s->taps; t++) w[lane * s->taps + t] = from[t * B + lane];
}

static void block_unpack(const struct job *j, int64_t group, int64_t block, struct span units, const float *from) {
    const struct plan *p = j->p;
    struct direct_weights s = weights_of(j->c, group);
    float *dw = j->dw + weights_at(j->c, group);
    if (p->lanewise)
        lanes_unpack(&s, from, dw);
    else
        direct_unpack(&s, from, block * B, units.begin * p->from.unit, units.count * p->from.unit, dw);
}

/* ---- forward, and dx ------------------------------------------------------------------------ */
/* The sums of a phase, by chains; 'first' and 'last' of the units. */
static void chains_run(const struct job *j, struct direct_product t, bool first, bool last) {
    const float *bias = t.bias;
    int64_t chain = CHAIN / t.depth > 0 ? CHAIN / t.depth : 1, runs = t.runs, s = 0;
    const struct direct_run *run = t.run;
    if (runs == 0 && !first) return; /* zeros are there */
    do {
        bool end = s + chain >= runs && last;
        t.run = run + s;
        t.runs = at_most(chain, runs - s);
        t.add = s > 0 || !first;
        t.bias = end ? bias : NULL;
        t.relu = end && j->p->pass == PASS_FORWARD && j->c->op.desc.act == ACT_RELU;
        direct_multiply(&t);
        s += chain;
    } while (s < runs);
}

/* The blocks of a panel from the windows of some units. */
static void panel_run(const struct job *j, const struct room *r, const struct chunk *k, struct span blocks,
                      struct span units, const float *windows) {
    const struct plan *p = j->p;
    int64_t plane = image_plane(&p->to), b_block = p->each * plan_packed(p) * B;
    int64_t first = (k->sample * p->groups + k->group) * p->to.units + blocks.begin;
    for (int64_t b = 0; b < blocks.count; b++)
        block_pack(j, k->group, blocks.begin + b, units, r->packed + b * b_block);
    for (int64_t phase = 0; phase < plan_phases(p); phase++) {
        struct direct_product t = {.depth = plan_depth(p),
                                   .a_next = 1,
                                   .a_at = r->a_at,
                                   .c_at = r->c_at,
                                   .run = r->run,
                                   .a = windows,
                                   .b = r->packed,
                                   .blocks = blocks.count,
                                   .b_block = b_block,
                                   .c_block = plane,
                                   .c = j->to + first * plane,
                                   .lanewise = p->lanewise,
                                   .pairs = p->how == PACK_PAIRS,
                                   .bias = j->bias ? j->bias + (k->group * p->to.units + blocks.begin) * B : NULL};
        t.rows = plan_rows(p, k, phase, r->a_at, r->c_at);
        t.runs = plan_runs(p, units.count, phase, r->run);
        chains_run(j, t, units.begin == 0, units.begin + units.count == p->from.units);
    }
}

/* Pieces [begin, end) of (groups, chunks, parts of the panels). */
static void images_part(void *ctx, int64_t begin, int64_t end) {
    const struct job *j = ctx;
    const struct plan *p = j->p;
    struct room r = room_of_thread(j);
    for (int64_t piece = begin; piece < end; piece++) {
        struct chunk k = plan_chunk(p, piece / j->parts);
        struct span panels = part_of(j->panels, piece % j->parts, j->parts);
        for (int64_t unit = 0; unit < p->from.units; unit += p->each) {
            struct span units = {unit, at_most(p->each, p->from.units - unit)};
            const float *windows = plan_windows(p, j->from, &k, units, r.copied);
            for (int64_t i = 0; i < panels.count; i++)
                panel_run(j, &r, &k, part_of(p->to.units, panels.begin + i, j->panels), units, windows);
        }
    }
}

/* ---- dw ------------------------------------------------------------------------------------- */
/* A part of dw. */
struct part {
    int64_t group;
    struct span panels, units, blocks; /* blocks: of the panels */
};

/* Adds a chunk to the sums of panels. */
static void chunk_sum(const struct job *j, const struct room *r, int64_t index, const struct part *at) {
    const struct plan *p = j->p;
    struct chunk k = plan_chunk(p, at->group * p->chunks + index);
    int64_t plane = image_plane(&p->to), row = k.first * p->to.w * B, terms = p->each * plan_packed(p);
    const float *windows = plan_windows(p, j->from, &k, at->units, r->copied);
    struct direct_product t = {.depth = p->to.w,
                               .a_next = p->step[1] * p->from.unit,
                               .a_at = r->a_at,
                               .c_at = r->c_at,
                               .run = r->run,
                               .a = windows,
                               .b_block = plane,
                               .c_block = terms * B,
                               .add = index > 0,
                               .lanewise = p->lanewise,
                               .pairs = p->how == PACK_PAIRS};
    t.rows = plan_terms(p, at->units.count, r->a_at, r->c_at);
    t.runs = plan_pixels(p, &k, r->run);
    for (int64_t i = 0; i < at->panels.count; i++) {
        struct span blocks = part_of(p->to.units, at->panels.begin + i, j->panels);
        t.blocks = blocks.count;
        t.b = j->dz + ((k.sample * p->groups + at->group) * p->to.units + blocks.begin) * plane + row;
        t.c = r->packed + (blocks.begin - at->blocks.begin) * t.c_block;
        direct_multiply(&t);
    }
}

/* The sums of segment i, at 'slot'. */
static void segment_sum(const struct job *j, int i, const struct part *at, int64_t floats, float *slot) {
    const struct plan *p = j->p;
    int64_t n = segment_size(&j->segments, i), begin = j->segments.begin[i];
    struct job part = *j;
    struct plan cut = *p;
    if (n == 0) memset(slot, 0, (size_t)floats * sizeof *slot);
    if (n == 0) return;
    if (j->segments.count > 1) plan_cut(&cut, n, j->c->op.dev->params.threads);
    part.p = &cut;
    part.from += begin * p->groups * p->whole_units * p->from.h * p->from.w * p->from.unit;
    part.dz += begin * p->groups * p->to.units * image_plane(&p->to);
    struct room r = room_of_thread(&part);
    r.packed = slot;
    for (int64_t index = 0; index < cut.chunks; index++) chunk_sum(&part, &r, index, at);
}

/* Pieces [begin, end) of (groups, parts of the units, parts of the panels). */
static void weights_part(void *ctx, int64_t begin, int64_t end) {
    const struct job *j = ctx;
    const struct plan *p = j->p;
    float *slots = room_of_thread(j).packed;
    int64_t steps = (p->from.units + p->each - 1) / p->each, block = p->each * plan_packed(p) * B;
    int64_t apart = DIRECT_PANEL * block;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t unit = piece / j->parts % steps * p->each;
        struct part at = {.group = piece / j->parts / steps, .panels = part_of(j->panels, piece % j->parts, j->parts)};
        at.units = (struct span){unit, at_most(p->each, p->from.units - unit)};
        at.blocks = part_of(p->to.units, at.panels.begin, j->panels);
        at.blocks.count = part_of(p->to.units, at.panels.begin + at.panels.count, j->panels).begin - at.blocks.begin;
        for (int i = 0; i < j->segments.count; i++) {
            segment_sum(j, i, &at, at.blocks.count * block, slots + segment_slot(i) * apart);
            slots_add(slots, apart, i, at.blocks.count * block);
        }
        for (int64_t b = 0; b < at.blocks.count; b++)
            block_unpack(j, at.group, at.blocks.begin + b, at.units, slots + b * block);
    }
}

/* ---- passes --------------------------------------------------------------------------------- */
/* Panels are only split among threads where there is too little else. */
static void job_run(struct job *j) {
    const struct device *dev = j->c->op.dev;
    const struct plan *p = j->p;
    bool weights = p->pass == PASS_WEIGHTS;
    int64_t pieces = p->groups * (weights ? (p->from.units + p->each - 1) / p->each : p->chunks);
    int64_t threads = dev->params.threads;
    j->panels = (p->to.units + DIRECT_PANEL - 1) / DIRECT_PANEL;
    if (threads > 1 && j->panels < threads && p->to.units >= threads) j->panels = threads;
    j->parts = threads == 1 || pieces >= 4 * threads ? 1 : at_most(j->panels, threads);
    if (j->segments.count > 1) j->parts = j->panels; /* few sums, for several of each lie in the cache */
    cpu_parallel(dev, pieces * j->parts, 1, weights ? weights_part : images_part, j);
}

static struct job job_of(const struct direct *c, const struct op_args *a, enum pass pass, const struct carving *at) {
    return (struct job){.c = c,
                        .p = &c->plan[pass],
                        .w = a->w[0],
                        .dw = a->dw[0],
                        .own = at->memory + at->used,
                        .room = room_bytes(c, pass),
                        .segments = pass == PASS_WEIGHTS ? op_segments(&c->op.desc) : (struct segments){.count = 1}};
}

/* Forward's and dw's windows are of x: as the op has it, or as blocks. */
static bool reads_plain(const struct direct *c) {
    return c->plan[PASS_FORWARD].from.unit == 1;
}
static const float *direct_x(const struct direct *c, const float *x, struct carving *at) {
    if (reads_plain(c) || c->x.whole) return x;
    float *blocks = carve(at, grouped_floats(&c->x) * (int64_t)sizeof *blocks);
    if (x) grouped_from(c->op.dev, &c->x, x, blocks);
    return blocks;
}

/* The bias in blocks. */
static const float *direct_bias(const struct direct *c, const float *bias, struct carving *at) {
    const struct plan *p = &c->plan[PASS_FORWARD];
    if (!c->op.desc.conv.bias) return NULL;
    float *blocks = carve(at, p->groups * p->to.units * B * (int64_t)sizeof *blocks);
    if (bias) grouped_row(&c->y, bias, blocks);
    return blocks;
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    const struct direct *c = (const struct direct *)op;
    struct carving at = {a->scratch, 0};
    const float *bias = direct_bias(c, a->w[1], &at), *x = direct_x(c, a->x[0], &at);
    float *y = c->y.whole ? a->y : carve(&at, grouped_floats(&c->y) * (int64_t)sizeof *y);
    struct job j = job_of(c, a, PASS_FORWARD, &at);
    j.from = x, j.to = y, j.bias = bias;
    job_run(&j);
    if (!c->y.whole) grouped_to(op->dev, &c->y, y, a->y);
    return ERR_NONE;
}

struct elements { /* n floats of dz, from dy where y > 0, or rounded */
    const float *y, *from;
    float *to;
};
static void mask_part(void *ctx, int64_t begin, int64_t end) {
    const struct elements *e = ctx;
    kernel_relu_backward(end - begin, e->y + begin, e->from + begin, e->to + begin);
}
static void round_part(void *ctx, int64_t begin, int64_t end) {
    const struct elements *e = ctx;
    bf16_round_all(end - begin, e->from + begin, e->to + begin);
}

/* dz as blocks, and db. */
static const float *direct_dz(const struct direct *c, const struct op_args *a, struct carving *at) {
    const struct op_desc *d = &c->op.desc;
    bool relu = d->act == ACT_RELU, round = c->how == PACK_ROUNDED;
    float *masked = relu || round ? carve(at, op_ys(d) * (int64_t)sizeof *masked) : NULL;
    float *blocks = c->y.whole ? NULL : carve(at, grouped_floats(&c->y) * (int64_t)sizeof *blocks);
    if (!a->dy) return NULL;
    struct elements e = {a->y, a->dy, masked};
    if (relu) cpu_parallel(c->op.dev, op_ys(d), 4096, mask_part, &e);
    if (relu) e.from = masked;
    if (d->conv.bias) channel_sums(c->op.dev, d, e.from, a->dw[1]);
    if (round) cpu_parallel(c->op.dev, op_ys(d), 4096, round_part, &e);
    if (round) e.from = masked;
    if (c->y.whole) return e.from;
    grouped_from(c->op.dev, &c->y, e.from, blocks);
    return blocks;
}

/* dz as pairs of samples, for the weights. */
static const float *direct_dz_paired(const struct direct *c, const float *dz, struct carving *at) {
    float *pairs = carve(at, grouped_pairs(&c->y) * (int64_t)sizeof *pairs);
    if (dz) grouped_pair(c->op.dev, &c->y, dz, pairs);
    return pairs;
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    const struct direct *c = (const struct direct *)op;
    struct carving at = {a->scratch, 0};
    const float *dz = direct_dz(c, a, &at), *x = direct_x(c, a->x[0], &at);
    const float *multiplied = c->how == PACK_PAIRS ? direct_dz_paired(c, dz, &at) : dz;
    struct job j = job_of(c, a, PASS_WEIGHTS, &at);
    j.from = x, j.dz = multiplied;
    job_run(&j);
    if (!a->dx[0]) return ERR_NONE;
    float *dx = c->x.whole ? a->dx[0] : carve(&at, grouped_floats(&c->x) * (int64_t)sizeof *dx);
    j = job_of(c, a, PASS_DATA, &at);
    j.from = dz, j.to = dx;
    job_run(&j);
    if (!c->x.whole) grouped_to(op->dev, &c->x, dx, a->dx[0]);
    return ERR_NONE;
}

/* ---- the op --------------------------------------------------------------------------------- */
static size_t scratch_bytes(const struct direct *c) {
    const struct op_args none = {0};
    int64_t threads = c->op.dev->params.threads, image = (int64_t)sizeof(float);
    struct carving forward = {0}, backward = {0};
    (void)direct_bias(c, NULL, &forward), (void)direct_x(c, NULL, &forward);
    if (!c->y.whole) (void)carve(&forward, grouped_floats(&c->y) * image);
    (void)direct_dz(c, &none, &backward), (void)direct_x(c, NULL, &backward);
    if (c->how == PACK_PAIRS) (void)direct_dz_paired(c, NULL, &backward);
    int64_t weights = backward.used + threads * room_bytes(c, PASS_WEIGHTS);
    if (!c->x.whole) (void)carve(&backward, grouped_floats(&c->x) * image);
    int64_t data = backward.used + threads * room_bytes(c, PASS_DATA);
    int64_t most = forward.used + threads * room_bytes(c, PASS_FORWARD);
    most = most > weights ? most : weights;
    return (size_t)(most > data ? most : data);
}

static struct direct_image image_of(const struct grouped *g) {
    return (struct direct_image){g->blocks, B, g->h, g->w};
}

static void plans_make(struct direct *c) {
    const struct op_desc *d = &c->op.desc;
    bool lanewise = c->x.lanewise;
    for (enum pass pass = PASS_FORWARD; pass <= PASS_WEIGHTS; pass++) {
        struct plan *p = &c->plan[pass];
        bool data = pass == PASS_DATA;
        *p = (struct plan){.pass = pass, .how = c->how, .groups = c->x.groups, .lanewise = lanewise};
        if (data && c->how == PACK_ROUNDED) p->how = PACK_FLOATS; /* dz is rounded already */
        p->from = image_of(data ? &c->y : &c->x);
        p->to = image_of(data ? &c->x : &c->y);
        if (!data && c->weights.flat) p->from = (struct direct_image){c->weights.in, 1, d->x.dim[1], d->x.dim[2]};
        plan_make(p, d, c->op.dev->params.threads);
    }
}

static enum error conv_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct direct *c = (struct direct *)op;
    c->x = grouped_of(d, &d->x, d->x_layout);
    c->y = grouped_of(d, &d->y, d->y_layout);
    if (d->precision == PRECISION_BF16) c->how = HAS_PAIRS && !c->x.lanewise ? PACK_PAIRS : PACK_ROUNDED;
    c->weights = (struct direct_weights){.out = c->x.lanewise ? 1 : c->y.channels,
                                         .in = c->x.channels,
                                         .taps = (int64_t)d->conv.window.kernel[0] * d->conv.window.kernel[1],
                                         .flat = d->x_layout == LAYOUT_PLAIN && !c->x.lanewise,
                                         .round = c->how == PACK_ROUNDED};
    plans_make(c);
    c->op.scratch_bytes = scratch_bytes(c);
    return ERR_NONE;
}

/* Blocks are begun with the few channels of a picture: between images of other channels what follows
 * is better off with plain ones, a fused pool above all. */
static bool direct_takes(const struct op_desc *d) {
    enum { PICTURE = 3 };
    bool begins = d->x_layout == LAYOUT_PLAIN && d->y_layout == LAYOUT_BLOCKED;
    return !d->conv.maxpool && act_is_fused(d->act) && (!begins || d->x.dim[0] <= PICTURE);
}

/* Pairs of samples may not be of two segments. */
static bool direct_takes_segments(const struct op_desc *d) {
    return d->precision == PRECISION_F32;
}

const struct op_impl CPU_NAME(cpu_conv_direct) = {
    .name = "direct",
    .takes = direct_takes,
    .size = sizeof(struct direct),
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .segments = direct_takes_segments,
};
