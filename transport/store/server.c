/* The server of a store: what comes in by its door (door.h), and what it answers.
 *
 * A client that waits for a key or a meeting is parked: it sleeps, and whoever brings about what it waits for wakes it.
 * So waiting costs no thread, however many wait. */
#include "transport/store/server.h"
#include "engine/base/clock.h"
#include "engine/base/digest.h"
#include "engine/base/memory.h"
#include "transport/store/wire.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WAIT_MOST = 10000 }; /* ms; then the client asks again, which shows that it lives */
struct caller {             /* what the server has of a guest */
    struct wire_request h;  /* what q says lies in the message */
    struct request q;
    bool parked, greeted; /* these and the client are protected by the server's lock */
    uint64_t client;
};
struct server {
    struct door *door;
    char run[STORE_KEY_MAX + 1];
    uint64_t number;      /* a random one: of this server */
    pthread_mutex_t lock; /* of what follows, and taken before the door's own */
    struct store_table *table;
};

/* ---- under the lock ---- */

static bool caller_wake(void *key, struct guest *g) {
    const struct caller *c = guest_own(g);
    if (c->parked && !strcmp(c->q.key, key)) guest_wake(g);
    return false;
}

/* false: no memory; what the guest asked for it asks again. */
static bool reply_write(struct guest *g, const struct store_answer *a) {
    size_t n;
    if (guest_room(g, wire_reply_size(a)) != ERR_NONE) return false;
    wire_write_reply(a, guest_message(g, &n));
    return true;
}

/* ---- requests ---- */

static void reply_send(struct guest *g, bool written) {
    if (written)
        guest_reply(g, GUEST_STAYS);
    else
        guest_leave(g);
}

static void request_serve(struct server *s, struct guest *g, bool slept) {
    struct caller *c = guest_own(g);
    struct store_answer a = {0};
    bool written = false;
    pthread_mutex_lock(&s->lock);
    c->parked = false;
    if (c->q.op == STORE_MEET)
        attendance_take(s->table, &c->q, &a);
    else
        table_apply(s->table, &c->q, &a);
    if (a.changed) (void)door_guests(s->door, caller_wake, (char *)(uintptr_t)c->q.key);
    bool sleeps = a.status == ANSWER_NOT_THERE && c->q.wait && !slept;
    if (sleeps) {
        int64_t ms = c->h.wait_ms < WAIT_MOST ? c->h.wait_ms : WAIT_MOST;
        c->parked = true;
        guest_park(g, clock_ns() + ms * 1000000);
    } else {
        written = reply_write(g, &a);
    }
    pthread_mutex_unlock(&s->lock);
    if (!sleeps) reply_send(g, written);
}

static void greeting_answer(struct server *s, struct guest *g) {
    struct caller *c = guest_own(g);
    struct store_answer a = {.value = {s->run, strlen(s->run)}, .number = s->number};
    pthread_mutex_lock(&s->lock);
    c->greeted = true;
    c->client = c->h.client;
    pthread_mutex_unlock(&s->lock);
    reply_send(g, reply_write(g, &a));
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
    pthread_mutex_lock(&s->lock);
    bool sees = door_guests(s->door, is_of_client, &client);
    pthread_mutex_unlock(&s->lock);
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

static enum error server_start(struct server *s, const char *at, const char *key, int *port) {
    TRY(random_bytes(&s->number, sizeof s->number));
    TRY(table_create(&s->table));
    return door_open(&(struct door_params){.ops = &ops, .user = s, .at = at, .key = key, .ours = true}, &s->door, port);
}

enum error server_open(const char *at, const char *key, const char *run, struct server **out, int *port) {
    struct server *s = memory_new(sizeof *s);
    if (!s) return ERR_MEMORY;
    snprintf(s->run, sizeof s->run, "%s", run ? run : "");
    pthread_mutex_init(&s->lock, NULL);
    enum error err = server_start(s, at, key, port);
    if (err)
        server_close(s);
    else
        *out = s;
    return err;
}

void server_close(struct server *s) {
    if (!s) return;
    door_close(s->door);
    pthread_mutex_destroy(&s->lock);
    table_free(s->table);
    memory_free(s);
}
