/* A data set: numbered samples that can be read in any order by any thread. One reader a file in
 * sets/, listed in sets.def. */
#pragma once
#include "engine/config/schema.h"
#include "engine/device/ops.h"

enum { SAMPLE_U8, SAMPLE_F32, SAMPLE_TOKENS /* int32_t; the network sees them as whole floats */ };
extern const char *const sample_types[]; /* "bytes", "floats", "tokens" */
enum { SPLIT_END = -1 };
struct columns;
struct dataset;
struct unreadable;
struct visit;
struct dataset_ops;
struct origin { /* sample i of a set is sample index[i] (NULL: first + i) of the 'of' in its file; of 0: it has all */
    int64_t of, first, *index;
};
struct dataset_ask { /* which part of a set is to be opened */
    const struct dataset_ops *ops;
    const void *config; /* the set's own keys */
    bool train;         /* the training part, else the validation part */
    bool values;        /* the loss is of values (mse): targets that may be either are values, not classes */
    uint64_t seed;      /* of generated samples */
    int64_t split;      /* from which held-out samples are drawn (part.h), or SPLIT_END: the file's end */
    int64_t limit;      /* at most this many training samples; 0: all. A set that cannot draw them opens all */
    /* What a network was trained on, whose classes, targets and vocabulary the part then has; a validation part that has
     * files of its own then needs no training files. NULL: the training files say what it needs. */
    const struct dataset *like;
    struct origin *origin; /* where part_draw leaves that of the training part; NULL: nobody asks for it */
};
struct dataset_ops {
    struct config_section section; /* the name in YAML ("digits", "idx", ...) and the set's own keys */
    const void *kin; /* of sets that share their functions, what is this one's: struct pair_format, struct drawn_kind */
    /* Whether a path looks like this kind ('data: PATH'); NULL for generated sets. */
    bool (*recognises)(const char *path);
    /* Opens the part. Everything from outside is checked before anything is allocated by it. Both parts have the same
     * shape, type, classes and targets. ERR_INPUT: no such file; ERR_DATA: not what it should be. */
    enum error (*open)(const struct dataset_ask *ask, struct dataset **out);
    /* Sample i in [0, size): its raw values (of sample_bytes) and its classes or target. Thread-safe,
     * deterministic, and once warm allocates nothing (a library that decodes may). Tokens are in [0, classes). */
    enum error (*read)(struct dataset *d, int64_t i, void *x, int32_t *label, float *target);
    void (*close)(struct dataset *d);
    /* Reads the part of a picture that the visit draws; only for sets whose pictures are larger than their samples,
     * else NULL. */
    enum error (*read_part)(struct dataset *d, int64_t i, const struct visit *v, void *x, int32_t *label,
                            float *target);
    /* Of sets of text, NULL of others. decode: the bytes that a token of [0, classes) stands for
     * (they may be a part of a character); gives how many. encode: a text's tokens, of which there
     * are at most n; ERR_DATA names a character that the set does not have. */
    int (*decode)(const struct dataset *d, int32_t token, char out[8]);
    enum error (*encode)(const struct dataset *d, const char *text, size_t n, int32_t *tokens, int64_t *count);
    /* Opens a file of samples that have no labels, for a network that was trained on 'like': of its
     * shape and type. NULL: the set has no such files. ERR_DATA: they are not like that. */
    enum error (*samples)(const struct dataset_ops *ops, const char *path, const struct dataset *like,
                          struct dataset **out);
    /* The class of sample i, known without reading the sample; NULL: it is not. */
    int32_t (*label)(const struct dataset *d, int64_t i);
    /* The name of class k; NULL: it has only its number. */
    const char *(*class_name)(const struct dataset *d, int64_t k);
    /* The name of column k of a sample; the last column is the target; NULL: it has no name. */
    const char *(*column_name)(const struct dataset *d, int64_t k);
};
struct dataset { /* embedded first in each reader's own struct */
    const struct dataset_ops *ops;
    /* Files of the folder that were left out as they cannot be read; NULL: none was tried. */
    const struct unreadable *unreadable;
    int64_t size;          /* at least 1 */
    struct shape shape;    /* of one sample */
    int type;              /* SAMPLE_U8, SAMPLE_F32, SAMPLE_TOKENS */
    int64_t classes;       /* 0: targets are vectors */
    int64_t labels;        /* classes that a sample has: 1, or one for each position of a sequence */
    int64_t targets;       /* floats of a target vector (classes == 0) */
    const int64_t *counts; /* training samples of each class, where somebody has asked for them; else NULL */
    const char *name;
    const char *note;              /* what its user ought to know; NULL: nothing */
    int64_t held;                  /* samples of the training files that are held out; 0: validation has its own */
    int64_t split;                 /* from which they were drawn; SPLIT_END: they are the last ones */
    bool plane;                    /* height and width make sense (crop, flip) */
    const struct columns *columns; /* of a table: how they become a sample; NULL: none are known */
    double part;                   /* of a picture file's shorter side, that a sample shows; 0: all */
    struct origin origin;          /* of the training part, where data.weights asks for it */
    const float *weights;          /* (size): how often the file says that each is to be drawn; NULL: it does not */
    int resample;                  /* enum resample: how a picture file becomes a sample */
    uint32_t files;                /* where samples are dear to read one by one, crc32c of the files' contents
                       (tokens) or names and sizes (pictures); 0: samples are to be looked at */
};
const struct dataset_ops *const *dataset_kinds(int *count);
/* The schema's: which set ("set: digits"), with its own keys; common are the keys of struct
 * data_config beside 'set'. */
