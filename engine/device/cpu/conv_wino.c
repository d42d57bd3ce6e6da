/* 3x3 convolutions of blocked images by Winograd's algorithm F(4x4, 3x3): an output tile of 4x4
 * costs 36 products a pair of channels instead of 144, for an r.m.s. error of 5e-7 to 9e-7.
 *
 *   forward     V = B' x B of each 6x6 tile     U = G w G'     y = A' (U V) A
 *   dx          the same from dz, with turned windows
 *   dw          G' (sum over tiles of V (A dz A')) G
 *
 * In bf16 what is loaded is rounded first, and all that follows is f32: forward and backward
 * together take a fifth to a third less time than direct convolutions of bf16 without tiles.
 *
 * Each of the 36 places of the tiles is a matrix product, (tiles, in) x (in, out) or, for dw,
 * (out, tiles) x (tiles, in). What is transformed is 2.25 to 4 times as large as what it comes
 * from, so it must not reach memory. Two orders of work keep it in the cache:
 *
 *   by chunk    a few tiles are transformed, multiplied by all weights, and finished: where the
 *               weights are few
 *   by panel    many tiles are transformed; then 64 x 64 weights at a time are transformed and
 *               multiplied by them all
 *
 * Where the batch has segments, sums of dw are a segment's: by panel, of as many segments as fit into a chunk, whose
 * gradients of a panel are added along the tree while it is in the cache; what is left of the tree, and all of it by
 * chunk, is added whole.
 *
 * An element of a product is a sum in order of channels or tiles, of short chains of multiply-adds:
 * its bits depend neither on threads, nor on the instruction set if that has fused multiply-adds,
 * nor, for y and dx, on the order of work and the batch. */
#include "engine/device/cpu/conv_wino.h"
#include "engine/base/whole.h"
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/lanes.h"
#include "engine/device/cpu/layout.h"
#include "engine/device/runtime.h"

#include <string.h>

enum { B = LAYOUT_BLOCK, PANEL = WINO_PANEL };
/* Tiles of a chunk: by chunk; by panel, where the products of a panel stay in the cache; and by
 * panel for dw, whose products are panels of weights. */
enum { FEW_TILES = 24, PANEL_TILES = 66, SUM_TILES = 192 };
/* Rows of a panel of dw that are taken at a time where segments are added, and gradients in a slot of theirs. */
enum { SLOT_ROWS = 48, SLOT = SLOT_ROWS * PANEL * 9 };
enum pass { PASS_FORWARD, PASS_DATA, PASS_WEIGHTS };

/* One pass: 'from' is transformed, 'to' comes out (for dw both are transformed). */
struct plan {
    struct wino_image from, to;
    struct wino_weights weights;
    int64_t tiles;  /* of the batch */
    int64_t chunk;  /* of a chunk */
    int64_t summed; /* channels of 'from' */
    int64_t lanes;  /* channels of 'to' */
    bool by_panel;
    int together; /* segments that are summed at a time: more than one only by panel */
};

struct wino {
    struct op op;
    struct plan plan[3];
};

/* A pass at work: what its threads share, then what each of them has. */
struct pass_run {
    const struct wino *c;
    const struct plan *p;
    const float *from, *w, *dz;
    float *to, *dw;
    struct wino_finish finish;
    float *shared, *own, *slots;
    int64_t own_floats;
    int64_t begin, end; /* tiles of the chunk at work */
    int first;          /* of the segments at work */
    bool add;           /* the chunk's products to those of chunks before */
};

/* ---- sizes: a vector more keeps what is read side by side out of the same places of the cache - */

/* Transformed tiles of 'rows' rows and 'width' columns: floats of a row, of a plane, of all. */
static int64_t row_of(int64_t width) {
    return width > PANEL ? width + B : width;
}
static int64_t plane_of(int64_t rows, int64_t width) {
    return rows * row_of(width) + B;
}
static int64_t floats_of(int64_t rows, int64_t width) {
    return align_floats(WINO_PLANES * plane_of(rows, width));
}
static struct wino_tiles tiles_at(float *at, int64_t rows, int64_t width) {
    return (struct wino_tiles){at, plane_of(rows, width), row_of(width)};
}

