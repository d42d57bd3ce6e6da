/* What is asked of a store, and the table of keys and values that answers: every operation is one request (server.c). The
 * table is not locked. */
#pragma once
#include "transport/store/store.h"

enum store_op { STORE_SET, STORE_GET, STORE_DELETE, STORE_LIST, STORE_MEET, STORE_OPS };

struct bytes {
    const void *at; /* NULL: there are none, which is not the same as an empty value */
    size_t n;
};
struct request {
    enum store_op op;
    bool wait;          /* get: until the key is there; meet: until all are */
    const char *key;    /* delete and list: the prefix; meet: the name of the meeting */
    struct bytes value; /* set: the value; meet: the member's words */
};
enum answer_status {
    ANSWER_OK,
    ANSWER_NOT_THERE, /* get that waits, meet */
    ANSWER_REFUSED,   /* meet */
    ANSWER_FULL,
    ANSWER_MEMORY,
    ANSWER_STATUSES
};
struct store_answer {
    enum answer_status status;
    bool changed;       /* those who wait for the key may find what they wait for; stays where the table is */
    uint64_t number;    /* of the server, to a greeting */
    struct bytes value; /* get: what the key holds; list: keys, each with its 0 byte; meet: as in store_meeting */
};
/* The valid form of a key, or if 'prefix' of the beginning of one. */
bool store_key_ok(const char *key, size_t n, bool prefix);

enum {
    TABLE_BYTES_MAX = 256 << 20, /* of all keys and values together */
    TABLE_PAGE = STORE_VALUE_MAX /* of an answer that is not a key's value, at most */
};
struct store_table;
MUST_CHECK enum error table_create(struct store_table **out);
void table_free(struct store_table *t);
/* Does what q says, a meeting (below) excepted, but never waits. The answer's value is the table's until the
 * next call. */
void table_apply(struct store_table *t, const struct request *q, struct store_answer *a);

/* ---- attendance.c: who has come to a meeting, as the table keeps it ---- */

/* Whether these bytes are a member's words (store_words and its texts). */
bool attendance_understands(struct bytes words);
/* A member comes, or asks again: ANSWER_OK, ANSWER_NOT_THERE or ANSWER_REFUSED, with a value as in store_meeting. The
 * words are such that it understands. */
void attendance_take(struct store_table *t, const struct request *q, struct store_answer *a);
/* What it is made of: */

/* at NULL: it is not there. */
struct bytes table_find(const struct store_table *t, const char *key);
enum answer_status table_put(struct store_table *t, const char *key, struct bytes value);
/* The first of the keys that begin so, and how many they are; they follow each other, sorted. */
int table_range(const struct store_table *t, const char *prefix, int *count);
const char *table_at(const struct store_table *t, int i, struct bytes *value);
/* Room of TABLE_PAGE bytes for an answer. */
char *table_page(struct store_table *t);
