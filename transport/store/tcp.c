/* tcp: the store of processes on several hosts. One of them serves it (server.c); all, that one too, are its clients.
 *
 * A call takes a line to the server, which is a connection that nobody uses just now or a new one, sends its request,
 * and waits for the reply: as many calls as there are threads go on side by side. A new line proves the secret, and
 * greets, before it is used. When a line breaks the request is sent again over another one, until the deadline; the
 * server knows a change that it has already made by the request's number, for which it is enough that a client makes
 * one change at a time. Waiting for a key is asked for in turns of some seconds, so that a server does not wait for
 * who is gone. */
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "transport/base/condition.h"
#include "transport/door/address.h"
#include "transport/door/visit.h"
#include "transport/store/server.h"
#include "transport/store/wire.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum {
    DIAL_MS = 2000, /* for one address: the next may do better */
    GRACE_MS = 500, /* for the server to say itself that a key did not come */
    LINES_IDLE = 8, /* kept open */
};
static const int64_t FIRST_PAUSE = 5000, LONGEST_PAUSE = 500000; /* us */

struct tcp {
    struct store store;
    struct server *server; /* NULL: another process serves */
    struct address address;
    char key[SECRET_SIZE];
    uint64_t client;
    _Atomic uint64_t number;
    _Atomic uint64_t server_number; /* 0: it has not answered yet */
    pthread_mutex_t lock;           /* of what follows */
    pthread_cond_t freed;
    bool changing;                  /* a change is under way */
    struct visit *idle[LINES_IDLE]; /* lines that nobody uses just now */
    int nidle;
};

/* What a call asks of the server. */
struct asking {
    struct wire_request h;
    const struct request *q;
    int64_t deadline;
};

static int64_t ms_until(int64_t deadline) {
    int64_t ms = (deadline - clock_ns()) / 1000000 + 1;
    return ms < 1 ? 1 : ms < INT32_MAX ? ms : INT32_MAX;
}

/* ---- dialing ---- */

/* All of the host's addresses, once. why: what the last one said that had its time. */
static int dial_all(struct tcp *t, struct visit *line, int64_t deadline, char why[128]) {
    struct endpoint at[ENDPOINTS_MAX];
    int count = 0, rv = NNG_ECONNREFUSED;
    if (address_resolve(&t->address, at, &count) != ERR_NONE) snprintf(why, 128, "%s", error_message());
    for (int i = 0; i < count && rv; i++) {
        char url[ENDPOINT_MAX + 8];
        int64_t latest = clock_ns() + DIAL_MS * 1000000LL;
        snprintf(url, sizeof url, "tcp://%.*s", ENDPOINT_MAX, at[i].text);
        rv = visit_connect(line, url, t->key, deadline < latest ? deadline : latest);
        bool cut = rv == NNG_ETIMEDOUT && *why && clock_ns() >= deadline;
        if (rv && !cut) snprintf(why, 128, "%s", nng_strerror(rv));
    }
    return rv;
}

static enum error fail_refused(const struct tcp *t) {
    return FAIL(ERR_CONFIG, "the store %s refused the token\nall members need the token of its server", t->store.url);
}

static enum error fail_foreign(const struct tcp *t) {
    return FAIL(ERR_CONFIG,
                "the store %s is not this user's, on this host\nmembers of several users or hosts need a secret in "
                "common: export ENGINE_TOKEN=$(openssl rand -hex 16)",
                t->store.url);
}

/* Again and again until the server is there. */
static enum error line_dial(struct tcp *t, struct visit *line, int64_t deadline) {
    int64_t us = FIRST_PAUSE, began = clock_ns(), told = began;
    char why[128] = "", time[32];
    do {
        int rv = dial_all(t, line, deadline, why);
        if (!rv) return ERR_NONE;
        if (rv == NNG_EPEERAUTH) return fail_refused(t);
        if (rv == NNG_EPROTO) return FAIL(ERR_PEER, "at %s there is no store of this program", t->store.url);
        if (clock_ns() - told < 5000000000) continue;
        told = clock_ns();
        log_info("waiting for the store %s (%s): %s", t->store.url, text_of_seconds(clock_seconds(told - began), time),
                 why);
    } while (store_pause(&us, LONGEST_PAUSE, deadline));
    return FAIL(ERR_TIMEOUT,
                "the store %s could not be reached within %s: %s\ndoes its server run, and is this its address?",
                t->store.url, text_of_seconds(clock_seconds(clock_ns() - began), time), why);
}

