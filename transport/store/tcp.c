/* tcp: the store of processes on several hosts. One of them serves it (tcp_server.c); all, that one too, are its
 * clients.
 *
 * A call takes a line to the server, which is a connection that nobody uses just now or a new one, sends its request,
 * and waits for the reply: as many calls as there are threads go on side by side. A new line proves the token before it
 * is used. When a line breaks the request is sent again over another one, until the deadline; the server knows a change
 * that it has already made by the request's number, for which it is enough that a client makes one change at a time.
 * Waiting for a key is asked for in turns of some seconds, so that a server does not wait for who is gone. */
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "transport/base/condition.h"
#include "transport/store/tcp_impl.h"

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

struct line {
    struct line *next; /* of those that are idle */
    nng_stream *stream;
    nng_aio *aio;
    struct timer timer;
    uint8_t *buffer; /* of the request, then of the reply */
    size_t room;
};
struct tcp {
    struct store store;
    struct server *server; /* NULL: another process serves */
    struct address address;
    char key[SECRET_SIZE];     /* at first the secret; this and the nonce are set before there */
    uint8_t nonce[WIRE_NONCE]; /* are calls; the server's */
    uint64_t client;
    _Atomic uint64_t number;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t freed;
    bool changing; /* a change is under way */
    struct line *idle;
    int nidle;
};

/* What a call asks of the server. */
struct asking {
    struct wire_request h;
    const struct request *q;
    int64_t deadline;
};

/* ---- bytes over a line ---- */

static int64_t ms_until(int64_t deadline) {
    int64_t ms = (deadline - clock_ns()) / 1000000 + 1;
    return ms < 1 ? 1 : ms < INT32_MAX ? ms : INT32_MAX;
}

/* The aio first: it is awaited, and what cancels it may use the stream to the last. */
static void line_close(struct line *l) {
    if (!l) return;
    if (l->aio) nng_aio_free(l->aio);
    if (l->stream) nng_stream_free(l->stream);
    free(l->buffer);
    free(l);
}

static bool line_room(struct line *l, size_t n) {
    uint8_t *more = n > l->room ? realloc(l->buffer, n) : l->buffer;
    if (!more) return false;
    l->buffer = more;
    if (n > l->room) l->room = n;
    return true;
}

/* Moves the buffer's bytes from 'done' to 'total'. 0 or nng's error. */
static int line_move(struct line *l, size_t done, size_t total, int64_t deadline,
                     void (*move)(nng_stream *, nng_aio *)) {
    while (done < total) {
        nng_iov iov = {.iov_buf = l->buffer + done, .iov_len = total - done};
        nng_aio_set_iov(l->aio, 1, &iov);
        timer_set(&l->timer, l->aio, deadline);
        move(l->stream, l->aio);
        nng_aio_wait(l->aio);
        timer_clear(&l->timer);
        int err = nng_aio_result(l->aio);
        if (err) return err;
        done += nng_aio_count(l->aio);
    }
    return 0;
}

/* A request of n bytes goes, a reply of *n comes. What is no reply is as if nothing came. */
static int line_exchange(struct line *l, size_t *n, int64_t deadline) {
    struct wire_start start;
    int err = line_move(l, 0, *n, deadline, nng_stream_send);
    if (!err && !line_room(l, sizeof start)) err = NNG_ENOMEM;
    if (!err) err = line_move(l, 0, sizeof start, deadline, nng_stream_recv);
    if (err) return err;
    memcpy(&start, l->buffer, sizeof start);
    if (!wire_is_reply(&start)) return NNG_EPROTO;
    if (!line_room(l, start.bytes)) return NNG_ENOMEM;
    *n = start.bytes;
    return line_move(l, sizeof start, start.bytes, deadline, nng_stream_recv);
}

/* ---- dialing ---- */

/* The aio is freed before the dialer, as above before the stream. */
static int dial_one(struct line *l, const struct endpoint *to, int64_t deadline) {
    char url[ENDPOINT_MAX + 8];
    nng_stream_dialer *dialer = NULL;
    nng_aio *aio = NULL;
    struct timer timer = {0};
    int64_t latest = clock_ns() + DIAL_MS * 1000000LL;
    snprintf(url, sizeof url, "tcp://%.*s", ENDPOINT_MAX, to->text);
    int err = nng_stream_dialer_alloc(&dialer, url);
    if (!err) err = nng_stream_dialer_set_bool(dialer, NNG_OPT_TCP_NODELAY, true);
    if (!err) err = nng_stream_dialer_set_bool(dialer, NNG_OPT_TCP_KEEPALIVE, true);
    if (!err) err = nng_aio_alloc(&aio, NULL, NULL);
    if (!err) {
        timer_set(&timer, aio, deadline < latest ? deadline : latest);
        nng_stream_dialer_dial(dialer, aio);
        nng_aio_wait(aio);
        timer_clear(&timer);
        err = nng_aio_result(aio);
        if (!err) l->stream = nng_aio_get_output(aio, 0);
    }
    if (aio) nng_aio_free(aio);
    if (dialer) nng_stream_dialer_free(dialer);
    return err;
}

