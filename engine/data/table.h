/* Tables in text: CSV files. Columns part at commas, semicolons or tabs; a cell may be in quotes. */
#pragma once
#include "engine/data/table_row.h"

/* Reads a file whole. ERR_INPUT, ERR_DATA: the message names file, line and column; ERR_CONFIG: it has no such column,
 * or not those that a network knows. t needs table_close in any case. */
MUST_CHECK enum error table_read(const char *path, const struct table_ask *ask, struct pool *pool, struct table *t);
void table_close(struct table *t);