/* ---- a request and its reply ---- */

static enum error fail_status(const struct tcp *t, const struct door_head *head) {
    if (head->version != DOOR_VERSION || head->kind == DOOR_OTHER)
        return FAIL(ERR_CONFIG,
                    "the store %s speaks version %u, this program version %d\nstart the same program everywhere",
                    t->store.url, head->version, DOOR_VERSION);
    if (head->kind == DOOR_REFUSED) return fail_refused(t);
    if (head->kind == DOOR_FOREIGN) return fail_foreign(t);
    return FAIL(ERR_PEER, "the store %s did not understand (%u)", t->store.url, head->kind);
}

/* *lost: the line broke, or was never good; a failure only where another line would not do. The
 * answer's value is the line's. */
static enum error line_ask(const struct tcp *t, struct visit *line, const struct asking *ask, struct store_answer *a,
                           int *lost) {
    struct door_head head;
    struct wire_reply h;
    uint8_t *message = visit_room(line, wire_request_size(ask->q));
    if (!message) return FAIL(ERR_MEMORY, "no memory for a message of %zu bytes", wire_request_size(ask->q));
    wire_write_request(&ask->h, ask->q, message);
    int64_t more = ask->h.wait_ms ? GRACE_MS * 1000000LL : 0;
    *lost = visit_ask(line, WIRE_MAX, ask->deadline + more);
    if (*lost) return ERR_NONE;
    const uint8_t *reply = visit_reply(line, &head);
    if (head.version != DOOR_VERSION || head.kind >= DOOR_REFUSED) return fail_status(t, &head);
    bool right = wire_read_reply(reply, head.bytes, &h, a) && h.number == ask->h.number && head.kind < ANSWER_STATUSES;
    return right ? ERR_NONE : FAIL(ERR_PEER, "a reply that the store %s cannot have given", t->store.url);
}

static struct wire_request next_request(struct tcp *t, uint32_t kind) {
    struct wire_request h = {.head.kind = kind, .client = t->client};
    h.number = atomic_fetch_add(&t->number, 1) + 1;
    return h;
}

/* Without a secret, only a server of this user is greeted again: it has answered, so it has taken the connection. Another
 * server than before has none of what was stored. */
static enum error line_greet(struct tcp *t, struct visit *line, int64_t deadline, struct store_answer *a, int *lost) {
    const struct request none = {.op = STORE_GET, .key = ""};
    struct asking ask = {next_request(t, WIRE_GREETING), &none, deadline};
    uint64_t known = 0;
    TRY(line_ask(t, line, &ask, a, lost));
    if (*lost) return ERR_NONE;
    if (!*t->key && !visit_is_ours(line)) return fail_foreign(t);
    bool same =
        atomic_compare_exchange_strong(&t->server_number, &known, (uint64_t)a->sum) || known == (uint64_t)a->sum;
    return same ? ERR_NONE : FAIL(ERR_PEER, "the store %s was lost: another one is served there now", t->store.url);
}

/* ---- lines ---- */

static struct visit *take_idle(struct tcp *t) {
    pthread_mutex_lock(&t->lock);
    struct visit *line = t->nidle ? t->idle[--t->nidle] : NULL;
    pthread_mutex_unlock(&t->lock);
    return line;
}

static void give_back(struct tcp *t, struct visit *line) {
    pthread_mutex_lock(&t->lock);
    bool keep = t->nidle < LINES_IDLE;
    if (keep) t->idle[t->nidle++] = line;
    pthread_mutex_unlock(&t->lock);
    if (!keep) visit_free(line);
}

