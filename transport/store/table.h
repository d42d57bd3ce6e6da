/* The keys and values of a store, and what each operation does to them. Not locked. */
#pragma once
#include "transport/store/store_impl.h"

enum {
    TABLE_BYTES_MAX = 256 << 20, /* of all keys and values together */
    TABLE_PAGE = STORE_VALUE_MAX /* of keys that one list gives, at most */
};
struct store_table;
MUST_CHECK enum error table_create(struct store_table **out);
void table_free(struct store_table *t);
void table_clear(struct store_table *t);
/* Does what q says, but never waits. The answer's value is the table's until the next call. */
void table_apply(struct store_table *t, const struct request *q, struct store_answer *a);
/* at NULL: it is not there. */
struct bytes table_find(const struct store_table *t, const char *key);
/* at NULL: deletes. */
enum answer_status table_put(struct store_table *t, const char *key, struct bytes value);
