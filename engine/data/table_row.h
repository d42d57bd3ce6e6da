/* Rows of a table: what its cells mean, and what its columns hold. */
#pragma once
#include "engine/config/schema.h"
#include "engine/data/columns.h"

struct table_config {                                 /* what of a file is read: keys of the set */
    const char *target;                               /* a column's name or number from 1; NULL: the last */
    struct config_list columns, without, categorical; /* of const char *: names or numbers from 1 */
    const char *weight;                               /* a column of weights of samples; NULL: there is none */
    const char *missing;                              /* mean, error, or a number; NULL: mean */
    int header;                                       /* enum table_header */
};
enum table_header { HEADER_AUTO, HEADER_TRUE, HEADER_FALSE };
enum { TABLE_CLASSES_MOST = 1 << 20 };
struct table_ask {
    const struct table_config *config;
    const struct columns *known; /* of the training file; NULL: this is it */
    const char *knower;          /* who knows them, for messages: a path; NULL: a network */
    bool no_target;              /* samples alone: the target may be missing, and is not looked at */
    bool weights;                /* the target is the column of weights, and no other is read */
};
struct finding;                 /* of a column whose kind is not known before */
struct cell_notice {            /* which cells were read as something else: how many, and the first of them */
    int64_t count, line, place; /* how many; the first of them */
    char cell[40];
};
struct table {
    const char *path;
    struct table_ask ask;
    struct pool *pool;      /* of the columns */
    struct columns columns; /* the file's own where none are known, else those */
    char separator;
    int64_t width; /* of the first line that is not blank; 0: none yet */
    int64_t *slot; /* of each column: which of columns.column it is; -1: it is left out */
    char **names;  /* of a header, in one piece; NULL: there is none */
    int64_t line;  /* being read, from 1 */
    int64_t rows, room;
    float *values;   /* (rows, columns.inputs + 1): numbers, or numbers of categories, -1 for none */
    bool classes;    /* so far, the target is whole and not negative, or text */
    int64_t largest; /* of its values */
    struct cell_notice unknown, missing;
    struct finding *finding; /* (columns.inputs + 1); NULL: the columns are known */
};
/* The column of this name, or of this number from 1; -1: there is none. */
int64_t table_column(const struct table *t, const char *wanted);
enum error table_no_column(const struct table *t, const char *key, const char *wanted);
bool cell_number(const char *cell, double *out);
/* Begins to look for what the columns hold. */
MUST_CHECK enum error finding_create(struct table *t);
void finding_free(struct table *t);
/* Room for one more row, which starts with nothing missing. */
MUST_CHECK enum error row_begin(struct table *t, float **row);
/* Puts the cell of a column that is read into the row. */
MUST_CHECK enum error row_put(struct table *t, float *row, int64_t column, const char *cell);
/* Gives the target's categories their numbers, when all of a training file has been read. */
MUST_CHECK enum error table_finish_target(struct table *t);
/* Then, once the rows to train on are known: their means fill what is missing, and the other categories get their
 * numbers. */
struct part;
MUST_CHECK enum error table_finish(struct table *t, const struct part *train);
