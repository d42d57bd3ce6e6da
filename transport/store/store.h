/* A key-value store, in which ranks and nodes find each other before they have a group, on a server that one process runs
 * (server.h), over TCP: at an address that all know, or, on one host, at one that lies in a file (file.h).
 *
 * Every call has a deadline (ERR_TIMEOUT, which names the key that was awaited). A request whose reply is lost is sent
 * again, so that what it does may be done twice: a key is for one member to change. One thread at a time may call. */
#pragma once
#include "engine/base/memory.h"
#include <stdint.h>

enum {
    STORE_KEY_MAX = 255,       /* bytes of a key: printable, no space */
    STORE_VALUE_MAX = 2 << 20, /* bytes of a value, any: the list of 4,096 ranks fits */
    STORE_KEYS_MAX = 100000,   /* in one store: a store is no place for data */
};

struct store;
struct store_params {
    const char *url; /* file:///PATH | tcp://HOST:PORT (IPv6 in brackets) */
    /* This process serves the data to the others, on that address; port 0 takes a free one; of a file, which it writes, on
     * a free port of this host. Without it, the server is awaited until the deadline. */
    bool serve;
    const char *token; /* tcp: a secret (secret.h) that all must hold; "" or NULL: none, and then all must be
                   processes of one user on one host */
    const char *run;   /* of which run: a server of another run is refused; NULL: any */
    double timeout;    /* of opening, and of every call that is not given another */
};
MUST_CHECK enum error store_open(const struct store_params *p, struct store **out);
void store_close(struct store *s); /* who serves: calls of others fail from here on */
/* The key that a server's members have made of their secret; "" where there is none. */
const char *store_key(const struct store *s);
/* Whom the server in this process has turned away last, and why, for messages on those who have not
 * come: "10.0.0.2:41234, which has another token"; false: nobody. */
bool store_turned_away(struct store *s, char out[128]);
/* The number by which the server knows this member, and whether a member of that number is connected now to the server
 * in this process. A process that ends is not. */
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
/* Deletes all keys that begin so. */
MUST_CHECK enum error store_delete(struct store *s, const char *prefix);
/* Keys that begin so, sorted. ERR_CREATE: more than STORE_VALUE_MAX bytes of them. */
MUST_CHECK enum error store_list(struct store *s, const char *prefix, struct pool *pool, char ***keys, int *count);

/* ---- meetings: all members are answered alike (table.h, launch/rendezvous.h) ---- */

/* The words of a member are this and then texts, each with its 0 byte: who it is, what the others are given of it, and
 * of each fact that must be equal on all the name and the value. */
struct store_words {
    uint64_t instance;     /* by which two of one index are told apart */
    uint32_t index, count; /* of the members */
    uint32_t number, zero; /* number: by which messages name it */
};
enum store_met { STORE_AWAITS, STORE_MET, STORE_REFUSED };
struct store_coming {
    const char *name;  /* of the meeting; its last word says what meets: "round-0.rank" */
    const void *words; /* the member's: n bytes */
    size_t n;
    double timeout; /* seconds to wait until all have come; 0: the store's */
};
struct store_meeting {
    enum store_met met;
    /* STORE_AWAITS: a bit of each member, which is set once it has come.
     * STORE_MET: of each member who it is and what it gives, as two texts with their 0 bytes.
     * STORE_REFUSED: why nobody meets; or, where all others have met, why this member does not. */
    const char *text;
    size_t n;
};
/* Comes to a meeting, or asks again with the same words. */
MUST_CHECK enum error store_meet(struct store *s, const struct store_coming *c, struct pool *pool,
                                 struct store_meeting *out);
