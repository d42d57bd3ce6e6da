/* Windows of conv_direct_plan.h: where they lie, or copied with their padding. */
#include "engine/base/whole.h"
#include "engine/device/cpu/conv_direct_plan.h"

/* A unit of a sample where it lies, and the one that makes pairs with it (NULL: none). */
struct source {
    const float *plane, *other;
    int64_t row; /* floats */
};
static struct source source_of(const struct plan *p, const float *from, int64_t group, int64_t sample, int64_t unit) {
    bool lanes = p->how == PACK_PAIRS && p->pairs == PAIRS_OF_LANES;
    bool samples = p->how == PACK_PAIRS && p->pairs == PAIRS_OF_SAMPLES;
    bool units = p->how == PACK_PAIRS && p->pairs == PAIRS_OF_UNITS;
    if (samples) sample *= 2;
    if (units) unit *= 2;
    struct source s = {.row = p->from.w * p->from.unit * (lanes ? 2 : 1)};
    int64_t plane = p->from.h * s.row, whole = p->groups * p->whole_units * plane;
    s.plane = from + sample * whole + (group * p->whole_units + unit) * plane;
    if (samples && sample + 1 < p->whole_n) s.other = s.plane + whole;
    if (units && unit + 1 < p->whole_units) s.other = s.plane + plane;
    return s;
}

const float *plan_windows(const struct plan *p, const float *from, const struct chunk *k, struct span units,
                          float *copied) {
    const struct direct_image *g = &p->from;
    int64_t top = k->first * p->step[0] - p->before[0], height = (k->rows - 1) * p->step[0] + p->span[0];
    struct view v = plan_view(p);
    if (p->in_place) return source_of(p, from, k->group, k->sample, units.begin).plane + top * v.row;
    struct direct_row row = {.left = at_most(p->before[1] * g->unit, v.row), .all = v.row, .how = p->how};
    struct direct_row outside = {.all = v.row};
    row.inside = at_most(g->w * g->unit, v.row - row.left);
    row.across = p->pairs != PAIRS_OF_LANES;
    for (int64_t i = 0; i < k->samples; i++)
        for (int64_t u = 0; u < units.count; u++) {
            struct source s = source_of(p, from, k->group, k->sample + i, units.begin + u);
            for (int64_t y = top; y < top + height; y++) {
                bool inside = y >= 0 && y < g->h;
                int64_t at = inside ? y * s.row : 0;
                if ((y - top) % p->step[0] >= p->span[0]) continue; /* between windows */
                direct_row(inside ? &row : &outside, s.plane + at, s.other ? s.other + at : NULL,
                           copied + i * v.sample + u * v.unit + (y - top) * v.row);
            }
        }
    return copied;
}
