/* Sets that lie in two files, an array of samples and an array of labels, whatever the format of
 * the arrays: idx and npy. */
#pragma once
#include "engine/data/input.h"
#include "engine/data/part.h"
#include "engine/data/resident.h"

#include <limits.h>

enum element { /* little-endian */
               ELEMENT_U8,
               ELEMENT_I8,
               ELEMENT_I16,
               ELEMENT_U16,
               ELEMENT_I32,
               ELEMENT_U32,
               ELEMENT_I64,
               ELEMENT_U64,
               ELEMENT_F32,
               ELEMENT_F64
};
enum { ARRAY_DIMS = 4 };
struct array { /* the contents of a header */
    enum element type;
    int ndim; /* 1 to ARRAY_DIMS */
    int64_t dim[ARRAY_DIMS];
};
struct pair_config { /* the keys of such a set */
    const char *train, *labels, *val, *val_labels;
    int64_t classes;
};
extern const struct config_field pair_fields[];

struct pair_paths {
    char x[PATH_MAX], y[PATH_MAX];
};
struct pair_format {
    /* Reads a header; the bytes after it are the array's, row-major. ERR_DATA if the format is wrong or not
     * supported. */
    enum error (*header)(struct input *in, struct array *out);
    /* The files of a folder that holds a whole set. ERR_INPUT when they are not there; NULL:
     * folders mean nothing. */
    enum error (*folder)(const char *folder, bool train, struct pair_paths *out);
    /* Writes the name of the labels that go with samples' file name (no folders in it), of room
     * bytes; false: no idea. */
    bool (*labels)(const char *samples, char *labels, size_t room);
};
/* The slots of such a set, whose kin is the format. */
#define PAIR_SET                                                                                                       \
    .open = pair_open, .read = resident_read, .label = resident_label, .close = resident_close, .samples = pair_samples
MUST_CHECK enum error pair_open(const struct dataset_ask *ask, struct dataset **out);
MUST_CHECK enum error pair_samples(const struct dataset_ops *ops, const char *path, const struct dataset *like,
                                   struct dataset **out);
/* Sets path to the existing file: path itself, or with ".gz" added or removed. false: neither exists. */
bool pair_existing(char *path, size_t room);
MUST_CHECK enum error path_join(char out[PATH_MAX], const char *folder, const char *name);
