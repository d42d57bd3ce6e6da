/* How a pass of conv_direct.c is cut into products: which windows, in which order. */
#pragma once
#include "engine/device/cpu/conv_direct_product.h"
#include "engine/device/impl.h"

enum pass { PASS_FORWARD, PASS_DATA, PASS_WEIGHTS };

/* An image as products have it: (samples, groups, units, h, w, unit). A unit is a block of channels,
 * or one channel of a plain image. */
struct direct_image {
    int64_t units, unit, h, w; /* units of a group */
};
static inline int64_t image_plane(const struct direct_image *g) {
    return g->h * g->w * g->unit;
}

/* What makes a pair: channels of a block, units, or samples. An image of pairs has half as many of them. */
enum pairs { PAIRS_OF_LANES, PAIRS_OF_UNITS, PAIRS_OF_SAMPLES };

/* Windows on 'from' give pixels of 'to'. Along an axis the window of place q has 'span' pixels, from
 * q * step - before on, and gives the pixel q * stride + offset, which depends on the phase. Forward
 * and for the weights there is one phase, and places are the pixels of y. For dx there is a phase
 * for each distance, modulo the stride, of a pixel of x from where windows begin: every stride-th
 * tap is one of its, and these lie side by side on dz. */
struct plan {
    enum pass pass;
    enum packing how; /* of what is copied and multiplied */
    enum pairs pairs;
    int64_t whole_n, whole_units; /* of the image before it is paired */
    struct direct_image from, to;
    int64_t n, groups, kernel[2], pad[2];
    int64_t step[2], stride[2], before[2], span[2], places[2];
    int64_t each;          /* units of 'from' that are summed at a time */
    int64_t rows, samples; /* of a chunk: rows of places; samples: 1 unless it has all rows */
    int64_t chunks;        /* of a group */
    bool in_place;         /* windows lie whole on 'from'; else it is copied, with its padding */
    bool lanewise;
};
/* Completes a plan that has its pass, images before they are paired, how, groups and 'lanewise'. */
void plan_make(struct plan *p, const struct op_desc *d, int64_t threads);

/* The same for n of the samples, at least one; not of pairs. */
void plan_cut(struct plan *p, int64_t n, int64_t threads);

/* Things that are cut in parts whose sizes differ by one at most. */
struct span {
    int64_t begin, count;
};
static inline struct span part_of(int64_t count, int64_t part, int64_t parts) {
    int64_t begin = count * part / parts;
    return (struct span){begin, count * (part + 1) / parts - begin};
}

struct chunk {
    int64_t group, sample, samples, first, rows; /* 'first' row of places */
};
/* Chunk 'index' of all groups', in order of the groups. */
struct chunk plan_chunk(const struct plan *p, int64_t index);

/* Where windows of a chunk are read: the distances of samples, units and rows. */
struct view {
    int64_t sample, unit, row;
};
struct view plan_view(const struct plan *p);
/* Floats of a copy. */
int64_t plan_copied(const struct plan *p);
/* Units of the image 'from' for the windows of a chunk, in 'copied' unless they are in place; gives where the first
 * begins. */
const float *plan_windows(const struct plan *p, const float *from, const struct chunk *k, struct span units,
                          float *copied);

static inline int64_t plan_phases(const struct plan *p) {
    return p->stride[0] * p->stride[1];
}
static inline int64_t plan_taps(const struct plan *p) {
    return p->kernel[0] * p->kernel[1];
}
/* Terms of a run, and how many packed rows of weights there are for a unit. */
static inline int64_t plan_depth(const struct plan *p) {
    return p->lanewise ? 1 : p->from.unit == 1 ? p->kernel[1] : p->from.unit;
}
static inline int64_t plan_packed(const struct plan *p) {
    return p->from.unit * plan_taps(p);
}

/* The windows of a phase of a chunk: where each begins, from the chunk's first on, and where its
 * pixel is on the first sample of the chunk. At most 'places' of a chunk; gives how many. */
int64_t plan_rows(const struct plan *p, const struct chunk *k, int64_t phase, int64_t *a_at, int64_t *c_at);
int64_t plan_places(const struct plan *p);
/* The runs of 'units' units in a phase, unit by unit; at most plan_taps() for each. */
int64_t plan_runs(const struct plan *p, int64_t units, int64_t phase, struct direct_run *run);

/* For the weights' gradient: the offsets of a product's rows in the windows and in the sums, a row for each term (unit, tap,
 * channel) of 'units' units, and its runs, the pixels of a chunk. */
int64_t plan_terms(const struct plan *p, int64_t units, int64_t *a_at, int64_t *c_at);
int64_t plan_pixels(const struct plan *p, const struct chunk *k, struct direct_run *run);

/* ---- scratch: a thread's ---- */
/* Memory that is carved up; without any: only measured. */
struct carving {
    char *memory;
    int64_t used;
};
static inline void *carve(struct carving *s, int64_t bytes) {
    void *here = s->memory ? s->memory + s->used : NULL;
    s->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return here;
}
/* The copy of windows, packed weights or sums of dw (in slots, where it has several segments), and where rows and runs
 * begin. */
struct room {
    float *copied, *packed;
    int64_t *a_at, *c_at;
    struct direct_run *run;
};
/* 'packed' lies where it lies for any number of samples. */
struct room plan_room(const struct plan *p, int segments, struct carving *at);
