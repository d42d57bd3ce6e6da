/* What the server of a tcp store does with a request.
 *
 * Who waits for a key that is not there is parked: its aio sleeps, and who sets the key ends the
 * sleep. So waiting costs no thread, however many wait.
 *
 * A request may come twice, as a client sends it again when its connection was lost before the
 * reply. Of each client the number and the answer of its last change are kept: the same number
 * again is answered alike, a lower one is refused. A client makes one change at a time. */
#include "transport/store/tcp_impl.h"

#include <string.h>

enum { WAIT_MOST = 10000 }; /* ms; then the client asks again, which shows that it lives */

/* ---- under the lock ---- */

/* Who waits for the key looks again. */
static void wake(struct server *s, const char *key) {
    for (int i = 0; i < s->count; i++)
        if (s->guests[i]->parked && !strcmp(s->guests[i]->q.key, key)) nng_aio_cancel(s->guests[i]->aio);
}

/* The client's place; when all are taken, that of the one whose last change is longest ago. */
static struct client *find_client(struct server *s, uint64_t id) {
    struct client *oldest = s->clients;
    for (int i = 0; i < s->nclients; i++) {
        struct client *c = &s->clients[i];
        if (c->id == id) return c;
        if (c->used < oldest->used) oldest = c;
    }
    struct client *c = s->nclients < CLIENTS_MAX ? &s->clients[s->nclients++] : oldest;
    *c = (struct client){.id = id};
    return c;
}

static uint32_t change(struct guest *g, struct store_answer *a) {
    struct server *s = g->server;
    struct client *c = find_client(s, g->h.client);
    c->used = ++s->changes;
    if (g->h.number < c->number) return WIRE_OLD;
    if (g->h.number == c->number) {
        *a = c->last;
    } else {
        table_apply(s->table, &g->q, a);
        c->number = g->h.number;
        c->last = *a;
        if (a->changed) wake(s, g->q.key);
    }
    a->value = g->q.op == STORE_SWAP ? table_find(s->table, g->q.key) : (struct bytes){0};
    return a->status;
}

static uint32_t answer(struct guest *g, struct store_answer *a) {
    if (request_mutates(&g->q)) return change(g, a);
    table_apply(g->server->table, &g->q, a);
    return a->status;
}

static void park(struct guest *g) {
    g->parked = true;
    g->phase = PARKED;
    int64_t ms = g->h.wait_ms < WAIT_MOST ? g->h.wait_ms : WAIT_MOST;
    timer_sleep(&g->timer, g->aio, clock_ns() + ms * 1000000);
}

/* ---- replies ---- */

/* Where memory is short the guest has to go: what it asked for it asks again. */
static void reply(struct guest *g, uint32_t status, const struct store_answer *a) {
    struct wire_reply h = {.start.kind = status, .client = g->h.client, .number = g->h.number};
    memcpy(h.nonce, g->server->nonce, sizeof h.nonce);
    g->total = wire_reply_size(a);
    if (guest_room(g, g->total) != ERR_NONE) {
        g->total = 0;
        g->leaves = true;
        return;
    }
    wire_write_reply(&h, a, g->buffer);
}

static void seal(struct guest *g, const char *key) {
    if (g->total) wire_seal(key, g->buffer, g->total);
}

void request_refuse(struct guest *g, uint32_t status, const char *what) {
    struct store_answer none = {0};
    guest_warn(g, what);
    reply(g, status, &none);
    seal(g, NULL);
    g->leaves = true;
}

/* ---- requests ---- */

static bool serve(struct guest *g, bool slept) {
    struct server *s = g->server;
    struct store_answer a = {0};
    pthread_mutex_lock(&s->lock);
    g->parked = false;
    uint32_t status = answer(g, &a);
    bool sleeps = status == ANSWER_NOT_THERE && !slept;
    if (sleeps)
        park(g);
    else
        reply(g, status, &a);
    pthread_mutex_unlock(&s->lock);
    if (!sleeps) seal(g, s->key);
    return !sleeps;
}

/* Where there is no secret, who is of this user is let in. It waits for the nonce, so its socket is still its own. */
static void greet(struct guest *g) {
    struct store_answer a = {0};
    if (!*g->server->key && !remote_is_ours(g->stream)) {
        request_refuse(g, WIRE_FOREIGN, "which is another user's");
        return;
    }
    reply(g, ANSWER_OK, &a);
    seal(g, NULL);
}

static void tell_run(struct guest *g) {
    const char *run = g->server->run;
    struct store_answer a = {.value = {run, strlen(run)}};
    reply(g, ANSWER_OK, &a);
    seal(g, g->server->key);
}

bool request_take(struct guest *g, bool slept) {
    struct server *s = g->server;
    if (slept) return serve(g, true);
    if (!wire_read_request(g->buffer, g->total, &g->h, &g->q)) {
        request_refuse(g, WIRE_BAD, "whose request makes no sense");
    } else if (g->h.start.kind == WIRE_HELLO) {
        greet(g);
    } else if (memcmp(g->h.nonce, s->nonce, WIRE_NONCE)) {
        request_refuse(g, WIRE_STALE, "which asks another server");
    } else if (!wire_sealed(s->key, g->buffer, g->total)) {
        request_refuse(g, WIRE_REFUSED, "which has another token");
    } else {
        guest_proven(g);
        if (g->h.start.kind != WIRE_PROVE) return serve(g, false);
        tell_run(g);
    }
    return true;
}
