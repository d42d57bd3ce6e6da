/* 'engine init': what is seen of the data, and the configuration that is written for it. */
#pragma once
#include "cli/line/cli.h"
#include "engine/data/dataset.h"

struct init_facts {
    const char *data;     /* the path as it is written in the file, or a generated set's name */
    const char *val_file; /* likewise: a file to validate on; NULL: none was found */
    const char *set;
    bool generated;
    int64_t train, val; /* samples */
    char split[64];     /* how those to validate on were held out, or "" */
    int64_t unreadable; /* files */
    struct shape shape;
    int type; /* SAMPLE_U8, ... */
    bool plane, values, own_parts;
    int64_t classes, targets;
    const char *names;           /* of the classes, or "" */
    bool characters;             /* each of the names is one */
    const char *target;          /* of a table: the column that is predicted, as YAML; or NULL */
    bool signs;                  /* it holds -1 and 1 */
    int64_t side, size, context; /* pictures' median shorter side, what they are made; tokens of a sample; or 0 */
};
struct init_length {                        /* of the training that is written */
    int64_t steps, batch, evaluations, val; /* val: samples of an evaluation */
};
/* The text; path: the file that it is for. NULL: no memory. */
const char *init_text(const struct init_facts *f, const char *path, struct pool *pool, struct init_length *length);
/* Trains a few steps of the configuration 'path', and prints how long all of it takes. */
void init_measure(const struct init_length *length, const char *path, struct pool *pool);
