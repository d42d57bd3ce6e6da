/* The server of a store: what comes in by its door (door.h), and what it answers.
 *
 * A client that waits for a key or a meeting is parked: it sleeps, and whoever brings about what it waits for wakes it.
 * So waiting costs no thread, however many wait. */
#include "transport/store/server.h"
#include "engine/base/clock.h"
#include "engine/base/memory.h"
#include "transport/base/secret.h"
#include "transport/store/wire.h"

#include <stdio.h>
#include <string.h>

enum { WAIT_MOST = 10000 }; /* ms; then the client asks again, which shows that it lives */
struct caller {             /* what the server has of a guest */
    struct wire_request h;  /* what q says lies in the message */
    struct request q;
    bool parked, greeted;
    uint64_t client;
};
struct server { /* the door's lock protects it */
    struct door *door;
    char run[STORE_KEY_MAX + 1];
    uint64_t number; /* a random one: of this server */
    struct store_table *table;
};

/* ---- requests ---- */

static bool caller_wake(void *key, struct guest *g) {
    const struct caller *c = guest_own(g);
    if (c->parked && !strcmp(c->q.key, key)) guest_wake(g);
    return false;
}

/* Without memory the guest leaves; what it asked for it asks again. */
static void reply_send(struct guest *g, const struct store_answer *a) {
    uint8_t *reply = guest_room(g, wire_reply_size(a));
    if (!reply) {
        guest_leave(g);
        return;
    }
    wire_write_reply(a, reply);
    guest_reply(g, GUEST_STAYS);
}

static void request_serve(struct server *s, struct guest *g, bool slept) {
    struct caller *c = guest_own(g);
    struct store_answer a = {0};
    if (c->q.op == STORE_MEET)
        attendance_take(s->table, &c->q, &a);
    else
        table_apply(s->table, &c->q, &a);
    if (a.changed) (void)door_guests(s->door, caller_wake, (char *)(uintptr_t)c->q.key);
    c->parked = a.status == ANSWER_NOT_THERE && c->q.wait && !slept;
    if (c->parked)
        guest_park(g, clock_ns() + (c->h.wait_ms < WAIT_MOST ? c->h.wait_ms : WAIT_MOST) * 1000000LL);
    else
        reply_send(g, &a);
}

static void greeting_answer(const struct server *s, struct guest *g) {
    struct caller *c = guest_own(g);
    const struct store_answer a = {.value = {s->run, strlen(s->run)}, .number = s->number};
    c->greeted = true;
    c->client = c->h.client;
    reply_send(g, &a);
}

static void on_message(void *user, struct guest *g) {
    struct server *s = user;
    struct caller *c = guest_own(g);
    size_t n;
    const uint8_t *message = guest_message(g, &n);
    bool sense = wire_read_request(message, n, &c->h, &c->q);
    if (sense && c->h.head.kind == WIRE_GREETING)
        greeting_answer(s, g);
    else if (sense && c->greeted && c->h.client == c->client)
        request_serve(s, g, false);
    else
        guest_refuse(g, DOOR_BAD, "whose request makes no sense");
}

static void on_woken(void *user, struct guest *g) {
    request_serve(user, g, true);
}

/* ---- what is asked of it here ---- */

bool server_turned_away(struct server *s, char out[128]) {
    return s && door_turned_away(s->door, out);
}

static bool is_of_client(void *client, struct guest *g) {
    const struct caller *c = guest_own(g);
    return c->greeted && c->client == *(uint64_t *)client;
}

bool server_sees(struct server *s, uint64_t client) {
    if (!s) return false;
    door_lock(s->door);
    bool sees = door_guests(s->door, is_of_client, &client);
    door_unlock(s->door);
    return sees;
}

/* ---- opening and closing ---- */

static const struct door_ops ops = {
    .what = "store",
    .elsewhere = "\nis this host the one of rank 0 or node 0? only that one serves; on others set their own number "
                 "(--node-rank)",
    .most = WIRE_MAX,
    .guest_own = sizeof(struct caller),
    .message = on_message,
    .woken = on_woken,
};

enum error server_open(struct endpoint *at, const char *key, const char *run, struct server **out) {
    void *memory;
    TRY(memory_alloc(sizeof(struct server), &memory));
    struct server *s = memory;
    snprintf(s->run, sizeof s->run, "%s", run ? run : "");
    enum error err = random_bytes(&s->number, sizeof s->number);
    if (!err) err = table_create(&s->table);
    if (!err) err = door_open(&(struct door_params){.ops = &ops, .user = s, .key = key, .ours = true}, at, &s->door);
    if (err)
        server_close(s);
    else
        *out = s;
    return err;
}

void server_close(struct server *s) {
    if (!s) return;
    door_close(s->door);
    table_free(s->table);
    memory_free(s);
}
