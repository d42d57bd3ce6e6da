/* What a store and its clients send each other, as messages of a door (door.h):
 *
 *   greeting   the first on a connection: who the client is; the reply gives the server's run, and its number
 *   others     the operations of table.h
 *
 * A message is a head and the bytes that it announces. */
#pragma once
#include "transport/door/door.h"
#include "transport/store/table.h"

enum { WIRE_MAX = STORE_VALUE_MAX + 1024 /* bytes of a message */ };
enum wire_kind { WIRE_GREETING = 64, WIRE_REQUEST /* + enum store_op */ };

struct wire_request {
    struct door_head head;
    uint64_t client;
    uint32_t wait_ms;    /* how long the server may wait for what is not there; 0: not */
    uint32_t key, value; /* bytes of each, in this order; key with its 0 byte */
    uint32_t zero;
};
struct wire_reply {
    struct door_head head;
    uint32_t there, value; /* there: 0 where there is no value, which is not the same as an empty one */
    uint64_t number;
};

/* Bytes of a message. */
size_t wire_request_size(const struct request *q);
size_t wire_reply_size(const struct store_answer *a);
/* Write it to 'to', which has room for it. The caller gives head.kind, client and wait_ms in h; the rest is set. */
void wire_write_request(const struct wire_request *h, const struct request *q, uint8_t *to);
void wire_write_reply(const struct store_answer *a, uint8_t *to);
/* Of a message that is whole. q and a borrow from it; q is only set for the operations of a store.
 * false: it makes no sense. */
bool wire_read_request(const uint8_t *message, size_t n, struct wire_request *h, struct request *q);
bool wire_read_reply(const uint8_t *message, size_t n, struct store_answer *a);
