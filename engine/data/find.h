/* What a path that is given for data means: a set's own file or folder, or, in a folder that is no set's, the files in
 * it that make one by their names. */
#pragma once
#include "engine/base/memory.h"

struct data_files {
    int kind;          /* of the kinds of sets */
    const char *train; /* the path, or the file in it to train on */
    const char *val;   /* the file in it to validate on; NULL: the set knows */
};
/* Finds the data of a folder: its only file of samples, or the one whose name has the word 'train'; with it the one of val, valid,
 * validation, dev or test. The paths lie in the pool. ERR_DATA says what is there, and what would do. */
MUST_CHECK enum error data_find(const char *path, struct pool *pool, struct data_files *out);
