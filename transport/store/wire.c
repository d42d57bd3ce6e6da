/* Messages to bytes and back. Every length is compared with what there is before it is used. */
#include "transport/store/wire.h"

#include <string.h>

enum { HAS_VALUE = 1, HAS_EXPECTED = 2, HAS_YES = 4 };
_Static_assert(sizeof(struct wire_request) == 64, "requests have no holes");
_Static_assert(sizeof(struct wire_reply) == 40, "replies have no holes");

/* ---- writing ---- */

/* A list's last key seen goes with its 0 byte, so that the other side has it as text. */
static size_t value_bytes(const struct request *q) {
    return q->value.n + (q->op == STORE_LIST && q->value.at ? 1 : 0);
}

size_t wire_request_size(const struct request *q) {
    return sizeof(struct wire_request) + strlen(q->key) + 1 + value_bytes(q) + q->expected.n;
}

size_t wire_reply_size(const struct store_answer *a) {
    return sizeof(struct wire_reply) + a->value.n;
}

static uint8_t *put(uint8_t *to, const void *from, size_t n) {
    if (n) memcpy(to, from, n);
    return to + n;
}

void wire_write_request(const struct wire_request *h, const struct request *q, uint8_t *to) {
    struct wire_request w = *h;
    w.head = door_head(h->head.kind, wire_request_size(q));
    w.has = (q->value.at ? HAS_VALUE : 0) | (q->expected.at ? HAS_EXPECTED : 0);
    w.delta = q->delta;
    w.key = (uint32_t)strlen(q->key) + 1;
    w.value = (uint32_t)value_bytes(q);
    w.expected = (uint32_t)q->expected.n;
    w.zero = 0;
    to = put(to, &w, sizeof w);
    to = put(to, q->key, w.key);
    to = put(to, q->value.at, w.value);
    put(to, q->expected.at, w.expected);
}

void wire_write_reply(const struct wire_reply *h, const struct store_answer *a, uint8_t *to) {
    struct wire_reply w = *h;
    w.head = door_head(h->head.kind, wire_reply_size(a));
    w.has = (a->value.at ? HAS_VALUE : 0) | (a->yes ? HAS_YES : 0);
    w.sum = a->sum;
    w.value = (uint32_t)a->value.n;
    put(put(to, &w, sizeof w), a->value.at, w.value);
}

/* ---- reading ---- */

/* Text of n bytes, the last of which is its 0. */
static bool is_key(const char *text, size_t n, bool prefix) {
    return n > 0 && text[n - 1] == '\0' && store_key_ok(text, n - 1, prefix);
}

/* Bytes that are there only where the flag is; an empty value is not the same as none. */
static bool take(const uint8_t **from, uint32_t n, bool there, struct bytes *out) {
    *out = there ? (struct bytes){*from, n} : (struct bytes){0};
    *from += n;
    return (there || n == 0) && n <= STORE_VALUE_MAX;
}

static bool fits(const struct request *q) {
    switch (q->op) {
    case STORE_SET:
    case STORE_SWAP:
        return q->value.at != NULL;
    case STORE_LIST:
        return !q->value.at || is_key(q->value.at, q->value.n, false);
    default:
        return true;
    }
}

bool wire_read_request(const uint8_t *message, size_t n, struct wire_request *h, struct request *q) {
    const uint8_t *from = message + sizeof *h;
    if (n < sizeof *h) return false;
    memcpy(h, message, sizeof *h);
    uint32_t kind = h->head.kind;
    if ((uint64_t)h->key + h->value + h->expected != n - sizeof *h) return false;
    if (kind == WIRE_GREETING) return true;
    if (kind < WIRE_REQUEST || kind - WIRE_REQUEST >= STORE_OPS) return false;
    *q = (struct request){.op = (enum store_op)(kind - WIRE_REQUEST),
                          .wait = h->wait_ms > 0,
                          .key = (const char *)from,
                          .delta = h->delta};
    from += h->key;
    return is_key(q->key, h->key, q->op == STORE_LIST) && take(&from, h->value, h->has & HAS_VALUE, &q->value) &&
           take(&from, h->expected, h->has & HAS_EXPECTED, &q->expected) && fits(q);
}

bool wire_read_reply(const uint8_t *message, size_t n, struct wire_reply *h, struct store_answer *a) {
    const uint8_t *from = message + sizeof *h;
    if (n < sizeof *h) return false;
    memcpy(h, message, sizeof *h);
    if (h->value != n - sizeof *h) return false;
    *a = (struct store_answer){.status = (enum answer_status)h->head.kind, .yes = h->has & HAS_YES, .sum = h->sum};
    return take(&from, h->value, h->has & HAS_VALUE, &a->value);
}
