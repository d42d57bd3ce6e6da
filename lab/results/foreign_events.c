/* TensorBoard's event files: records (length, its masked crc32c, data, its masked crc32c), each a protobuf message.
 * engine/tell/sinks/tensorboard.c has the same from the writing side. Read are
 *
 *   Event     1 wall_time double, 2 step, 5 summary
 *   Summary   1 value, each: 1 tag, 2 simple_value float, 8 tensor
 *   tensor    1 dtype (1: float), 4 tensor_content, 5 float_val
 *
 * The file may hold anything: every length is held against what is left. A last record that is cut short is what a
 * program leaves that has not closed its writer; it is left out. */
#include "lab/results/foreign_told.h"

#include "engine/base/digest.h"
#include "engine/base/file.h"

#include <math.h>
#include <string.h>

enum { EVENTS_MOST = 1 << 29 };
enum { EVENT_WALL = 1, EVENT_STEP = 2, EVENT_SUMMARY = 5, SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE = 2, VALUE_TENSOR = 8, TENSOR_CONTENT = 4, TENSOR_FLOATS = 5 };
enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

struct event_bytes {
    const uint8_t *at;
    size_t n;
};
struct field {
    int number, wire;
    uint64_t value;          /* of a varint, or the bits of a fixed one */
    struct event_bytes held; /* of the others */
};

static uint64_t event_fixed_read(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static bool bytes_take(struct event_bytes *b, size_t n, struct event_bytes *out) {
    if (n > b->n) return false;
    *out = (struct event_bytes){b->at, n};
    b->at += n, b->n -= n;
    return true;
}

static bool varint_read(struct event_bytes *b, uint64_t *out) {
    struct event_bytes one;
    *out = 0;
    for (unsigned shift = 0; shift < 64 && bytes_take(b, 1, &one); shift += 7) {
        *out |= (uint64_t)(*one.at & 127) << shift;
        if (!(*one.at & 128)) return true;
    }
    return false;
}

/* The next field of a message; false behind the last one, and with b->n left where it is none. */
static bool next_field(struct event_bytes *b, struct field *f) {
    struct event_bytes rest = *b;
    uint64_t key, n = 0;
    if (!rest.n || !varint_read(&rest, &key) || key >> 3 == 0 || key >> 3 > 1 << 28) return false;
    *f = (struct field){.number = (int)(key >> 3), .wire = (int)(key & 7)};
    bool good = f->wire == WIRE_VARINT ? varint_read(&rest, &f->value)
                : f->wire == WIRE_64   ? bytes_take(&rest, 8, &f->held)
                : f->wire == WIRE_32   ? bytes_take(&rest, 4, &f->held)
                : f->wire == WIRE_BYTES
                    ? varint_read(&rest, &n) && n <= rest.n && bytes_take(&rest, (size_t)n, &f->held)
                    : false;
    if (!good) return false;
    if (f->wire == WIRE_64 || f->wire == WIRE_32) f->value = event_fixed_read(f->held.at, f->held.n);
    *b = rest;
    return true;
}

static double event_real32(uint64_t bits) {
    uint32_t word = (uint32_t)bits;
    float v;
    memcpy(&v, &word, sizeof v);
    return (double)v;
}

static double event_real64(uint64_t bits) {
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* A tensor of one float; NaN: anything else. */
static double tensor_value(struct event_bytes b) {
    struct field f;
    double v = (double)NAN;
    while (next_field(&b, &f)) {
        bool floats = f.number == TENSOR_CONTENT || f.number == TENSOR_FLOATS;
        if (floats && (f.wire == WIRE_BYTES || f.wire == WIRE_32) && f.held.n == 4)
            v = event_real32(event_fixed_read(f.held.at, 4));
    }
    return v;
}

static bool value_take(struct event_bytes b, struct told_row *r) {
    struct field f;
    int field = -1;
    double v = (double)NAN;
    while (next_field(&b, &f)) {
        if (f.number == VALUE_TAG && f.wire == WIRE_BYTES) field = told_field_of((const char *)f.held.at, f.held.n);
        if (f.number == VALUE_SIMPLE && f.wire == WIRE_32) v = event_real32(f.value);
        if (f.number == VALUE_TENSOR && f.wire == WIRE_BYTES) v = tensor_value(f.held);
    }
    if (field >= 0) told_put(r, field, v);
    return b.n == 0;
}

static enum error take_event(struct event_bytes b, struct told *t) {
    struct field f;
    struct event_bytes summary = {0}, rest = b;
    struct told_row *r;
    double wall = (double)NAN;
    uint64_t step = 0;
    while (next_field(&rest, &f)) {
        if (f.number == EVENT_WALL && f.wire == WIRE_64) wall = event_real64(f.value);
        if (f.number == EVENT_STEP && f.wire == WIRE_VARINT) step = f.value;
        if (f.number == EVENT_SUMMARY && f.wire == WIRE_BYTES) summary = f.held;
    }
    if (rest.n) return FAIL(ERR_DATA, "an event that is none");
    if (!summary.n) return ERR_NONE;
    TRY(told_add(t, (double)step, &r));
    while (next_field(&summary, &f))
        if (f.number == SUMMARY_VALUE && f.wire == WIRE_BYTES && !value_take(f.held, r))
            return FAIL(ERR_DATA, "a value that is none");
    if (summary.n) return FAIL(ERR_DATA, "a summary that is none");
    bool any = false;
    for (int i = 0; i < TOLD_COUNT; i++) any |= !isnan(r->of[i]);
    if (any && isnan(r->of[TOLD_TIME])) r->of[TOLD_TIME] = wall;
    t->n -= !any; /* pictures, texts and names that are not ours */
    return ERR_NONE;
}

static bool event_seal_fits(struct event_bytes b, const uint8_t *seal) {
    uint32_t crc = crc32c(0, b.at, b.n);
    return (uint32_t)event_fixed_read(seal, 4) == (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static enum error read_records(struct event_bytes b, struct told *t) {
    for (size_t all = b.n; b.n >= 12;) {
        struct event_bytes length, seal, data;
        size_t at = all - b.n;
        (void)bytes_take(&b, 8, &length), (void)bytes_take(&b, 4, &seal);
        if (!event_seal_fits(length, seal.at)) return FAIL(ERR_DATA, "no record of an event at byte %zu", at);
        uint64_t n = event_fixed_read(length.at, 8);
        if (n > b.n || b.n - n < 4) return ERR_NONE;
        (void)bytes_take(&b, (size_t)n, &data), (void)bytes_take(&b, 4, &seal);
        if (!event_seal_fits(data, seal.at)) return FAIL(ERR_DATA, "the record at byte %zu is damaged", at);
        enum error err = take_event(data, t);
        if (err != ERR_NONE) return error_prefix(err, "the record at byte %zu: ", at);
    }
    return ERR_NONE;
}

enum error told_events(const char *path, struct told *t) {
    struct pool *pool;
    char *text;
    size_t n;
    TRY(pool_create(&pool));
    enum error err = file_read(path, EVENTS_MOST, pool, &text, &n);
    if (err == ERR_NONE) err = read_records((struct event_bytes){(const uint8_t *)text, n}, t);
    if (err != ERR_NONE) err = error_prefix(err, "%s: ", path);
    pool_free(pool);
    return err;
}