static int64_t panels_of(int64_t channels) {
    return (channels + PANEL - 1) / PANEL;
}

/* Floats that the threads share, and that each has. */
static int64_t shared_floats(const struct plan *p, enum pass pass) {
    int64_t tiles = floats_of(p->chunk, p->summed);
    if (pass != PASS_WEIGHTS) return p->by_panel ? tiles : panels_of(p->lanes) * floats_of(p->summed, PANEL);
    return tiles + floats_of(p->chunk, p->lanes) + (p->by_panel ? 0 : floats_of(p->lanes, p->summed));
}

static int64_t own_floats(const struct plan *p, enum pass pass) {
    int64_t products = floats_of(p->chunk, PANEL), weights = floats_of(PANEL, PANEL);
    int64_t slots = p->together > 1 ? segment_slots(p->together) * SLOT : 0;
    if (pass == PASS_WEIGHTS) return p->by_panel ? weights + slots : 0;
    return products + (p->by_panel ? weights : floats_of(p->chunk, p->summed));
}

/* ---- forward, and dx ------------------------------------------------------------------------ */
static float *own_of(const struct pass_run *r) {
    return r->own + cpu_thread() * r->own_floats;
}

static int64_t panel_width(int64_t panel, int64_t channels) {
    return at_most(PANEL, channels - panel * PANEL);
}

/* m = or += the chunk's tiles 'v', of these their channels at->row ..., times the part 'at' of the weights, which is u. */
static void panel_products(const struct pass_run *r, const struct wino_tiles *v, const struct wino_part *at,
                           const struct wino_tiles *u, const struct wino_tiles *m) {
    for (int plane = 0; plane < WINO_PLANES; plane++) {
        struct wino_product product = {.rows = r->end - r->begin,
                                       .depth = at->rows,
                                       .width = at->width,
                                       .a = v->at + plane * v->plane + at->row,
                                       .a_row = v->row,
                                       .a_depth = 1,
                                       .b = u->at + plane * u->plane,
                                       .b_row = u->row,
                                       .c = m->at + plane * m->plane,
                                       .c_row = m->row,
                                       .add = at->row > 0};
        wino_multiply(&product);
    }
}

/* Rows [row, row + rows), of channels or tiles, and a panel of the channels of 'to'. */
static struct wino_part panel_part(const struct plan *p, int64_t panel, int64_t row, int64_t rows) {
    return (struct wino_part){row, rows, panel * PANEL, panel_width(panel, p->lanes)};
}

static void panel_finish(const struct pass_run *r, int64_t panel, const struct wino_tiles *m) {
    const struct wino_part at = panel_part(r->p, panel, r->begin, r->end - r->begin);
    wino_output(&r->p->to, r->to, &at, m, r->finish);
}

static struct wino_tiles weights_of(const struct pass_run *r, int64_t panel) {
    int64_t summed = r->p->summed;
    return tiles_at(r->shared + panel * floats_of(summed, PANEL), summed, PANEL);
}

static void transform_panels(void *ctx, int64_t begin, int64_t end) {
    const struct pass_run *r = ctx;
    const struct plan *p = r->p;
    for (int64_t panel = begin; panel < end; panel++) {
        const struct wino_part at = panel_part(p, panel, 0, p->summed);
        struct wino_tiles u = weights_of(r, panel);
        wino_weights_in(&p->weights, r->w, &at, &u);
    }
}

static void chunks_by_chunk(void *ctx, int64_t begin, int64_t end) {
    struct pass_run mine = *(const struct pass_run *)ctx, *r = &mine;
    const struct plan *p = r->p;
    struct wino_tiles m = tiles_at(own_of(r), p->chunk, PANEL);
    struct wino_tiles v = tiles_at(own_of(r) + floats_of(p->chunk, PANEL), p->chunk, p->summed);
    for (int64_t chunk = begin; chunk < end; chunk++) {
        r->begin = chunk * p->chunk, r->end = at_most(r->begin + p->chunk, p->tiles);
        wino_input(&p->from, r->from, r->begin, r->end, &v);
        for (int64_t panel = 0; panel < panels_of(p->lanes); panel++) {
            const struct wino_part at = panel_part(p, panel, 0, p->summed);
            struct wino_tiles u = weights_of(r, panel);
            panel_products(r, &v, &at, &u, &m);
            panel_finish(r, panel, &m);
        }
    }
}

