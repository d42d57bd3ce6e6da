/* A key-value store, in which ranks and nodes find each other before they have a group. The kinds are listed in
 * stores.def, one file each: in a file that all can lock (file), on a server that one process runs (tcp).
 *
 * Every call has a deadline (ERR_TIMEOUT, which names the key that was awaited) and is safe to send again: a request
 * that was answered is answered alike. Any thread may call, also while another waits. */
#pragma once
#include "engine/base/memory.h"
#include <stdint.h>

enum {
    STORE_KEY_MAX = 255,         /* bytes of a key: printable, no space */
    STORE_VALUE_MAX = 256 << 10, /* bytes of a value, any */
    STORE_KEYS_MAX = 100000,     /* in one store: a store is no place for data */
};

struct store;
struct store_params {
    const char *url; /* file:///PATH | tcp://HOST:PORT (IPv6 in brackets) */
    /* tcp: this process serves the data to the others, on that address; port 0 takes a free one.
     * Without it, the server is awaited until the deadline. */
    bool serve;
    const char *token; /* a secret (secret.h) that all must hold; "" or NULL: none, and then all must be
                   processes of one user on one host */
    const char *run;   /* of which run: a file that another run left behind is begun afresh, a server
                        of another run is refused; NULL: any */
    double timeout;    /* of opening, and of every call that is not given another */
};
MUST_CHECK enum error store_open(const struct store_params *p, struct store **out);
void store_close(struct store *s); /* who serves: calls of others fail from here on */
/* The key that a tcp store's members have made of its secret; "" where there is no secret. */
const char *store_key(const struct store *s);
/* Whom the server in this process has turned away last, and why, for messages on those who have not
 * come: "10.0.0.2:41234, which has another token"; false: nobody. */
bool store_turned_away(struct store *s, char out[128]);
/* The number by which a tcp store's server knows this member, and whether a member of that number is connected now to
 * the server in this process. A process that ends is not. */
uint64_t store_member(const struct store *s);
bool store_sees(struct store *s, uint64_t member);
/* How others reach it: the URL with the port that was taken. Lives as long as s. */
const char *store_url(const struct store *s);

MUST_CHECK enum error store_set(struct store *s, const char *key, const void *value, size_t n);
/* Waits until the key is there. The value is pool's, with a 0 byte after it. timeout 0: the store's. */
MUST_CHECK enum error store_get(struct store *s, const char *key, double timeout, struct pool *pool, char **value,
                                size_t *n);
/* Does not wait: *value is NULL when the key is not there. */
MUST_CHECK enum error store_find(struct store *s, const char *key, struct pool *pool, char **value, size_t *n);
/* Adds to a decimal number (0 where there is none) and gives the sum. ERR_DATA: no number. */
MUST_CHECK enum error store_add(struct store *s, const char *key, int64_t delta, int64_t *out);
/* Sets the key if its value is 'expected' (NULL: if the key does not exist). *swapped says whether it did; *now is
 * the value afterwards. */
MUST_CHECK enum error store_swap(struct store *s, const char *key, const char *expected, const char *desired,
                                 struct pool *pool, bool *swapped, char **now);
/* *found (may be NULL) says whether the key existed. */
MUST_CHECK enum error store_delete(struct store *s, const char *key, bool *found);
/* Keys that begin so, sorted. */
MUST_CHECK enum error store_list(struct store *s, const char *prefix, struct pool *pool, char ***keys, int *count);
