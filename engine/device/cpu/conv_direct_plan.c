#include "engine/device/cpu/conv_direct_plan.h"
#include "engine/base/whole.h"

enum { B = LAYOUT_BLOCK };
/* Terms that are summed at a time, and the rows of packed weights that they have; places of a chunk, and of one
 * for dw, where they are a chain; and floats of a copy and of sums of dw. They all fit in a
 * second-level cache with what else is read. */
enum { TERMS = 256, PACKED = 640, PLACES = 768, CHAIN_PLACES = 384, COPIED = 96 << 10, SUMS = 64 << 10 };

/* ---- sizes ---------------------------------------------------------------------------------- */
static int64_t copied_h(const struct plan *p, int64_t rows) {
    return (rows - 1) * p->step[0] + p->span[0];
}
static int64_t copied_w(const struct plan *p) {
    return (p->places[1] - 1) * p->step[1] + p->span[1];
}

int64_t plan_copied(const struct plan *p) {
    if (p->in_place) return 0;
    return p->samples * p->each * copied_h(p, p->rows) * copied_w(p) * p->from.unit;
}

int64_t plan_places(const struct plan *p) {
    return p->samples * p->rows * p->places[1];
}

static void windows_choose(struct plan *p, const struct op_desc *d) {
    bool data = p->pass == PASS_DATA;
    p->in_place = true;
    for (int i = 0; i < 2; i++) {
        int64_t stride = d->conv.window.stride[i], size = i ? p->from.w : p->from.h;
        int64_t to = i ? p->to.w : p->to.h;
        p->kernel[i] = d->conv.window.kernel[i];
        p->pad[i] = d->conv.window.pad[i];
        p->step[i] = data ? 1 : stride;
        p->stride[i] = data ? stride : 1;
        p->span[i] = data ? parts_of(p->kernel[i], stride) : p->kernel[i];
        p->before[i] = data ? p->span[i] - 1 : p->pad[i];
        p->places[i] = data ? (to - 1 + p->pad[i]) / stride + 1 : to;
        if (p->before[i] || (p->places[i] - 1) * p->step[i] + p->span[i] > size) p->in_place = false;
    }
}

/* Units at a time: never a matter of the batch's size, for it decides on the order of sums. */
static void units_choose(struct plan *p) {
    int64_t packed = plan_packed(p), window = p->span[0] * p->span[1] * p->from.unit;
    int64_t units = at_most(TERMS / window, PACKED / packed);
    if (p->pass == PASS_WEIGHTS) units = at_least(SUMS / (p->to.units * p->to.unit), 3 * B) / packed;
    p->each = at_most(at_least(units, 1), p->from.units);
    p->each = parts_of(p->from.units, parts_of(p->from.units, p->each));
}

static void chunks_choose(struct plan *p, int64_t threads) {
    int64_t wanted = p->pass == PASS_WEIGHTS ? CHAIN_PLACES : PLACES;
    int64_t row = p->each * p->step[0] * copied_w(p) * p->from.unit, n = p->n;
    int64_t rows = at_least(1, at_most(wanted / p->places[1], COPIED / row)), all = p->places[0];
    p->samples = at_least(1, at_most(rows / all, n));
    p->rows = at_most(rows, all);
    p->rows = parts_of(all, parts_of(all, p->rows));
    int64_t chunks = parts_of(n, p->samples);
    if (p->pass != PASS_WEIGHTS && p->samples > 1) chunks = at_most(n, parts_of(chunks, threads) * threads);
    p->samples = parts_of(n, chunks);
    p->chunks = p->rows < all ? n * parts_of(all, p->rows) : parts_of(n, p->samples);
}

/* Chooses what makes a pair: samples where pixels are summed (for the weights); else channels, which lie side by side only
 * in blocks. */
static void pairs_choose(struct plan *p) {
    p->whole_n = p->n, p->whole_units = p->from.units;
    if (p->how != PACK_PAIRS) return;
    p->pairs = p->pass == PASS_WEIGHTS ? PAIRS_OF_SAMPLES : p->from.unit == 1 ? PAIRS_OF_UNITS : PAIRS_OF_LANES;
    if (p->pairs == PAIRS_OF_SAMPLES) p->n = parts_of(p->n, 2);
    if (p->pairs == PAIRS_OF_UNITS) p->from.units = parts_of(p->from.units, 2);
    if (p->pairs == PAIRS_OF_LANES) p->from.unit /= 2;
}

void plan_make(struct plan *p, const struct op_desc *d, int64_t threads) {
    p->n = d->n;
    pairs_choose(p);
    windows_choose(p, d);
    if (p->how != PACK_FLOATS) p->in_place = false;
    units_choose(p);
    chunks_choose(p, threads);
}

void plan_cut(struct plan *p, int64_t n, int64_t threads) {
    p->n = p->whole_n = n;
    chunks_choose(p, threads);
}

struct chunk plan_chunk(const struct plan *p, int64_t index) {
    int64_t bands = parts_of(p->places[0], p->rows), first = index % p->chunks % bands * p->rows;
    int64_t sample = index % p->chunks / bands * p->samples;
    return (struct chunk){index / p->chunks, sample, at_most(p->samples, p->n - sample), first,
                          at_most(p->rows, p->places[0] - first)};
}

