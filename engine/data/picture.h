/* The part of a picture that a sample shows, and its conversion to a picture of the sample's size. */
#pragma once
#include "engine/base/memory.h"
#include "engine/base/rng.h"

struct box { /* in pixels; a pixel is the square [i, i + 1) */
    double x, y, w, h;
};
/* random_resized_crop, as PyTorch defines it: a part of random area and shape. */
struct crop_rule {
    bool on;
    double scale[2]; /* of the picture's area */
    double ratio[2]; /* width / height; its logarithm is uniform */
};
static inline double draw_between(double low, double high, uint32_t word) {
    return low + (high - low) * (double)rng_unit(word);
}
/* The data on which chance depends at a visit to a sample. */
struct visit {
    struct crop_rule rule;
    struct rng_key key;
    uint64_t id;
};
/* The part that a visit sees of a picture; whole pixels. */
struct box box_draw(const struct visit *v, int width, int height);
/* The middle: a square of side 'part' times the shorter side. */
struct box box_middle(double part, int width, int height);

/* By which rule a picture file becomes a sample. */
enum resample { RESAMPLE_ENGINE, RESAMPLE_TORCHVISION };
/* What a sample of size x size shows of a picture. */
struct view {
    struct box box;
    int size;
    enum resample by;
    int width, height, left, top; /* torchvision: the box is resized to this, and the square at this place cut out */
};
/* The middle: the shorter side is resized to size / part, then the middle of size x size cut out; in the engine's way
 * that is one step, in torchvision's Resize and CenterCrop. */
struct view view_middle(enum resample by, double part, int size, int width, int height);
/* A part of whole pixels, resized. */
struct view view_part(enum resample by, struct box box, int size);

/* ---- resizing ---- */
struct axis { /* of one output pixel: which input pixels, and how much of each */
    int size, taps;
    int *first, *count;
    int32_t *weight; /* (size, taps), in units of 1/16384, of torchvision 1/4194304; sum: 1 */
};
struct resizer { /* memory that is kept from picture to picture; zeroed: none yet */
    struct axis x, y;
    void *memory;
    int32_t *row;
    size_t room;
};
void resizer_fini(struct resizer *r);
/* Makes the view's box of a picture in RGB (three bytes a pixel) a square of its size, channel by channel. It interpolates
 * linearly; when shrinking it takes the mean over the area of a pixel (a triangle), like Pillow's BILINEAR. It reads
 * no pixels outside the box. */
MUST_CHECK enum error picture_resize(struct resizer *r, const unsigned char *pixels, int width, int height,
                                     const struct view *v, unsigned char *out);
/* The same for a view by torchvision: the bytes that torchvision's Resize (bilinear with antialias) and CenterCrop give of
 * a PIL image. */
MUST_CHECK enum error picture_resize_exactly(struct resizer *r, const unsigned char *pixels, int width,
                                             const struct view *v, unsigned char *out);
