#include "tests/harness/events.h"

#include <math.h>
#include <string.h>

/* ---- bytes ---- */
struct reader {
    const uint8_t *p, *end;
    const char *wrong; /* the first thing that is; nothing is read after it */
};

static void object(struct reader *r, const char *why) {
    if (!r->wrong) r->wrong = why;
    r->p = r->end;
}

static uint64_t read_fixed(struct reader *r, int n) {
    uint64_t v = 0;
    if (r->end - r->p < n) return object(r, "cut"), 0;
    for (int i = 0; i < n; i++) v |= (uint64_t)*r->p++ << 8 * i;
    return v;
}

static uint64_t read_varint(struct reader *r) {
    uint64_t v = 0;
    for (int i = 0; i < 10; i++) {
        if (r->p == r->end) return object(r, "a cut number"), 0;
        uint8_t byte = *r->p++;
        v |= (uint64_t)(byte & 127) << 7 * i;
        if (byte < 128) {
            if (byte == 0 && i > 0) object(r, "a number longer than it needs to be");
            return v;
        }
    }
    return object(r, "a number of more than 64 bits"), 0;
}

static struct reader read_inside(struct reader *r) {
    uint64_t n = read_varint(r);
    if (n > (uint64_t)(r->end - r->p)) object(r, "a length beyond its message"), n = 0;
    struct reader in = {r->p, r->p + n, r->wrong};
    r->p += n;
    return in;
}

/* Goes on outside of what has been read to its end. */
static void leave(struct reader *r, const struct reader *in) {
    if (in->wrong) object(r, in->wrong);
}

/* The next field's number, with the wire type that it has to have; each but a repeated one once. */
static int read_key(struct reader *r, const char *wires, uint32_t *seen, int repeated) {
    if (r->p == r->end) return 0;
    uint64_t key = read_varint(r), field = key >> 3;
    if (r->wrong) return 0;
    if (field == 0 || field >= strlen(wires) || wires[field] != (char)('0' + (key & 7)))
        return object(r, "a field that is not known, or not of this type"), 0;
    if ((*seen >> field & 1) && (int)field != repeated) return object(r, "a field twice"), 0;
    *seen |= 1u << field;
    return (int)field;
}

static void read_word(struct reader *r, char out[EVENT_WORD]) {
    struct reader in = read_inside(r);
    size_t n = (size_t)(in.end - in.p);
    if (n == 0 || n >= EVENT_WORD) return object(r, "a word of no or too many letters");
    for (size_t i = 0; i < n; i++)
        if (in.p[i] < 33 || in.p[i] > 126) return object(r, "a word of other things than letters");
    memcpy(out, in.p, n);
    out[n] = '\0';
}

/* ---- messages: the wire type of each field by its number, '-' where there is none ---- */
static void read_one(struct reader *r, const char *wires, int field, uint64_t expected) {
    struct reader in = read_inside(r);
    uint32_t seen = 0;
    if (read_key(&in, wires, &seen, 0) != field || read_varint(&in) != expected || in.p != in.end)
        object(&in, "not the one number that is expected");
    leave(r, &in);
}

static void read_metadata(struct reader *r) {
    struct reader in = read_inside(r);
    uint32_t seen = 0;
    char name[EVENT_WORD] = "";
    for (int field; (field = read_key(&in, "-2--0", &seen, 0));) {
        if (field == 4 && read_varint(&in) != 2) object(&in, "not of the class of tensors");
        if (field != 1) continue;
        struct reader plugin = read_inside(&in);
        uint32_t once = 0;
        while (read_key(&plugin, "-2", &once, 0)) read_word(&plugin, name);
        leave(&in, &plugin);
    }
    if (strcmp(name, "text") != 0) object(&in, "a plugin that is not known");
    leave(r, &in);
}