/* Tiles [begin, end), counted from the chunk's first. */
static void transform_inputs(void *ctx, int64_t begin, int64_t end) {
    const struct pass_run *r = ctx;
    const struct plan *p = r->p;
    struct wino_tiles v = tiles_at(r->shared, p->chunk, p->summed);
    v.at += begin * v.row;
    wino_input(&p->from, r->from, r->begin + begin, r->begin + end, &v);
}

static void panels_by_panel(void *ctx, int64_t begin, int64_t end) {
    const struct pass_run *r = ctx;
    const struct plan *p = r->p;
    struct wino_tiles v = tiles_at(r->shared, p->chunk, p->summed);
    struct wino_tiles m = tiles_at(own_of(r), p->chunk, PANEL);
    struct wino_tiles u = tiles_at(own_of(r) + floats_of(p->chunk, PANEL), PANEL, PANEL);
    for (int64_t panel = begin; panel < end; panel++) {
        for (int64_t c = 0; c < p->summed; c += PANEL) {
            const struct wino_part at = panel_part(p, panel, c, at_most(PANEL, p->summed - c));
            wino_weights_in(&p->weights, r->w, &at, &u);
            panel_products(r, &v, &at, &u, &m);
        }
        panel_finish(r, panel, &m);
    }
}

static void run_images(struct pass_run *r) {
    const struct device *dev = r->c->op.dev;
    const struct plan *p = r->p;
    int64_t panels = panels_of(p->lanes);
    if (!p->by_panel) {
        cpu_parallel(dev, panels, 1, transform_panels, r);
        cpu_parallel(dev, (p->tiles + p->chunk - 1) / p->chunk, 1, chunks_by_chunk, r);
        return;
    }
    for (r->begin = 0; r->begin < p->tiles; r->begin = r->end) {
        r->end = at_most(r->begin + p->chunk, p->tiles);
        cpu_parallel(dev, r->end - r->begin, 1, transform_inputs, r);
        cpu_parallel(dev, panels, 1, panels_by_panel, r);
    }
}

/* ---- dw: from is x, to is dz; rows of the products are channels of dz ------------------------ */
/* Where transformed x, dz and, by chunk, the sums lie in what is shared. */
struct parts {
    struct wino_tiles x, dz, sums;
};

static struct parts wino_parts(const struct pass_run *r) {
    const struct plan *p = r->p;
    float *dz = r->shared + floats_of(p->chunk, p->summed);
    float *sums = dz + floats_of(p->chunk, p->lanes);
    return (struct parts){tiles_at(r->shared, p->chunk, p->summed), tiles_at(dz, p->chunk, p->lanes),
                          tiles_at(sums, p->lanes, p->summed)};
}

/* Tiles [begin, end), counted from the chunk's first. */
static void transform_x_and_dz(void *ctx, int64_t begin, int64_t end) {
    const struct pass_run *r = ctx;
    struct parts parts = wino_parts(r);
    parts.x.at += begin * parts.x.row;
    parts.dz.at += begin * parts.dz.row;
    wino_input(&r->p->from, r->from, r->begin + begin, r->begin + end, &parts.x);
    wino_gradient(&r->p->to, r->dz, r->begin + begin, r->begin + end, &parts.dz);
}

/* Place 'plane' of 'sums': channels at->row ... of dz with channels at->first ... of x, over tiles [begin, end) of the
 * chunk. */
