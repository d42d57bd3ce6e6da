/* The contract of a kind of store. Every operation is one request and one answer: a kind has one call, and the answer
 * is computed in one place (table.h). */
#pragma once
#include "engine/base/clock.h"
#include "transport/base/secret.h"
#include "transport/store/store.h"

#define STORE_REQUESTS(X) X(SET) X(GET) X(ADD) X(SWAP) X(DELETE) X(LIST)
enum store_op {
#define X(name) STORE_##name,
    STORE_REQUESTS(X)
#undef X
        STORE_OPS
};

struct bytes {
    const void *at; /* NULL: there are none, which is not the same as an empty value */
    size_t n;
};
struct request {
    enum store_op op;
    bool wait;             /* get: until the key is there */
    const char *key;       /* list: the prefix */
    struct bytes value;    /* set: the value; swap: the desired one; list: the last key seen */
    struct bytes expected; /* swap */
    int64_t delta;         /* add */
};
enum answer_status {
    ANSWER_OK,
    ANSWER_NOT_THERE, /* get that waits */
    ANSWER_NO_NUMBER, /* add: to what is none, or the sum is too large */
    ANSWER_FULL,
    ANSWER_MEMORY,
    ANSWER_STATUSES
};
struct store_answer {
    enum answer_status status;
    bool yes;           /* swap, delete: it was done; list: there are more keys */
    bool changed;       /* the key is not what it was; stays where the table is */
    int64_t sum;        /* add */
    struct bytes value; /* get, swap: what the key holds now; list: keys, each with its 0 byte */
};
/* Whether being asked twice is not the same as once. */
static inline bool request_mutates(const struct request *q) {
    return q->op != STORE_GET && q->op != STORE_LIST;
}

struct store {
    const struct store_ops *ops;
    char *url;       /* set by open, freed by the dispatcher */
    const char *key; /* set by open; NULL: it has none */
    double timeout;
};
struct store_ops {
    const char *scheme; /* of the url: what stands before the ':' */
    /* where: the url after the ':'. Gives a store with its url; ops and timeout are set for it. */
    enum error (*open)(const struct store_params *p, const char *where, int64_t deadline, struct store **out);
    /* Asks and waits, until the deadline (clock_ns) at most: for an answer, or for the key (ANSWER_NOT_THERE when it
     * did not come). a->value is pool's; pool may be NULL where the operation gives no value. */
    enum error (*call)(struct store *s, const struct request *q, int64_t deadline, struct pool *pool,
                       struct store_answer *a);
    void (*close)(struct store *s);                      /* frees s, but not its url */
    bool (*turned_away)(struct store *s, char out[128]); /* NULL: it turns nobody away */
    /* NULL: it has no server that members are connected to. */
    uint64_t (*member)(const struct store *s);
    bool (*sees)(struct store *s, uint64_t member);
};

/* "tcp", "/path/file": as text of its own, which open gives the store as its url. */
MUST_CHECK enum error store_name(struct store *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The valid form of a key, or if 'prefix' of the beginning of one. */
bool store_key_ok(const char *key, size_t n, bool prefix);
/* A copy of what an answer borrows. */
MUST_CHECK enum error store_keep(struct pool *pool, struct bytes *value);

int64_t store_deadline(double seconds);
/* Sleeps some 'us' microseconds, never beyond the deadline, and doubles them up to 'most': the time
 * varies, so that those who collided once do not go on doing so. false: the deadline has passed. */
bool store_pause(int64_t *us, int64_t most, int64_t deadline);
