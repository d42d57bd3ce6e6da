/* Files of pictures: JPEG, PNG and (where libwebp is) WebP, told apart by how they begin. Whatever a file holds, it becomes
 * red, green and blue of a byte each: grey is put in all three, transparency is left out, CMYK is
 * converted, 16 bits become 8. The camera's note on how it was held is ignored, as PyTorch's
 * ImageFolder does. */
#pragma once
#include "engine/data/dataset.h"
#include "engine/data/picture.h"

enum {
    IMAGE_SIDE_MOST = 65500,
    IMAGE_PIXELS_MOST = 64 << 20,
    IMAGE_FILE_MOST = 256 << 20 /* bytes */
};
bool image_is_name(const char *name); /* .jpg, .jpeg, .png, .webp, in any case */
/* Reads the beginning of a file: that it is a picture, of a size that is allowed. ERR_INPUT: cannot
 * be read; ERR_DATA: is none. */
MUST_CHECK enum error image_probe(const char *path, int *width, int *height);

struct image; /* what is kept from picture to picture: the decoders and their memory */
MUST_CHECK enum error image_create(struct image **out);
void image_free(struct image *im);
/* Reads a file whole, and its header. */
MUST_CHECK enum error image_read(struct image *im, const char *path, int *width, int *height);
/* Of the picture read last: what a view shows of it, channel by channel. In the engine's way a JPEG of which less is
 * wanted is decoded at 1/2, 1/4 or 1/8 of its size, the least that is not below the one wanted. ERR_DATA, with the file's
 * name, when it is damaged or ends early. */
MUST_CHECK enum error image_decode(struct image *im, const struct view *v, unsigned char *out);
/* dataset_samples of a picture file: a set of one sample, its middle as 'like' would show it. */
MUST_CHECK enum error image_sample(const char *path, const struct dataset *like, struct dataset **out);