static void add_products(const struct pass_run *r, int64_t plane, const struct wino_part *at, int64_t begin,
                         int64_t end, const struct wino_tiles *sums) {
    struct parts parts = wino_parts(r);
    struct wino_product product = {.rows = at->rows,
                                   .depth = end - begin,
                                   .width = at->width,
                                   .a = parts.dz.at + plane * parts.dz.plane + at->row + begin * parts.dz.row,
                                   .a_row = 1,
                                   .a_depth = parts.dz.row,
                                   .b = parts.x.at + plane * parts.x.plane + at->first + begin * parts.x.row,
                                   .b_row = parts.x.row,
                                   .c = sums->at + plane * sums->plane,
                                   .c_row = sums->row,
                                   .add = r->add};
    wino_multiply(&product);
}

static void planes_of_chunk(void *ctx, int64_t begin, int64_t end) {
    const struct pass_run *r = ctx;
    for (int64_t plane = begin; plane < end; plane++)
        for (int64_t panel = 0; panel < panels_of(r->p->summed); panel++) {
            const struct wino_part at = {0, r->p->lanes, panel * PANEL, panel_width(panel, r->p->summed)};
            struct wino_tiles sums = wino_parts(r).sums;
            sums.at += at.first;
            add_products(r, plane, &at, 0, r->end - r->begin, &sums);
        }
}

static void gradients_of_rows(void *ctx, int64_t begin, int64_t end) {
    const struct pass_run *r = ctx;
    struct wino_tiles sums = wino_parts(r).sums;
    sums.at += begin * sums.row;
    wino_weights_out(&r->p->weights, r->dw, &(struct wino_part){begin, end - begin, 0, r->p->summed}, &sums);
}

/* The sums of a part of dw, rows of a panel, over tiles [begin, end) of the chunk. */
static struct wino_tiles part_sums(const struct pass_run *r, const struct wino_part *at, int64_t begin, int64_t end) {
    struct wino_tiles sums = tiles_at(own_of(r), at->rows, PANEL);
    for (int64_t plane = 0; plane < WINO_PLANES; plane++) add_products(r, plane, at, begin, end, &sums);
    return sums;
}

static void part_whole(const struct pass_run *r, const struct wino_part *at) {
    struct wino_tiles sums = part_sums(r, at, 0, r->end - r->begin);
    wino_weights_out(&r->p->weights, r->dw, at, &sums);
}

/* The part of dw of all segments at work, added along the tree. */
static void part_tree(const struct pass_run *r, const struct wino_part *at) {
    const struct segments s = op_segments(&r->c->op.desc);
    float *slots = own_of(r) + floats_of(PANEL, PANEL);
    int64_t tiles = r->p->tiles / s.begin[s.count], floats = at->rows * at->width * 9;
    for (int i = 0; i < r->p->together; i++) {
        const int64_t *begin = s.begin + r->first + i;
        float *slot = slots + segment_slot(i) * SLOT;
        if (begin[0] == begin[1]) {
            memset(slot, 0, (size_t)floats * sizeof *slot);
        } else {
            struct wino_tiles sums = part_sums(r, at, begin[0] * tiles - r->begin, begin[1] * tiles - r->begin);
            wino_taps_out(slot, at, &sums);
        }
        slots_add(slots, SLOT, i, floats);
    }
    wino_weights_from_taps(&r->p->weights, r->dw, at, slots);
}

/* Squares of panels of both sides' channels, part by part: sums and gradients of each, while it is in the cache. */
static void gradients_by_panel(void *ctx, int64_t begin, int64_t end) {
    const struct pass_run *r = ctx;
    int64_t panels = panels_of(r->p->summed), most = r->p->together > 1 ? SLOT_ROWS : PANEL;
    for (int64_t square = begin; square < end; square++) {
        int64_t panel = square % panels, last = at_most((square / panels + 1) * PANEL, r->p->lanes);
        struct wino_part at = {
            .row = square / panels * PANEL, .first = panel * PANEL, .width = panel_width(panel, r->p->summed)};
        for (; at.row < last; at.row += at.rows) {
            at.rows = at_most(most, last - at.row);
            if (r->p->together > 1)
                part_tree(r, &at);
            else
                part_whole(r, &at);
        }
    }
}