extern const struct config_variants dataset_variants;
/* The kind of set for a path ('data: PATH'), as an index into the kinds; -1 if no kind accepts it. The path becomes
 * the kind's 'train'. */
int dataset_recognise(const char *path);

enum data_sampling { SAMPLING_ONCE, SAMPLING_BALANCED, SAMPLING_WEIGHTS };
enum data_order { DATA_ORDER_ENGINE, DATA_ORDER_FILE, DATA_ORDER_PYTORCH };
/* The config's 'data' section. As common section of dataset_variants all but 'set' is read. */
struct data_config {
    struct config_variant set; /* which, with its own keys */
    struct node *augment;      /* [flip, {crop: 4}]; NULL: none */
    struct node *normalize;    /* auto | off | {mean: [...], std: [...]}; NULL: auto */
    bool values;               /* the loss compares values; the caller sets it */
    bool normalize_target;     /* the loss sees values as deviations from their mean */
    bool fractions;            /* targets that are values are from 0 to 1: likewise */
    int64_t split;             /* from which held-out samples are drawn; SPLIT_END */
    int64_t limit;             /* use only this many training samples; 0: all */
    int order;                 /* enum data_order, of training samples */
    int sampling;              /* enum data_sampling, likewise */
    const char *weights;       /* a file of them, for SAMPLING_WEIGHTS; NULL: the set has them itself */
    int64_t workers;           /* loader threads; 0 auto */
};
MUST_CHECK enum error dataset_open(const struct data_config *c, bool train, uint64_t seed, struct dataset **out);
/* The same for a network that was trained on 'like' (NULL: none was). ERR_CONFIG names what differs. */
MUST_CHECK enum error dataset_open_like(const struct data_config *c, bool train, uint64_t seed,
                                        const struct dataset *like, struct dataset **out);
/* Checks that samples of d fit a network that was trained on 'like': the same shape, type, classes, vocabulary and
 * columns. ERR_CONFIG names the first difference. */
MUST_CHECK enum error dataset_check_like(const struct dataset *d, const struct dataset *like);
void dataset_close(struct dataset *d); /* NULL is fine */
/* The end of opening a set: gives it to *out, or closes it where err is an error. Returns err. */
MUST_CHECK enum error dataset_give(enum error err, struct dataset *d, struct dataset **out);
/* NULL: it has none but its number. */
const char *dataset_class_name(const struct dataset *d, int64_t k);
/* Counts the samples of each class, (classes). ERR_CONFIG: the set does not know them without reading all its samples. */
MUST_CHECK enum error dataset_counts(const struct dataset *d, int64_t *counts);
/* "held out by data.split 0", "the end of the file", or "" where validation has separate files. */
char *dataset_split_words(const struct dataset *d, char out[64]);
/* Warns of the notes of both parts, and of classes that one of them lacks; either may be NULL. */
void dataset_tell(const struct dataset *train, const struct dataset *val);
const char *dataset_column_name(const struct dataset *d, int64_t k);
/* Whether the name of a file or folder equals a name in a checkpoint, where bytes that are not UTF-8 have become
 * U+FFFD. */
bool dataset_same_name(const char *name, const char *known);
/* Samples without labels: a picture file (for sets of square colour pictures of bytes), or 'samples'
 * of the kind that recognises the path. */
MUST_CHECK enum error dataset_samples(const char *path, const struct dataset *like, struct dataset **out);

/* Bytes of one sample's raw values. */
size_t dataset_sample_bytes(const struct dataset *d);
/* The set's decode and encode. Without text decode gives 0, encode ERR_CONFIG. */
int dataset_decode(const struct dataset *d, int32_t token, char out[8]);
MUST_CHECK enum error dataset_encode(const struct dataset *d, const char *text, size_t n, int32_t *tokens,
                                     int64_t *count);
