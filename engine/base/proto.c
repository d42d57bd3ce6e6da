#include "engine/base/proto.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT, FIXED64, BYTES, FIXED32 = 5, VARINT_MOST = 10 };

/* Makes room for n bytes more; where they go, or NULL. */
static unsigned char *proto_reserve(struct proto *p, size_t n) {
    size_t room = p->room ? p->room : 1 << 16;
    while (room < p->n + n) room *= 2;
    p->failed |= p->n + n > PROTO_MOST;
    unsigned char *more = p->failed || room == p->room ? p->data : realloc(p->data, room);
    p->failed |= !more;
    if (p->failed) return NULL;
    p->data = more, p->room = room;
    p->n += n;
    return p->data + p->n - n;
}

/* Seven bits a byte, the lowest first; the eighth says that more follow. */
static size_t proto_encode(uint64_t value, unsigned char out[VARINT_MOST]) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) out[n++] = (unsigned char)(value | 0x80);
    out[n++] = (unsigned char)value;
    return n;
}

void proto_raw(struct proto *p, const void *data, size_t n) {
    unsigned char *to = proto_reserve(p, n);
    if (to && n) memcpy(to, data, n);
}

static void proto_varint(struct proto *p, uint64_t value) {
    unsigned char bytes[VARINT_MOST];
    proto_raw(p, bytes, proto_encode(value, bytes));
}

static void proto_key(struct proto *p, int field, int kind) {
    proto_varint(p, (uint64_t)field << 3 | (uint64_t)kind);
}

void proto_int(struct proto *p, int field, int64_t value) {
    proto_key(p, field, VARINT);
    proto_varint(p, (uint64_t)value);
}

void proto_float(struct proto *p, int field, float value) {
    proto_key(p, field, FIXED32);
    proto_raw(p, &value, sizeof value); /* little end first, as everything that the engine writes */
}

void proto_double(struct proto *p, int field, double value) {
    proto_key(p, field, FIXED64);
    proto_raw(p, &value, sizeof value);
}

void proto_bytes(struct proto *p, int field, const void *data, size_t n) {
    proto_key(p, field, BYTES);
    proto_varint(p, n);
    proto_raw(p, data, n);
}

void proto_text(struct proto *p, int field, const char *text) {
    proto_bytes(p, field, text, strlen(text));
}

void proto_append(struct proto *p, const struct proto *fields) {
    p->failed |= fields->failed;
    if (fields->n) proto_raw(p, fields->data, fields->n);
}

size_t proto_open(struct proto *p, int field) {
    proto_key(p, field, BYTES);
    return p->n;
}

/* The length comes before what has been written: that moves up. */
void proto_close(struct proto *p, size_t opened) {
    unsigned char bytes[VARINT_MOST];
    size_t length = p->n - opened, n = proto_encode(length, bytes);
    if (p->failed || !proto_reserve(p, n)) return;
    memmove(p->data + opened + n, p->data + opened, length);
    memcpy(p->data + opened, bytes, n);
}
