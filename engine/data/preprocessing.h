/* The conversion of a user's file into a network's input, and of its output into words: everything that a network has
 * to know about its training data. A checkpoint holds it as one JSON object (docs/checkpoints.md lists its keys), so
 * the network can be used without the training data. */
#pragma once
#include "engine/base/json.h"
#include "engine/data/columns.h"
#include "engine/data/loader.h"
#include "engine/data/tokens.h"

struct preprocessing {
    struct token_set set; /* a data set without samples, which knows the shape, the classes' and
                             columns' names and the vocabulary; set.base is for its users */
    struct normalization norm;
    const char **class_names, **column_names; /* NULL: there are none */
    struct columns columns;                   /* of a table; set.base.columns points here where they are known */
    bool text;                                /* tokens stand for text */
};
/* Writes the object's text into the pool. *out is NULL, with a warning in the log, where it would be
 * larger than a reader takes. */
MUST_CHECK enum error preprocessing_text(const struct dataset *d, const struct normalization *n, struct pool *pool,
                                         const char **out);
/* Reads it; the text may be hostile. 'from' is named in messages. What *out points to is the
 * pool's, and set.base needs no closing. ERR_DATA. */
MUST_CHECK enum error preprocessing_parse(const char *text, const char *from, struct pool *pool,
                                          struct preprocessing **out);
