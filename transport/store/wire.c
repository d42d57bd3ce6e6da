/* Messages to bytes and back. Every length is compared with what there is before it is used. */
#include "transport/store/wire.h"

#include <string.h>

_Static_assert(sizeof(struct wire_request) == 40, "requests have no holes");
_Static_assert(sizeof(struct wire_reply) == 32, "replies have no holes");

/* ---- writing ---- */

size_t wire_request_size(const struct request *q) {
    return sizeof(struct wire_request) + strlen(q->key) + 1 + q->value.n;
}

size_t wire_reply_size(const struct store_answer *a) {
    return sizeof(struct wire_reply) + a->value.n;
}

static uint8_t *wire_put(uint8_t *to, const void *from, size_t n) {
    if (n) memcpy(to, from, n);
    return to + n;
}

void wire_write_request(const struct wire_request *h, const struct request *q, uint8_t *to) {
    struct wire_request w = *h;
    w.head = door_head(h->head.kind, wire_request_size(q));
    w.key = (uint32_t)strlen(q->key) + 1;
    w.value = (uint32_t)q->value.n;
    w.zero = 0;
    to = wire_put(wire_put(to, &w, sizeof w), q->key, w.key);
    wire_put(to, q->value.at, w.value);
}

void wire_write_reply(const struct store_answer *a, uint8_t *to) {
    struct wire_reply w = {.head = door_head(a->status, wire_reply_size(a)),
                           .there = a->value.at != NULL,
                           .value = (uint32_t)a->value.n,
                           .number = a->number};
    wire_put(wire_put(to, &w, sizeof w), a->value.at, w.value);
}

/* ---- reading ---- */

/* Text of n bytes, the last of which is its 0. */
static bool is_key(const char *text, size_t n, bool prefix) {
    return n > 0 && text[n - 1] == '\0' && store_key_ok(text, n - 1, prefix);
}

bool wire_read_request(const uint8_t *message, size_t n, struct wire_request *h, struct request *q) {
    const uint8_t *key = message + sizeof *h;
    if (n < sizeof *h) return false;
    memcpy(h, message, sizeof *h);
    uint32_t kind = h->head.kind;
    if ((uint64_t)h->key + h->value != n - sizeof *h || h->value > STORE_VALUE_MAX) return false;
    if (kind == WIRE_GREETING) return true;
    if (kind < WIRE_REQUEST || kind - WIRE_REQUEST >= STORE_OPS) return false;
    *q = (struct request){.op = (enum store_op)(kind - WIRE_REQUEST),
                          .wait = h->wait_ms > 0,
                          .key = (const char *)key,
                          .value = {key + h->key, h->value}};
    return is_key(q->key, h->key, q->op == STORE_LIST || q->op == STORE_DELETE) &&
           (q->op != STORE_MEET || attendance_understands(q->value));
}

bool wire_read_reply(const uint8_t *message, size_t n, struct store_answer *a) {
    struct wire_reply h;
    if (n < sizeof h) return false;
    memcpy(&h, message, sizeof h);
    if (h.value != n - sizeof h || h.value > STORE_VALUE_MAX || (!h.there && h.value)) return false;
    *a = (struct store_answer){.status = (enum answer_status)h.head.kind, .number = h.number};
    if (h.there) a->value = (struct bytes){message + sizeof h, h.value};
    return h.head.kind < ANSWER_STATUSES;
}
