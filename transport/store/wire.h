/* What a tcp store and its clients send each other, as messages of a door (door.h):
 *
 *   greeting   the first on a connection: who the client is; the reply gives the server's run, and its number as sum
 *   others     the operations of store_impl.h
 *
 * A message is a head and the bytes that it announces. */
#pragma once
#include "transport/door/door.h"
#include "transport/store/store_impl.h"

enum { WIRE_MAX = 2 * STORE_VALUE_MAX + 1024 /* bytes of a message */ };
enum wire_kind { WIRE_GREETING = 64, WIRE_REQUEST /* + enum store_op */ };
/* Of a reply, beside an enum answer_status: why there is no answer. */
enum { WIRE_OLD = 64 /* a later change of this client was already made */ };

struct wire_request {
    struct door_head head;
    uint32_t has;     /* see wire.c */
    uint32_t wait_ms; /* get: how long the server may wait for the key; 0: not */
    uint64_t client, number;
    int64_t delta;
    uint32_t key, value, expected; /* bytes of each, in this order; key and, in list, value with
                                      their 0 byte */
    uint32_t zero;
};
struct wire_reply {
    struct door_head head;
    uint32_t has, value;
    uint64_t number; /* of the request */
    int64_t sum;
};

/* Bytes of a message. */
size_t wire_request_size(const struct request *q);
size_t wire_reply_size(const struct store_answer *a);
/* Write it to 'to', which has room for it. The caller gives head.kind, client, number and wait_ms in h; the rest is
 * set. */
void wire_write_request(const struct wire_request *h, const struct request *q, uint8_t *to);
void wire_write_reply(const struct wire_reply *h, const struct store_answer *a, uint8_t *to);
/* Of a message that is whole. q and a borrow from it; q is only set for the operations of a store.
 * false: it makes no sense. */
bool wire_read_request(const uint8_t *message, size_t n, struct wire_request *h, struct request *q);
bool wire_read_reply(const uint8_t *message, size_t n, struct wire_reply *h, struct store_answer *a);
