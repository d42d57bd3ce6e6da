/* The keys and values of a store, and what each operation does to them. Not locked. */
#pragma once
#include "transport/store/request.h"

enum {
    TABLE_BYTES_MAX = 256 << 20, /* of all keys and values together */
    TABLE_PAGE = STORE_VALUE_MAX /* of an answer that is not a key's value, at most */
};
struct store_table;
MUST_CHECK enum error table_create(struct store_table **out);
void table_free(struct store_table *t);
/* Does what q says, a meeting (attendance.h) excepted, but never waits. The answer's value is the table's until the
 * next call. */
void table_apply(struct store_table *t, const struct request *q, struct store_answer *a);

/* ---- for attendance.h ---- */

/* at NULL: it is not there. */
struct bytes table_find(const struct store_table *t, const char *key);
enum answer_status table_put(struct store_table *t, const char *key, struct bytes value);
/* The first of the keys that begin so, and how many they are; they follow each other, sorted. */
int table_range(const struct store_table *t, const char *prefix, int *count);
const char *table_at(const struct store_table *t, int i, struct bytes *value);
/* Room of TABLE_PAGE bytes for an answer. */
char *table_page(struct store_table *t);
