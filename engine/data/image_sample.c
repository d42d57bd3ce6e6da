/* A picture file as a set of one sample, for a network that was trained on pictures. */
#include "engine/data/image.h"
#include "engine/data/resident.h"

static const struct dataset_ops one_picture = {
    .section = {.name = "picture"}, .read = resident_read, .close = resident_close};

static enum error picture_fill(const char *path, const struct dataset *like, unsigned char *out) {
    struct image *im;
    int width, height;
    TRY(image_create(&im));
    enum error err = image_read(im, path, &width, &height);
    if (err == ERR_NONE) {
        struct view v =
            view_middle(like->resample, like->part > 0 ? like->part : 1, (int)like->shape.dim[1], width, height);
        err = image_decode(im, &v, out);
    }
    image_free(im);
    return err;
}

enum error image_sample(const char *path, const struct dataset *like, struct dataset **out) {
    const struct shape *s = &like->shape;
    struct dataset d = {
        .ops = &one_picture, .size = 1, .shape = *s, .type = SAMPLE_U8, .name = "picture", .plane = true};
    struct resident *r;
    char text[96];
    if (like->type != SAMPLE_U8 || s->ndim != 3 || s->dim[0] != 3 || s->dim[1] != s->dim[2])
        return FAIL(ERR_DATA, "%s is a colour picture, but samples of '%s' are %s", path, like->name,
                    shape_text(s, text));
    TRY(resident_create(&d, &r));
    return dataset_give(picture_fill(path, like, r->x), &r->base, out);
}
