/* Messages of protocol buffers, written into memory: what ONNX files and TensorBoard's are made of. A field has a
 * number; its value is a whole number (varint), a float, a double, or bytes, which may be a message. */
#pragma once
#include "engine/base/error.h"

#include <stdint.h>

struct proto {
    unsigned char *data;
    size_t n, room;
    bool failed; /* no memory, or more than PROTO_MOST: nothing is written any more */
};
#define PROTO_MOST ((size_t)2000 << 20) /* readers take 2 GB */
void proto_int(struct proto *p, int field, int64_t value);
void proto_float(struct proto *p, int field, float value);
void proto_double(struct proto *p, int field, double value);
void proto_bytes(struct proto *p, int field, const void *data, size_t n);
void proto_text(struct proto *p, int field, const char *text);
void proto_raw(struct proto *p, const void *data, size_t n); /* more of the message that is open */
void proto_append(struct proto *p, const struct proto *fields);
/* A message: what is written until it is closed is in it. */
size_t proto_open(struct proto *p, int field);
void proto_close(struct proto *p, size_t opened);
