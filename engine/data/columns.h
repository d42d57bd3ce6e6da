/* How the columns of a table become the values of a sample. It is found on the training file, kept in the
 * checkpoint, and used for every other file: text becomes one value for each category, of which one is 1, and a
 * missing number becomes what the training file says. */
#pragma once
#include "engine/base/memory.h"

enum { CATEGORIES_MOST = 1000, NAMED_CLASSES_MOST = 1 << 14 };
struct table_column {
    const char *name;      /* in the header; NULL: the file has none */
    int64_t place;         /* in the file, from 0 */
    int64_t count;         /* of categories; 0: the column holds numbers */
    const char **category; /* in the order of their bytes */
    bool filled;           /* whether a missing number becomes 'fill'; else it is an error */
    float fill;
};
struct columns {
    int64_t width;               /* of the training file, in columns */
    int64_t inputs;              /* columns that are read, without the target */
    int64_t values;              /* of a sample */
    struct table_column *column; /* (inputs + 1), in the order of the file; the last is the target, whose categories are
                              the classes' names */
    const char **name;           /* of a sample's values and of the target: "age", "city=Rome"; NULL: there are none */
};
/* Values of a sample that come from a column. */
static inline int64_t column_values(const struct table_column *c) {
    return c->count ? c->count : 1;
}
/* The category's number; -1: the column has no such category. */
int64_t column_category(const struct table_column *c, const char *cell);
/* Counts the values and names them, once the columns are known. ERR_DATA: they are too many. */
MUST_CHECK enum error columns_settle(struct columns *c, const char *path, struct pool *pool);
/* "column 3 'city'", "column 3" */
char *column_words(int64_t place, const char *name, char out[96]);

/* ---- categories while a file is read ---- */
struct category {
    char *text;
    int64_t number; /* in the order of appearance */
};
struct categories { /* sorted; zeroed: none yet */
    struct category *list;
    int64_t count, room;
};
void categories_free(struct categories *c);
/* The number of a text, by order of appearance; a new one where it is not known. ERR_DATA: there would be more than
 * 'most'; ERR_MEMORY. */
MUST_CHECK enum error categories_take(struct categories *c, const char *cell, int64_t most, int64_t *out);
/* Gives a column its categories; sorted[n]: the place among them of the one that appeared as number n. Both lie in the
 * pool. */
MUST_CHECK enum error categories_give(const struct categories *c, struct pool *pool, struct table_column *to,
                                      int64_t **sorted);