/* A line that is greeted; *lost: it broke at once. */
static enum error line_take(struct tcp *t, int64_t deadline, struct visit **out, int *lost) {
    struct store_answer a;
    *lost = 0;
    *out = take_idle(t);
    if (*out) return ERR_NONE;
    TRY(visit_create(out));
    enum error err = line_dial(t, *out, deadline);
    return err ? err : line_greet(t, *out, deadline, &a, lost);
}

static enum error fail_lost(const struct tcp *t, const struct asking *ask, int lost) {
    return FAIL(ERR_TIMEOUT, "the store %s did not answer in time (the key '%s'): %s", t->store.url, ask->q->key,
                nng_strerror(lost));
}

static enum error ask_server(struct tcp *t, const struct asking *ask, struct pool *pool, struct store_answer *a) {
    int64_t us = FIRST_PAUSE;
    int lost;
    do {
        struct visit *line = NULL;
        enum error err = line_take(t, ask->deadline, &line, &lost);
        if (!err && !lost) err = line_ask(t, line, ask, a, &lost);
        if (!err && !lost) err = store_keep(pool, &a->value);
        if (err || lost)
            visit_free(line);
        else
            give_back(t, line);
        if (err || !lost) return err;
    } while (lost != NNG_ETIMEDOUT && store_pause(&us, LONGEST_PAUSE, ask->deadline));
    return fail_lost(t, ask, lost);
}

/* ---- calls ---- */

static enum error begin_change(struct tcp *t, int64_t deadline, const char *key) {
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};
    int late = 0;
    pthread_mutex_lock(&t->lock);
    while (t->changing && !late) late = pthread_cond_timedwait(&t->freed, &t->lock, &until);
    bool free = !t->changing;
    if (free) t->changing = true;
    pthread_mutex_unlock(&t->lock);
    return free ? ERR_NONE
                : FAIL(ERR_TIMEOUT, "the store %s did not answer in time to the key before '%s'", t->store.url, key);
}

static void end_change(struct tcp *t) {
    pthread_mutex_lock(&t->lock);
    t->changing = false;
    pthread_cond_signal(&t->freed);
    pthread_mutex_unlock(&t->lock);
}

static enum error call_waiting(struct tcp *t, const struct request *q, int64_t deadline, struct pool *pool,
                               struct store_answer *a) {
    do {
        struct asking ask = {next_request(t, WIRE_REQUEST + STORE_GET), q, deadline};
        ask.h.wait_ms = (uint32_t)ms_until(deadline);
        TRY(ask_server(t, &ask, pool, a));
    } while (a->status == ANSWER_NOT_THERE && clock_ns() < deadline);
    return ERR_NONE;
}

static enum error tcp_call(struct store *s, const struct request *q, int64_t deadline, struct pool *pool,
                           struct store_answer *a) {
    struct tcp *t = (struct tcp *)s;
    bool changes = request_mutates(q);
    if (q->wait) return call_waiting(t, q, deadline, pool, a);
    if (changes) TRY(begin_change(t, deadline, q->key));
    struct asking ask = {next_request(t, (uint32_t)WIRE_REQUEST + (uint32_t)q->op), q, deadline};
    enum error err = ask_server(t, &ask, pool, a);
    if (changes) end_change(t);
    return err;
}

/* ---- opening ---- */

/* *lost as above. */
static enum error meet(struct tcp *t, const struct store_params *p, struct visit *line, int64_t deadline, int *lost) {
    struct store_answer a;
    char run[STORE_KEY_MAX + 1];
    TRY(line_dial(t, line, deadline));
    TRY(line_greet(t, line, deadline, &a, lost));
    if (*lost) return ERR_NONE;
    snprintf(run, sizeof run, "%.*s", (int)a.value.n, a.value.at ? (const char *)a.value.at : "");
    if (p->run && *run && strcmp(p->run, run) != 0)
        return FAIL(ERR_MISMATCH, "the store %s is of run '%s', not of '%s'", t->store.url, run, p->run);
    return ERR_NONE;
}

