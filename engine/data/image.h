/* Files of pictures: JPEG, PNG and (where libwebp is) WebP, which are distinguished by their first bytes. Every picture becomes red, green and
 * blue of one byte each: grey becomes all three, transparency is dropped, CMYK is converted, 16 bits become 8. The
 * camera's orientation is ignored, as in PyTorch's ImageFolder. */
#pragma once
#include "engine/data/dataset.h"
#include "engine/data/picture.h"

enum {
    IMAGE_SIDE_MOST = 65500,
    IMAGE_PIXELS_MOST = 64 << 20,
    IMAGE_FILE_MOST = 256 << 20 /* bytes */
};
bool image_is_name(const char *name); /* .jpg, .jpeg, .png, .webp, in any case */
/* Reads the beginning of a file and checks that it is a picture of an allowed size. ERR_INPUT: it cannot be read;
 * ERR_DATA: it is not a picture. */
MUST_CHECK enum error image_probe(const char *path, int *width, int *height);

struct image; /* the decoders and their memory, which are kept from picture to picture */
MUST_CHECK enum error image_create(struct image **out);
void image_free(struct image *im);
/* Reads a file whole, and its header. */
MUST_CHECK enum error image_read(struct image *im, const char *path, int *width, int *height);
/* Gives the view v of the last picture, channel by channel. In the engine's way a JPEG is decoded at 1/2, 1/4 or 1/8 if
 * that is not below the wanted size. ERR_DATA, with the file's name, if the file is damaged or ends early. */
MUST_CHECK enum error image_decode(struct image *im, const struct view *v, unsigned char *out);
/* dataset_samples of a picture file: a set of one sample, its middle as 'like' would show it. */
MUST_CHECK enum error image_sample(const char *path, const struct dataset *like, struct dataset **out);