/* dw of r's segments: tiles [begin, end). */
static void run_segments(struct pass_run *r, int64_t begin, int64_t end) {
    const struct device *dev = r->c->op.dev;
    const struct plan *p = r->p;
    int64_t squares = panels_of(p->lanes) * panels_of(p->summed);
    if (begin == end) memset(r->dw, 0, (size_t)(p->lanes * p->summed * 9) * sizeof *r->dw);
    for (int64_t at = begin; at < end; at += p->chunk) {
        r->begin = at, r->end = at_most(at + p->chunk, end);
        r->add = at > begin;
        cpu_parallel(dev, r->end - at, 1, transform_x_and_dz, r);
        if (p->by_panel)
            cpu_parallel(dev, squares, 1, gradients_by_panel, r);
        else
            cpu_parallel(dev, WINO_PLANES, 1, planes_of_chunk, r);
    }
    if (!p->by_panel && begin < end) cpu_parallel(dev, p->lanes, 1, gradients_of_rows, r);
}

static enum error run_weights(const struct pass_run *r, float *dw) {
    const struct segments s = op_segments(&r->c->op.desc);
    int64_t floats = r->p->lanes * r->p->summed * 9, tiles = r->p->tiles / s.begin[s.count];
    float *slots[SEGMENT_SLOTS] = {dw};
    for (int k = 1; k < SEGMENT_SLOTS; k++) slots[k] = r->slots + (k - 1) * align_floats(floats);
    for (int i = 0; i < s.count / r->p->together; i++) {
        struct pass_run part = *r;
        part.first = i * r->p->together;
        part.dw = slots[segment_slot(i)];
        run_segments(&part, s.begin[part.first] * tiles, s.begin[part.first + r->p->together] * tiles);
        for (int k = segment_slot(i); k > segment_bottom(i); k--)
            TRY(device_add(r->c->op.dev, slots[k - 1], slots[k], floats));
    }
    return ERR_NONE;
}

/* ---- the op: scratch is (dz before relu, shared, a part for each thread) --------------------- */
static int64_t dz_floats(const struct op_desc *d) {
    return d->act == ACT_RELU ? align_floats(op_ys(d)) : 0;
}

static struct pass_run run_of(const struct wino *c, const struct op_args *a, enum pass pass) {
    const struct plan *p = &c->plan[pass];
    float *scratch = (float *)a->scratch + (pass == PASS_FORWARD ? 0 : dz_floats(&c->op.desc));
    return (struct pass_run){.c = c,
                             .p = p,
                             .w = a->w[0],
                             .shared = scratch,
                             .own = scratch + shared_floats(p, pass),
                             .own_floats = own_floats(p, pass),
                             .slots =
                                 scratch + shared_floats(p, pass) + c->op.dev->params.threads * own_floats(p, pass)};
}

static enum error conv_forward(struct op *op, const struct op_args *a) {
    const struct wino *c = (const struct wino *)op;
    struct pass_run r = run_of(c, a, PASS_FORWARD);
    r.from = a->x[0], r.to = a->y;
    r.finish = (struct wino_finish){op->desc.conv.bias ? a->w[1] : NULL, op->desc.act == ACT_RELU};
    run_images(&r);
    return ERR_NONE;
}

static void mask_part(void *ctx, int64_t begin, int64_t end) {
    const struct op_args *a = ctx;
    kernel_relu_backward(end - begin, a->y + begin, a->dy + begin, (float *)a->scratch + begin);
}

static enum error conv_backward(struct op *op, const struct op_args *a) {
    const struct wino *c = (const struct wino *)op;
    struct op_args args = *a;
    const float *dz = a->dy;
    if (op->desc.act == ACT_RELU) {
        cpu_parallel(op->dev, op_ys(&op->desc), 4096, mask_part, &args);
        dz = a->scratch;
    }
    if (op->desc.conv.bias) channel_sums(op->dev, &op->desc, dz, a->dw[1]);
    struct pass_run r = run_of(c, a, PASS_WEIGHTS);
    r.from = a->x[0], r.dz = dz;
    TRY(run_weights(&r, a->dw[0]));
    if (!a->dx[0]) return ERR_NONE;
    r = run_of(c, a, PASS_DATA);
    r.from = dz, r.to = a->dx[0];
    run_images(&r);
    return ERR_NONE;
}