static enum error fail_meeting(const struct tcp *t, int lost) {
    if (lost == NNG_EPROTO) return FAIL(ERR_PEER, "at %s there is no store of this program", t->store.url);
    return FAIL(ERR_TIMEOUT, "the program at %s does not answer like a store: %s", t->store.url, nng_strerror(lost));
}

static enum error meet_until(struct tcp *t, const struct store_params *p, int64_t deadline) {
    int64_t us = FIRST_PAUSE;
    int lost = 0;
    do {
        struct visit *line = NULL;
        TRY(visit_create(&line));
        enum error err = meet(t, p, line, deadline, &lost);
        if (err || lost)
            visit_free(line);
        else
            give_back(t, line);
        if (err || !lost) return err;
    } while (lost != NNG_ETIMEDOUT && lost != NNG_EPROTO && store_pause(&us, LONGEST_PAUSE, deadline));
    return fail_meeting(t, lost);
}

/* Serves the store, and makes the address the one at which this process reaches it. */
static enum error serve(struct tcp *t, const struct store_params *p) {
    struct endpoint at[ENDPOINTS_MAX];
    int count;
    TRY(address_resolve(&t->address, at, &count));
    if (!*t->key && !at->loopback)
        return FAIL(ERR_CONFIG,
                    "a store without a token at %s, where others can reach it\nset a token, or serve it at 127.0.0.1",
                    at->text);
    TRY(server_open(at->text, t->key, p->run, &t->server, &t->address.port));
    bool six = strchr(t->address.host, ':') != NULL;
    TRY(store_name(&t->store, six ? "tcp://[%s]:%d" : "tcp://%s:%d", t->address.host, t->address.port));
    if (at->any) snprintf(t->address.host, sizeof t->address.host, *at->text == '[' ? "::1" : "127.0.0.1");
    return ERR_NONE;
}

static enum error tcp_start(struct tcp *t, const struct store_params *p, const char *where, int64_t deadline) {
    TRY(secret_key(p->token ? p->token : "", t->key));
    t->store.key = t->key;
    if (getrandom(&t->client, sizeof t->client, 0) != (ssize_t)sizeof t->client)
        return FAIL(ERR_CREATE, "no random numbers: %s", strerror(errno));
    TRY(address_parse(where, &t->address));
    if (p->serve) {
        TRY(serve(t, p));
    } else {
        if (!t->address.port) return FAIL(ERR_CONFIG, "'tcp:%s' names no port", where);
        TRY(store_name(&t->store, "tcp:%s", where));
    }
    return meet_until(t, p, deadline);
}

static void tcp_close(struct store *s) {
    struct tcp *t = (struct tcp *)s;
    for (struct visit *line = take_idle(t); line; line = take_idle(t)) visit_free(line);
    server_close(t->server);
    pthread_cond_destroy(&t->freed);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static enum error tcp_open(const struct store_params *p, const char *where, int64_t deadline, struct store **out) {
    struct tcp *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "cannot allocate a store");
    pthread_mutex_init(&t->lock, NULL);
    condition_init(&t->freed);
    enum error err = tcp_start(t, p, where, deadline);
    if (err) {
        free(t->store.url);
        tcp_close(&t->store);
        return err;
    }
    *out = &t->store;
    return ERR_NONE;
}

static bool tcp_turned_away(struct store *s, char out[128]) {
    return server_turned_away(((struct tcp *)s)->server, out);
}

static uint64_t tcp_member(const struct store *s) {
    return ((const struct tcp *)s)->client;
}

static bool tcp_sees(struct store *s, uint64_t member) {
    return server_sees(((struct tcp *)s)->server, member);
}

const struct store_ops store_tcp = {.scheme = "tcp",
                                    .open = tcp_open,
                                    .call = tcp_call,
                                    .close = tcp_close,
                                    .turned_away = tcp_turned_away,
                                    .member = tcp_member,
                                    .sees = tcp_sees};
