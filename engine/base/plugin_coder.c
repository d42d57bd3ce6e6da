/* A compressor in Python, as the functions that one in C has. What encode leaves is what decode does not give back. Calls
 * of several threads take turns. Neither a crash nor a wrong answer can be undone: both end the process, as one of a
 * plug-in in C does. */
#include "engine/base/plugin_python.h"

#include "engine/base/log.h"

#include <string.h>
#include <unistd.h>

struct coder_packet { /* as plugin_python.py reads it */
    int64_t seed, step, first, rank, ranks;
    double value[ENGINE_PARAMETERS];
    int64_t count;
};
struct coder_call {
    const struct engine_packet *packet;
    float *x;
    int64_t n, bytes;
    void *out;
    const void *in;
};
enum { ROOM_MOST = 64, ROOM_LEAST = 4096 }; /* bytes a float, and in all */

static struct coder_packet coder_packet(const struct python *p, const struct coder_call *c) {
    const struct engine_packet *of = c->packet;
    struct coder_packet to = {(int64_t)of->seed, of->step, of->first, of->rank, of->size, {0}, c->n};
    for (int i = 0; p->parameter[i].name; i++) to.value[i] = of->parameter[i];
    return to;
}

/* ---- bytes ---- */

static int64_t *rooms_find(struct python_rooms *r, const struct coder_packet *packet) {
    int most = sizeof r->floats / sizeof *r->floats, i = 0;
    if (memcmp(r->value, packet->value, sizeof r->value) != 0 || r->n == most) r->n = 0;
    memcpy(r->value, packet->value, sizeof r->value);
    while (i < r->n && r->floats[i] != packet->count) i++;
    return &r->bytes[i];
}

static enum error coder_room(struct python *p, void *call) {
    struct coder_call *c = call;
    struct coder_packet packet = coder_packet(p, c);
    if (p->compressor.block) packet.count = p->compressor.block;
    size_t n, all = sizeof c->bytes;
    const struct question q = {PYTHON_ROOM, {{&packet, sizeof packet}}, all, all, ERR_BUG};
    struct python_rooms *r = &p->rooms;
    int64_t *bytes = rooms_find(r, &packet);
    if (bytes == &r->bytes[r->n]) {
        TRY(child_ask(p, &q, &n));
        memcpy(bytes, p->answer, sizeof *bytes);
        if (*bytes < 0 || *bytes > ROOM_MOST * packet.count + ROOM_LEAST)
            return FAIL(ERR_BUG, "plug-in '%s': %lld floats take %lld bytes", p->path, (long long)packet.count,
                        (long long)*bytes);
        r->floats[r->n++] = packet.count;
    }
    c->bytes = *bytes;
    return ERR_NONE;
}

/* ---- values ---- */

static enum error coder_ask_encode(struct python *p, void *call) {
    struct coder_call *c = call;
    TRY(coder_room(p, c));
    struct coder_packet packet = coder_packet(p, c);
    size_t n, floats = (size_t)c->n * sizeof *c->x, all = (size_t)c->bytes + floats;
    const struct question q = {PYTHON_ENCODE, {{&packet, sizeof packet}, {c->x, floats}}, all, all, ERR_BUG};
    TRY(child_ask(p, &q, &n));
    memcpy(c->out, p->answer, (size_t)c->bytes);
    for (int64_t i = 0; i < c->n; i++) {
        float sent;
        memcpy(&sent, p->answer + c->bytes + i * (int64_t)sizeof sent, sizeof sent);
        c->x[i] -= sent;
    }
    return ERR_NONE;
}

static enum error coder_ask_add(struct python *p, void *call) {
    struct coder_call *c = call;
    TRY(coder_room(p, c));
    struct coder_packet packet = coder_packet(p, c);
    size_t n, all = (size_t)c->n * sizeof *c->x;
    const struct question q = {
        PYTHON_DECODE, {{&packet, sizeof packet}, {(void *)(uintptr_t)c->in, (size_t)c->bytes}}, all, all, ERR_BUG};
    TRY(child_ask(p, &q, &n));
    for (int64_t i = 0; i < c->n; i++) {
        float sent;
        memcpy(&sent, p->answer + i * (int64_t)sizeof sent, sizeof sent);
        c->x[i] += sent;
    }
    return ERR_NONE;
}

void python_turn(enum error (*ask)(struct python *p, void *call), void *call) {
    const char *doing;
    const struct plugin *guest = plugin_guest(&doing);
    struct python *p = guest->python;
    plugin_leave();
    pthread_mutex_lock(&p->lock);
    enum error err = ask(p, call);
    pthread_mutex_unlock(&p->lock);
    if (err != ERR_NONE) {
        log_error("%s%s%s", error_message(), *error_hint() ? "\nhint: " : "", error_hint());
        child_end(p);
        _exit(error_exit_code(err));
    }
    plugin_enter(guest, doing);
}

int64_t coder_bytes(const struct engine_packet *p, int64_t n) {
    struct coder_call c = {.packet = p, .n = n};
    python_turn(coder_room, &c);
    return c.bytes;
}

void coder_encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    struct coder_call c = {.packet = p, .x = x, .n = n, .out = wire};
    python_turn(coder_ask_encode, &c);
}

void coder_add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    struct coder_call c = {.packet = p, .x = sum, .n = n, .in = wire};
    python_turn(coder_ask_add, &c);
}
