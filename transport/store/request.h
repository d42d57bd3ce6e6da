/* What is asked of a store, and its answer: every operation is one request, which the server answers (server.c). */
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
    int64_t from;       /* meet: the first byte of the roster that is wanted */
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
    int64_t total;      /* meet: of the roster */
    struct bytes value; /* get: what the key holds; list: keys, each with its 0 byte; meet: as in store_meeting */
};
/* The valid form of a key, or if 'prefix' of the beginning of one. */
bool store_key_ok(const char *key, size_t n, bool prefix);
