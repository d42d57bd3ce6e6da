/* What a tcp store and its clients send each other: requests and replies, each one message.
 *
 *   hello    client -> server   without proof; so is the reply, which gives the server's nonce
 *   prove    client -> server   proves that both hold the secret; the reply gives the server's run
 *   others                      the operations of store_impl.h
 *
 * A message is a head, the bytes that it announces, and an HMAC-SHA256 of both under the key that
 * secret_key makes of the secret and the nonce. The nonce, new with every server, is in it, and so
 * are the client's own random number and the request's: a message that was recorded with another
 * server, or that answers another request, proves nothing. The client proves first: before that the
 * server gives no HMAC, by which secrets could be guessed. A hello, its reply and a refusal have
 * zeros in its place. Nothing is hidden: who can listen can read.
 *
 * Numbers are in the host's order. A host of the other order does not find the magic number. */
#pragma once
#include "engine/base/digest.h"
#include "transport/store/store_impl.h"

enum {
    WIRE_VERSION = 2,
    WIRE_NONCE = 16,
    WIRE_MAX = 2 * STORE_VALUE_MAX + 1024, /* bytes of a message */
    WIRE_STRANGER_MAX = 512,               /* of one who has proven nothing */
};
enum wire_kind { WIRE_HELLO, WIRE_PROVE, WIRE_REQUEST /* + enum store_op */ };
/* Of a reply: an enum answer_status, or why there is no answer. */
enum wire_status {
    WIRE_REFUSED = 64, /* the secret is another */
    WIRE_STALE,        /* the nonce is of another server */
    WIRE_OTHER,        /* the version is another */
    WIRE_BAD,          /* it makes no sense */
    WIRE_OLD,          /* a later change of this client was already made */
    WIRE_FOREIGN       /* there is no secret, and the client is another user's or another host's */
};

struct wire_start { /* the same in every version */
    uint32_t magic, version;
    uint32_t bytes; /* of the message, with this and the proof */
    uint32_t kind;  /* of a request; status of a reply */
};
struct wire_request {
    struct wire_start start;
    uint32_t has;     /* see wire.c */
    uint32_t wait_ms; /* get: how long the server may wait for the key; 0: not */
    uint8_t nonce[WIRE_NONCE];
    uint64_t client, number;
    int64_t delta;
    uint32_t key, value, expected; /* bytes of each, in this order; key and, in list, value with
                                      their 0 byte */
    uint32_t zero;
};
struct wire_reply {
    struct wire_start start;
    uint32_t has, value;
    uint8_t nonce[WIRE_NONCE];
    uint64_t client, number;
    int64_t sum;
};

/* Bytes of a message. */
size_t wire_request_size(const struct request *q);
size_t wire_reply_size(const struct store_answer *a);
/* Write it to 'to', which has room for it. The caller gives start.kind, nonce, client, number and
 * wait_ms in h; the rest is set. wire_seal adds the proof, last; key NULL: zeros. */
void wire_write_request(const struct wire_request *h, const struct request *q, uint8_t *to);
void wire_write_reply(const struct wire_reply *h, const struct store_answer *a, uint8_t *to);
void wire_seal(const char *key, uint8_t *message, size_t n);
bool wire_sealed(const char *key, const uint8_t *message, size_t n);

/* Whether a message that begins so can be one of this program, of any version, and how long it is
 * can be believed: at least a head, at most 'most'. */
bool wire_is_request(const struct wire_start *s, size_t most);
bool wire_is_reply(const struct wire_start *s);
/* Of a message that is whole. q and a borrow from it; q is only set for the operations of a store.
 * false: it makes no sense. */
bool wire_read_request(const uint8_t *message, size_t n, struct wire_request *h, struct request *q);
bool wire_read_reply(const uint8_t *message, size_t n, struct wire_reply *h, struct store_answer *a);