/* All of the host's addresses, once. why: what the last one said that had its time. */
static bool dial_all(struct tcp *t, struct line *l, int64_t deadline, char why[128]) {
    struct endpoint at[ENDPOINTS_MAX];
    int count = 0, err = NNG_ECONNREFUSED;
    if (address_resolve(&t->address, at, &count) != ERR_NONE) snprintf(why, 128, "%s", error_message());
    for (int i = 0; i < count && err; i++) {
        err = dial_one(l, &at[i], deadline);
        bool cut = err == NNG_ETIMEDOUT && *why && clock_ns() >= deadline;
        if (err && !cut) snprintf(why, 128, "%s", nng_strerror(err));
    }
    return !err;
}

static enum error line_open(struct line **out) {
    struct line *l = calloc(1, sizeof *l);
    if (!l || nng_aio_alloc(&l->aio, NULL, NULL) != 0) {
        free(l);
        return FAIL(ERR_MEMORY, "no memory for a connection to a store");
    }
    *out = l;
    return ERR_NONE;
}

/* Again and again until the server is there. */
static enum error line_dial(struct tcp *t, struct line *l, int64_t deadline) {
    int64_t us = FIRST_PAUSE, began = clock_ns(), told = began;
    char why[128] = "", time[32];
    do {
        if (dial_all(t, l, deadline, why)) return ERR_NONE;
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

static enum error fail_status(const struct tcp *t, const struct wire_start *s) {
    if (s->version != WIRE_VERSION || s->kind == WIRE_OTHER)
        return FAIL(ERR_CONFIG,
                    "the store %s speaks version %u, this program version %d\nstart the same program everywhere",
                    t->store.url, s->version, WIRE_VERSION);
    if (s->kind == WIRE_REFUSED)
        return FAIL(ERR_CONFIG, "the store %s refused the token\nall members need the token of its server",
                    t->store.url);
    if (s->kind == WIRE_FOREIGN)
        return FAIL(ERR_CONFIG,
                    "the store %s is not this user's, on this host\nmembers of several users or hosts need a secret in "
                    "common: export ENGINE_TOKEN=$(openssl rand -hex 16)",
                    t->store.url);
    if (s->kind == WIRE_STALE)
        return FAIL(ERR_PEER, "the store %s was lost: another one is served there now", t->store.url);
    return FAIL(ERR_PEER, "the store %s did not understand (%u)", t->store.url, s->kind);
}

/* The reply must be to this very request, of this very server, and sealed with our key; a
 * hello's, by which the server becomes known, only the first. */
static enum error read_reply(const struct tcp *t, const struct wire_request *q, const uint8_t *body, size_t n,
                             struct wire_reply *h, struct store_answer *a) {
    struct wire_start start;
    memcpy(&start, body, sizeof start);
    if (start.version != WIRE_VERSION || start.kind >= WIRE_REFUSED) return fail_status(t, &start);
    bool right = wire_read_reply(body, n, h, a) && h->client == q->client && h->number == q->number &&
                 start.kind < ANSWER_STATUSES;
    if (q->start.kind != WIRE_HELLO)
        right = right && !memcmp(h->nonce, t->nonce, WIRE_NONCE) && wire_sealed(t->key, body, n);
    return right ? ERR_NONE : FAIL(ERR_PEER, "a reply that the store %s cannot have given", t->store.url);
}

/* *lost: the line broke, or was never good; a failure only where another line would not do. The
 * answer's value is the line's. */
static enum error line_ask(const struct tcp *t, struct line *l, const struct asking *ask, struct wire_reply *h,
                           struct store_answer *a, int *lost) {
    size_t n = wire_request_size(ask->q);
    if (!line_room(l, n)) return FAIL(ERR_MEMORY, "no memory for a message of %zu bytes", n);
    wire_write_request(&ask->h, ask->q, l->buffer);
    wire_seal(ask->h.start.kind == WIRE_HELLO ? NULL : t->key, l->buffer, n);
    int64_t more = ask->h.wait_ms ? GRACE_MS * 1000000LL : 0;
    *lost = line_exchange(l, &n, ask->deadline + more);
    return *lost ? ERR_NONE : read_reply(t, &ask->h, l->buffer, n, h, a);
}

static struct wire_request next_request(struct tcp *t, uint32_t kind) {
    struct wire_request h = {.start.kind = kind, .client = t->client};
    h.number = atomic_fetch_add(&t->number, 1) + 1;
    memcpy(h.nonce, t->nonce, sizeof h.nonce);
    return h;
}

/* A question without a key: hello or prove. */
static enum error line_greet(struct tcp *t, struct line *l, uint32_t kind, int64_t deadline, struct wire_reply *h,
                             struct store_answer *a, int *lost) {
    const struct request none = {.op = STORE_GET, .key = ""};
    struct asking ask = {next_request(t, kind), &none, deadline};
    return line_ask(t, l, &ask, h, a, lost);
}

/* ---- lines ---- */

static struct line *take_idle(struct tcp *t) {
    pthread_mutex_lock(&t->lock);
    struct line *l = t->idle;
    if (l) {
        t->idle = l->next;
        t->nidle--;
    }
    pthread_mutex_unlock(&t->lock);
    return l;
}

static void give_back(struct tcp *t, struct line *l) {
    pthread_mutex_lock(&t->lock);
    bool keep = t->nidle < LINES_IDLE;
    if (keep) {
        l->next = t->idle;
        t->idle = l;
        t->nidle++;
    }
    pthread_mutex_unlock(&t->lock);
    if (!keep) line_close(l);
}

/* Without a secret, only to a server of this user. It has answered, so it has taken the connection. */
static enum error check_server(const struct tcp *t, const struct line *l) {
    struct wire_start foreign = {.version = WIRE_VERSION, .kind = WIRE_FOREIGN};
    return *t->key || remote_is_ours(l->stream) ? ERR_NONE : fail_status(t, &foreign);
}

/* A line that is proven; *lost: it broke at once. */
static enum error line_take(struct tcp *t, int64_t deadline, struct line **out, int *lost) {
    struct wire_reply h;
    struct store_answer a;
    *lost = 0;
    *out = take_idle(t);
    if (*out) return ERR_NONE;
    TRY(line_open(out));
    enum error err = line_dial(t, *out, deadline);
    if (!err) err = line_greet(t, *out, WIRE_PROVE, deadline, &h, &a, lost);
    return err || *lost ? err : check_server(t, *out);
}

static enum error fail_lost(const struct tcp *t, const struct asking *ask, int lost) {
    return FAIL(ERR_TIMEOUT, "the store %s did not answer in time (the key '%s'): %s", t->store.url, ask->q->key,
                nng_strerror(lost));
}

static enum error ask_server(struct tcp *t, const struct asking *ask, struct pool *pool, struct store_answer *a) {
    struct wire_reply h;
    int64_t us = FIRST_PAUSE;
    int lost;
    do {
        struct line *l = NULL;
        enum error err = line_take(t, ask->deadline, &l, &lost);
        if (!err && !lost) err = line_ask(t, l, ask, &h, a, &lost);
        if (!err && !lost) err = store_keep(pool, &a->value);
        if (err || lost)
            line_close(l);
        else
            give_back(t, l);
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

/* Make the server's acquaintance, and prove the secret. *lost as above. */
static enum error meet(struct tcp *t, const struct store_params *p, struct line *l, int64_t deadline, int *lost) {
    struct wire_reply h;
    struct store_answer a;
    char run[STORE_KEY_MAX + 1];
    TRY(line_dial(t, l, deadline));
    TRY(line_greet(t, l, WIRE_HELLO, deadline, &h, &a, lost));
    if (*lost) return ERR_NONE;
    TRY(check_server(t, l));
    memcpy(t->nonce, h.nonce, sizeof t->nonce);
    secret_key(p->token ? p->token : "", t->nonce, sizeof t->nonce, t->key);
    TRY(line_greet(t, l, WIRE_PROVE, deadline, &h, &a, lost));
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
        struct line *l = NULL;
        TRY(line_open(&l));
        enum error err = meet(t, p, l, deadline, &lost);
        if (err || lost)
            line_close(l);
        else
            give_back(t, l);
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
    TRY(server_open(p, at, &t->server, &t->address.port));
    bool six = strchr(t->address.host, ':') != NULL;
    TRY(store_name(&t->store, six ? "tcp://[%s]:%d" : "tcp://%s:%d", t->address.host, t->address.port));
    if (at->any) snprintf(t->address.host, sizeof t->address.host, *at->text == '[' ? "::1" : "127.0.0.1");
    return ERR_NONE;
}

static enum error tcp_start(struct tcp *t, const struct store_params *p, const char *where, int64_t deadline) {
    snprintf(t->key, sizeof t->key, "%s", p->token ? p->token : "");
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
    for (struct line *l = take_idle(t); l; l = take_idle(t)) line_close(l);
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
