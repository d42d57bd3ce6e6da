/* idx: the format of MNIST and its kin, gzipped or not. Two zero bytes, a byte for the type (only
 * unsigned bytes are taken), a byte for the number of dimensions, each dimension in four bytes, big
 * end first, then the data. http://yann.lecun.com/exdb/mnist */
#include "engine/base/file.h"
#include "engine/data/pair.h"

#include <stdio.h>
#include <string.h>

static enum error idx_header(struct input *in, struct array *out) {
    uint8_t magic[4], dim[4];
    enum { UNSIGNED_BYTES = 8 };
    TRY(input_read(in, magic, sizeof magic));
    if (magic[0] || magic[1] || magic[2] < 8 || magic[2] > 14)
        return FAIL(ERR_DATA, "%s: not an IDX file: it begins with %02x %02x %02x %02x", in->path, magic[0], magic[1],
                    magic[2], magic[3]);
    if (magic[2] != UNSIGNED_BYTES)
        return FAIL(ERR_DATA, "%s: IDX elements of type 0x%02x\nonly unsigned bytes (0x08) are read", in->path,
                    magic[2]);
    if (magic[3] < 1 || magic[3] > ARRAY_DIMS)
        return FAIL(ERR_DATA, "%s: %d dimensions, but 1 to %d are supported", in->path, magic[3], ARRAY_DIMS);
    *out = (struct array){.type = ELEMENT_U8, .ndim = magic[3]};
    for (int i = 0; i < out->ndim; i++) {
        TRY(input_read(in, dim, sizeof dim));
        out->dim[i] = (int64_t)dim[0] << 24 | dim[1] << 16 | dim[2] << 8 | dim[3];
    }
    return ERR_NONE;
}

/* "train-images-idx3-ubyte", and as some write it, "train-images.idx3-ubyte". */
static bool folder_file(const char *folder, const char *what, int dims, char out[PATH_MAX]) {
    for (const char *dot = "-."; *dot; dot++) {
        char name[64];
        snprintf(name, sizeof name, "%s%cidx%d-ubyte", what, *dot, dims);
        if (path_join(out, folder, name) == ERR_NONE && pair_existing(out, PATH_MAX)) return true;
    }
    return false;
}

static enum error idx_folder(const char *folder, bool train, struct pair_paths *out) {
    const char *images = train ? "train-images" : "t10k-images", *labels = train ? "train-labels" : "t10k-labels";
    if (!folder_file(folder, images, 3, out->x))
        return FAIL(ERR_INPUT, "no %s-idx3-ubyte or .gz in %s", images, folder);
    if (!folder_file(folder, labels, 1, out->y))
        return FAIL(ERR_INPUT, "no %s-idx1-ubyte or .gz in %s", labels, folder);
    return ERR_NONE;
}

/* images -> labels, idx3 -> idx1 */
static bool idx_labels(const char *samples, char *labels, size_t room) {
    const char *images = strstr(samples, "images");
    if (!images || strlen(samples) >= room) return false;
    snprintf(labels, room, "%.*slabels%s", (int)(images - samples), samples, images + strlen("images"));
    char *dims = strstr(labels, "idx");
    if (dims && dims[3] >= '2' && dims[3] <= '4') dims[3] = '1';
    return true;
}

static bool idx_recognises(const char *path) {
    struct pair_paths paths;
    const char *dims = strstr(file_last_part(path), "idx");
    if (dims && dims[3] >= '1' && dims[3] <= '4') return true;
    return idx_folder(path, true, &paths) == ERR_NONE && idx_folder(path, false, &paths) == ERR_NONE;
}

static const struct pair_format format = {.header = idx_header, .folder = idx_folder, .labels = idx_labels};

const struct dataset_ops dataset_idx = {
    .section = {.name = "idx",
                .fields = pair_fields,
                .size = sizeof(struct pair_config),
                .shorthand = "train",
                .also = "mnist|fashion_mnist|fashionmnist|emnist|kmnist",
                .help = "MNIST's IDX files (.gz or not): images of bytes, and labels"},
    .kin = &format,
    .recognises = idx_recognises,
    PAIR_SET,
};