/* One text, as a string without dimensions. */
static void read_tensor(struct reader *r, struct event_value *out) {
    struct reader in = read_inside(r);
    uint32_t seen = 0;
    for (int field; (field = read_key(&in, "-02-----2", &seen, 0));) {
        if (field == 1 && read_varint(&in) != 7) object(&in, "a tensor that is no text");
        if (field == 2) {
            struct reader shape = read_inside(&in);
            if (shape.p != shape.end) object(&in, "a tensor of some dimensions");
        }
        if (field == 8) {
            struct reader text = read_inside(&in);
            out->text = (const char *)text.p;
            out->ntext = (size_t)(text.end - text.p);
        }
    }
    if (seen != (1u << 1 | 1u << 2 | 1u << 8)) object(&in, "a tensor without type, shape or text");
    leave(r, &in);
}

static void read_value(struct reader *r, struct event_value *out) {
    struct reader in = read_inside(r);
    uint32_t seen = 0;
    memset(out, 0, sizeof *out);
    for (int field; (field = read_key(&in, "-25-----22", &seen, 0));) {
        if (field == 1) read_word(&in, out->tag);
        if (field == 2) {
            uint32_t bits = (uint32_t)read_fixed(&in, 4);
            memcpy(&out->number, &bits, sizeof bits);
        }
        if (field == 8) read_tensor(&in, out);
        if (field == 9) read_metadata(&in);
    }
    bool number = seen == (1u << 1 | 1u << 2), text = seen == (1u << 1 | 1u << 8 | 1u << 9);
    if (!number && !text) object(&in, "a value that is neither number nor text");
    leave(r, &in);
}

static void read_summary(struct reader *r, struct event *out) {
    struct reader in = read_inside(r);
    uint32_t seen = 0;
    while (read_key(&in, "-2", &seen, 1)) {
        if (out->count == EVENT_VALUES) return object(r, "too many values");
        struct event_value *v = &out->value[out->count];
        read_value(&in, v);
        if (event_find(out, v->tag)) object(&in, "a tag twice");
        out->count++;
    }
    leave(r, &in);
}

static void read_event(struct reader *r, struct event *out) {
    uint32_t seen = 0;
    for (int field; (field = read_key(r, "-102-2-2", &seen, 0));) {
        if (field == 1) {
            uint64_t bits = read_fixed(r, 8);
            memcpy(&out->wall, &bits, sizeof bits);
        }
        if (field == 2) out->step = (int64_t)read_varint(r);
        if (field == 3) read_word(r, out->version);
        if (field == 5) read_summary(r, out);
        if (field == 7) read_one(r, "-0", 1, 1), out->start = true;
    }
    uint32_t what = seen & ~6u;
    if ((seen & 6) != 6 || !isfinite(out->wall) || out->wall <= 0 || out->step < 0)
        object(r, "an event without time or step");
    if (what != 1u << 3 && what != 1u << 5 && what != 1u << 7) object(r, "an event of nothing, or of two things");
}

/* ---- records ---- */
static uint32_t masked_crc(const uint8_t *p, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

const char *event_read(const uint8_t *data, size_t n, size_t *at, struct event *out) {
    struct reader r = {data + *at, data + n, NULL};
    memset(out, 0, sizeof *out);
    if (*at == n) return NULL;
    const uint8_t *begin = r.p;
    uint64_t length = read_fixed(&r, 8);
    uint32_t crc = (uint32_t)read_fixed(&r, 4);
    if (r.wrong) return r.wrong;
    if (crc != masked_crc(begin, 8)) return "a length whose crc is wrong";
    if (length > (uint64_t)(r.end - r.p) || (uint64_t)(r.end - r.p) - length < 4) return "cut";
    struct reader event = {r.p, r.p + length, NULL};
    r.p += length;
    crc = (uint32_t)read_fixed(&r, 4);
    if (crc != masked_crc(event.p, (size_t)length)) return "an event whose crc is wrong";
    read_event(&event, out);
    if (!event.wrong) *at = (size_t)(r.p - data);
    return event.wrong;
}

const struct event_value *event_find(const struct event *e, const char *tag) {
    for (int i = 0; i < e->count; i++)
        if (!strcmp(e->value[i].tag, tag)) return &e->value[i];
    return NULL;
}
