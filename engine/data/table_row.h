/* Rows of a table: what its reader and its columns share. */
#pragma once
#include "engine/data/table.h"

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