static bool wino_takes(const struct op_desc *d) {
    const struct window *w = &d->conv.window;
    if (HAS_TILES && d->precision == PRECISION_BF16) return false; /* direct ones multiply by tiles */
    for (int axis = 0; axis < 2; axis++)
        if (w->kernel[axis] != 3 || w->stride[axis] != 1 || w->pad[axis] != w->pad[0] || w->pad[axis] > 2) return false;
    return d->x_layout == LAYOUT_BLOCKED && d->y_layout == LAYOUT_BLOCKED && act_is_fused(d->act) &&
           d->conv.groups == 1 && !d->conv.maxpool;
}

/* Transformed, 128 x 128 weights leave room in the cache. The sums of dw can only be taken by panel
 * when one chunk is all tiles of a segment. */
static void wino_choose_order(struct plan *p, const struct op_desc *d, enum pass pass) {
    const struct segments s = op_segments(d);
    int64_t many = pass == PASS_WEIGHTS ? SUM_TILES : PANEL_TILES, each = p->tiles / d->n, most = 0;
    bool few = p->summed * p->lanes <= 128 * 128;
    for (int i = 0; i < s.count; i++)
        if (segment_size(&s, i) * each > most) most = segment_size(&s, i) * each;
    p->by_panel = !few && (pass != PASS_WEIGHTS || most <= SUM_TILES);
    p->chunk = at_most(p->tiles, few ? FEW_TILES : many);
    p->together = pass == PASS_WEIGHTS && p->by_panel ? segments_within(&s, each, SUM_TILES) : 1;
}

static struct wino_image image_of(const struct shape *s, const struct shape *tiled, int64_t pad) {
    return (struct wino_image){.blocks = s->dim[0] / B,
                               .h = s->dim[1],
                               .w = s->dim[2],
                               .down = (tiled->dim[1] + WINO_OUT - 1) / WINO_OUT,
                               .across = (tiled->dim[2] + WINO_OUT - 1) / WINO_OUT,
                               .pad = pad};
}

static struct plan plan_of(const struct op_desc *d, enum pass pass) {
    bool data = pass == PASS_DATA;
    const struct shape *from = data ? &d->y : &d->x, *to = data ? &d->x : &d->y;
    int64_t pad = d->conv.window.pad[0];
    bool round = d->precision == PRECISION_BF16;
    struct plan p = {.from = image_of(from, to, data ? 2 - pad : pad),
                     .to = image_of(to, to, 0),
                     .weights = {d->y.dim[0], d->x.dim[0], data, round},
                     .summed = from->dim[0],
                     .lanes = to->dim[0]};
    p.from.round = p.to.round = round;
    p.tiles = d->n * p.to.down * p.to.across;
    wino_choose_order(&p, d, pass);
    return p;
}

static enum error conv_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct wino *c = (struct wino *)op;
    for (enum pass pass = PASS_FORWARD; pass <= PASS_WEIGHTS; pass++) {
        struct plan *p = &c->plan[pass];
        *p = plan_of(d, pass);
        int64_t floats = pass == PASS_FORWARD ? 0 : dz_floats(d);
        floats += shared_floats(p, pass) + op->dev->params.threads * own_floats(p, pass);
        int slots = segment_slots(op_segments(d).count / p->together) - 1;
        if (pass == PASS_WEIGHTS) floats += slots * align_floats(p->lanes * p->summed * 9);
        size_t bytes = (size_t)floats * sizeof(float);
        if (bytes > c->op.scratch_bytes) c->op.scratch_bytes = bytes;
    }
    return ERR_NONE;
}

const struct op_impl CPU_NAME(cpu_conv_wino) = {
    .name = "winograd",
    .takes = wino_takes,
    .size = sizeof(struct wino),
    .plan = conv_plan,
    .forward = conv_forward,
    .backward = conv_backward,
    .segments = op_takes_any,
};