struct view plan_view(const struct plan *p) {
    int64_t plane = image_plane(&p->from);
    if (p->in_place) return (struct view){p->groups * p->from.units * plane, plane, p->from.w * p->from.unit};
    plane = copied_h(p, p->rows) * copied_w(p) * p->from.unit;
    return (struct view){p->each * plane, plane, copied_w(p) * p->from.unit};
}

/* ---- forward, and dx ------------------------------------------------------------------------ */
int64_t plan_rows(const struct plan *p, const struct chunk *k, int64_t phase, int64_t *a_at, int64_t *c_at) {
    struct view v = plan_view(p);
    bool data = p->pass == PASS_DATA;
    int64_t off_y = data ? phase / p->stride[1] - p->pad[0] : 0, off_x = data ? phase % p->stride[1] - p->pad[1] : 0;
    int64_t count = 0, sample = p->groups * p->to.units * image_plane(&p->to);
    for (int64_t i = 0; i < k->samples; i++)
        for (int64_t q = 0; q < k->rows; q++) {
            int64_t y = (k->first + q) * p->stride[0] + off_y;
            int64_t a = i * v.sample + q * p->step[0] * v.row, c = i * sample + y * p->to.w * p->to.unit;
            if (y < 0 || y >= p->to.h) continue;
            for (int64_t j = 0; j < p->places[1]; j++) {
                int64_t x = j * p->stride[1] + off_x;
                if (x < 0 || x >= p->to.w) continue;
                a_at[count] = a + j * p->step[1] * p->from.unit;
                c_at[count++] = c + x * p->to.unit;
            }
        }
    return count;
}

/* A tap's place in a window of its phase. */
static int64_t place_of(const struct plan *p, int axis, int64_t tap) {
    return p->pass == PASS_DATA ? p->span[axis] - 1 - tap / p->stride[axis] : tap;
}

int64_t plan_runs(const struct plan *p, int64_t units, int64_t phase, struct direct_run *run) {
    struct view v = plan_view(p);
    int64_t count = 0, next = p->from.unit == 1 ? p->kernel[1] : p->stride[1];
    for (int64_t u = 0; u < units; u++)
        for (int64_t y = phase / p->stride[1]; y < p->kernel[0]; y += p->stride[0])
            for (int64_t x = phase % p->stride[1]; x < p->kernel[1]; x += next)
                run[count++] =
                    (struct direct_run){.a = u * v.unit + place_of(p, 0, y) * v.row + place_of(p, 1, x) * p->from.unit,
                                        .b = u * plan_packed(p) * B + (y * p->kernel[1] + x) * p->from.unit * B};
    return count;
}

/* ---- dw ------------------------------------------------------------------------------------- */
int64_t plan_terms(const struct plan *p, int64_t units, int64_t *a_at, int64_t *c_at) {
    struct view v = plan_view(p);
    int64_t count = 0, lanes = p->lanewise ? 1 : p->from.unit;
    for (int64_t u = 0; u < units; u++)
        for (int64_t y = 0; y < p->kernel[0]; y++)
            for (int64_t x = 0; x < p->kernel[1]; x++)
                for (int64_t lane = 0; lane < lanes; lane++, count++) {
                    a_at[count] = u * v.unit + y * v.row + x * p->from.unit + lane;
                    c_at[count] = count * B;
                }
    return count;
}

int64_t plan_pixels(const struct plan *p, const struct chunk *k, struct direct_run *run) {
    struct view v = plan_view(p);
    int64_t count = 0, sample = p->groups * p->to.units * image_plane(&p->to);
    for (int64_t i = 0; i < k->samples; i++)
        for (int64_t q = 0; q < k->rows; q++)
            run[count++] = (struct direct_run){i * v.sample + q * p->step[0] * v.row, i * sample + q * p->to.w * B};
    return count;
}

/* ---- scratch -------------------------------------------------------------------------------- */
struct room plan_room(const struct plan *p, int segments, struct carving *at) {
    bool weights = p->pass == PASS_WEIGHTS;
    int64_t terms = p->each * plan_packed(p), rows = weights ? terms : plan_places(p);
    int64_t runs = weights ? p->samples * p->rows : p->each * plan_taps(p);
    int64_t panel = weights && segments == 1 ? p->to.units : segment_slots(segments) * DIRECT_PANEL;
    if (!weights && p->how == PACK_PAIRS) panel++; /* what becomes pairs is packed as floats first */
    struct room r;
    r.packed = carve(at, panel * terms * B * (int64_t)sizeof *r.packed);
    r.copied = carve(at, plan_copied(p) * (int64_t)sizeof *r.copied);
    r.a_at = carve(at, rows * (int64_t)sizeof *r.a_at);
    r.c_at = carve(at, rows * (int64_t)sizeof *r.c_at);
    r.run = carve(at, runs * (int64_t)sizeof *r.run);
    return r;
}
