/* The port: accepts streams, hears their hello, and gives those that prove the token to the group that they are for.
 * It keeps those of a group that this rank has not opened yet: its neighbours' control streams, and those of lanes that
 * begin to open it, which are about 2 log2 n.
 *
 * All of it runs in nng's callbacks; nothing here waits. A guest is a stream whose
 * hello is not done. There is room for a bounded number: when it grows scarce, the guest that came
 * first is sent away, since an honest hello takes milliseconds. An honest dialer that meets a full
 * house tries again. */
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "transport/base/remote.h"
#include "transport/link/tcp_address.h"
#include "transport/link/tcp_impl.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { GUESTS = 96, GUESTS_SPARE = 16, KEPT = 256 };

enum phase { PHASE_HELLO, PHASE_CHALLENGE, PHASE_ANSWER, PHASE_WELCOME };
struct guest {
    struct port *port;
    nng_aio *aio;
    struct timer timer;
    nng_stream *stream;
    nng_stream *gone; /* of who was here before */
    bool present;     /* this and 'gone' are the port's mutex's, the rest the callback's */
    int64_t came;
    enum phase phase;
    size_t done, total; /* of what this phase moves */
    struct hello hello;
    struct challenge challenge;
    uint8_t answer[SHA256_BYTES];
    struct welcome welcome;
};
struct kept {
    struct hello hello;
    struct stream stream; /* NULL: free */
    int64_t came;
};
struct port {
    nng_stream_listener *listener;
    nng_aio *accept;
    struct timer rest;
    bool resting; /* the accept aio sleeps, since the process is out of descriptors */
    char address[ADDRESS_MAX], key[SECRET_SIZE];
    pthread_mutex_t mutex;
    struct port_group *groups;
    struct guest guests[GUESTS];
    struct kept kept[KEPT];
    int64_t warned;
    int unwarned; /* dropped since then */
};

const char *port_address(const struct port *p) {
    return p->address;
}

const char *port_key(const struct port *p) {
    return p->key;
}

/* ---- guests ---- */

/* At most one line a second. Call with the mutex. */
static void warn_dropped(struct port *p, nng_stream *s, const char *why) {
    int64_t now = clock_ns();
    char from[REMOTE_MAX];
    p->unwarned++;
    if (p->warned && now - p->warned < 1000000000) return;
    remote_name(s, from);
    log_warn("%s: dropped %d connection%s; the last, from %s, %s", p->address, p->unwarned, p->unwarned == 1 ? "" : "s",
             from, why);
    p->warned = now;
    p->unwarned = 0;
}

/* What cancels an aio, be it a timeout, may still use the stream when the callback runs. So here it
 * is only closed, and freed after the aio, which waits for that. */
static void guest_leave(struct guest *g, const char *why) {
    pthread_mutex_lock(&g->port->mutex);
    if (why) warn_dropped(g->port, g->stream, why);
    nng_stream_close(g->stream);
    g->gone = g->stream;
    g->stream = NULL;
    g->present = false;
    pthread_mutex_unlock(&g->port->mutex);
}

static void guest_clear(struct guest *g) {
    timer_clear(&g->timer);
    if (g->aio) nng_aio_free(g->aio);
    if (g->gone) nng_stream_free(g->gone);
    g->aio = NULL;
    g->gone = NULL;
}

/* The bytes that this phase moves. */
static void *phase_bytes(struct guest *g, size_t *n) {
    switch (g->phase) {
    case PHASE_HELLO:
        *n = sizeof g->hello;
        return &g->hello;
    case PHASE_CHALLENGE:
        *n = sizeof g->challenge;
        return &g->challenge;
    case PHASE_ANSWER:
        *n = sizeof g->answer;
        return g->answer;
    default:
        *n = sizeof g->welcome;
        return &g->welcome;
    }
}

/* A guest that sends a byte now and then has no more time than one that sends none. */
static void guest_move(struct guest *g) {
    size_t n;
    char *bytes = phase_bytes(g, &n);
    nng_iov iov = {.iov_buf = bytes + g->done, .iov_len = n - g->done};
    nng_aio_set_iov(g->aio, 1, &iov);
    timer_set(&g->timer, g->aio, g->came + HELLO_SECONDS * 1000000000LL);
    if (g->phase == PHASE_HELLO || g->phase == PHASE_ANSWER)
        nng_stream_recv(g->stream, g->aio);
    else
        nng_stream_send(g->stream, g->aio);
}

static void guest_enter_phase(struct guest *g, enum phase phase) {
    g->phase = phase;
    g->done = 0;
    guest_move(g);
}

static void challenge_make(struct guest *g) {
    g->challenge = (struct challenge){.magic = HELLO_MAGIC, .version = HELLO_VERSION};
    hello_nonce(g->challenge.nonce);
}

static bool same_stream(const struct hello *a, const struct hello *b) {
    return a->group == b->group && a->from == b->from && a->to == b->to && a->kind == b->kind;
}

/* The place of a stream of the same name, which its dialer has given up; else a free one; else that
 * of the one that waits longest. */
static struct kept *kept_place(struct port *p, const struct hello *h) {
    struct kept *best = &p->kept[0];
    for (struct kept *k = p->kept; k < p->kept + KEPT; k++) {
        if (k->stream.s && same_stream(&k->hello, h)) return k;
        if (best->stream.s && (!k->stream.s || k->came < best->came)) best = k;
    }
    return best;
}

static struct port_group *find_group(const struct port *p, uint64_t group) {
    struct port_group *g = p->groups;
    while (g && g->group != group) g = g->next;
    return g;
}

static void guest_keep(struct guest *g) {
    struct port *p = g->port;
    struct stream s = {.s = g->stream};
    nng_stream *old = NULL;
    hello_proof(p->key, 'S', &g->hello, g->challenge.nonce, s.session);
    pthread_mutex_lock(&p->mutex);
    struct port_group *served = find_group(p, g->hello.group);
    g->stream = NULL;
    g->present = false;
    if (served) {
        served->came(served->user, &g->hello, &s);
    } else {
        struct kept *k = kept_place(p, &g->hello);
        old = k->stream.s;
        *k = (struct kept){.hello = g->hello, .stream = s, .came = clock_ns()};
    }
    pthread_mutex_unlock(&p->mutex);
    if (old) nng_stream_free(old);
}

/* The listener proves itself to who has proven to hold the key, and to nobody else. */
static void welcome_make(struct guest *g) {
    uint8_t proof[SHA256_BYTES];
    hello_proof(g->port->key, 'D', &g->hello, g->challenge.nonce, proof);
    g->welcome = (struct welcome){.in = (uint32_t)digest_equal(proof, g->answer)};
    if (g->welcome.in) hello_proof(g->port->key, 'L', &g->hello, g->challenge.nonce, g->welcome.proof);
}

static void guest_next(struct guest *g) {
    switch (g->phase) {
    case PHASE_HELLO:
        if (g->hello.magic != HELLO_MAGIC || g->hello.kind >= STREAMS) {
            guest_leave(g, "sent garbage");
            return;
        }
        challenge_make(g);
        guest_enter_phase(g, PHASE_CHALLENGE); /* also tells another version of this one */
        return;
    case PHASE_CHALLENGE:
        if (g->hello.version != HELLO_VERSION)
            guest_leave(g, "speaks another version");
        else
            guest_enter_phase(g, PHASE_ANSWER);
        return;
    case PHASE_ANSWER:
        welcome_make(g);
        guest_enter_phase(g, PHASE_WELCOME);
        return;
    default:
        if (g->welcome.in)
            guest_keep(g);
        else
            guest_leave(g, "does not hold the token");
    }
}

static void on_guest(void *arg) {
    struct guest *g = arg;
    int rv = nng_aio_result(g->aio);
    size_t n;
    timer_clear(&g->timer);
    (void)phase_bytes(g, &n);
    if (rv) {
        guest_leave(g, rv == NNG_ETIMEDOUT      ? "was silent"
                       : rv == NNG_ECONNABORTED ? "was too slow in a crowd"
                                                : "hung up in its hello");
        return;
    }
    g->done += nng_aio_count(g->aio);
    if (g->done < n)
        guest_move(g);
    else
        guest_next(g);
}

/* ---- accepting ---- */

/* A free place; sends the first comer away when few are left. Call with the mutex. */
static struct guest *guest_place(struct port *p) {
    struct guest *free = NULL, *oldest = NULL;
    int n = 0;
    for (struct guest *g = p->guests; g < p->guests + GUESTS; g++) {
        if (!g->present)
            free = g;
        else if (n++ == 0 || g->came < oldest->came)
            oldest = g;
    }
    if (n >= GUESTS - GUESTS_SPARE) nng_aio_abort(oldest->aio, NNG_ECONNABORTED);
    if (free) guest_clear(free);
    return free && nng_aio_alloc(&free->aio, on_guest, free) == 0 ? free : NULL;
}

static void guest_enter(struct port *p, nng_stream *s) {
    pthread_mutex_lock(&p->mutex);
    struct guest *g = guest_place(p);
    if (g) {
        g->port = p;
        g->stream = s;
        g->came = clock_ns();
        g->present = true;
        g->phase = PHASE_HELLO;
        g->done = 0;
    } else {
        warn_dropped(p, s, "came in a crowd");
    }
    pthread_mutex_unlock(&p->mutex);
    if (g)
        guest_move(g);
    else
        nng_stream_free(s);
}

static void on_accept(void *arg) {
    struct port *p = arg;
    int rv = nng_aio_result(p->accept);
    timer_clear(&p->rest);
    if (rv == NNG_ECLOSED || rv == NNG_ECANCELED) return;
    if (p->resting && rv == NNG_ETIMEDOUT) rv = 0; /* it has rested */
    if (rv == 0 && !p->resting) guest_enter(p, nng_aio_get_output(p->accept, 0));
    p->resting = rv != 0;
    if (p->resting)
        timer_sleep(&p->rest, p->accept, clock_ns() + 50000000);
    else
        nng_stream_listener_accept(p->listener, p->accept);
}

/* ---- opening, taking, closing ---- */

static enum error listen_on(struct port *p, const char *host) {
    bool v6 = strchr(host, ':');
    char url[ADDRESS_MAX + 16];
    int port, rv;
    snprintf(url, sizeof url, v6 ? "tcp://[%s]:0" : "tcp://%s:0", host);
    if ((rv = nng_stream_listener_alloc(&p->listener, url)) != 0)
        return FAIL(ERR_CREATE, "cannot listen on %s: %s", host, nng_strerror(rv));
    (void)nng_stream_listener_set_bool(p->listener, NNG_OPT_TCP_NODELAY, true);
    if ((rv = nng_stream_listener_listen(p->listener)) != 0 ||
        (rv = nng_stream_listener_get_int(p->listener, NNG_OPT_TCP_BOUND_PORT, &port)) != 0)
        return FAIL(ERR_CREATE, "cannot listen on %s: %s", host, nng_strerror(rv));
    snprintf(p->address, sizeof p->address, v6 ? "tcp://[%.64s]:%d" : "tcp://%.64s:%d", host, port);
    if (nng_aio_alloc(&p->accept, on_accept, p) != 0)
        return FAIL(ERR_MEMORY, "out of memory for the port %s", p->address);
    nng_stream_listener_accept(p->listener, p->accept);
    return ERR_NONE;
}

static enum error check_key(const char *key, bool near, const char *host) {
    if (strlen(key) >= SECRET_SIZE)
        return FAIL(ERR_CONFIG, "a key of %zu bytes\nat most %d", strlen(key), SECRET_SIZE - 1);
    if ((near || !*key) && !address_is_loopback(host))
        return FAIL(ERR_CONFIG, "ranks on other hosts must reach %s, but there is no token\nset run.token", host);
    return ERR_NONE;
}

enum error port_open(const struct port_params *params, struct port **out) {
    char host[ADDRESS_MAX];
    const char *key = params->key ? params->key : "";
    void *memory;
    TRY(address_choose(params->interface, host));
    TRY(check_key(key, params->near, host));
    TRY(memory_alloc(sizeof(struct port), &memory));
    struct port *p = memory;
    strcpy(p->key, key);
    pthread_mutex_init(&p->mutex, NULL);
    enum error err = listen_on(p, host);
    if (err) {
        port_close(p);
        return err;
    }
    *out = p;
    return ERR_NONE;
}

/* First nobody new comes in, then those within are sent away, then all is freed. */
void port_close(struct port *p) {
    if (!p) return;
    if (p->listener) nng_stream_listener_close(p->listener);
    if (p->accept) nng_aio_stop(p->accept);
    timer_clear(&p->rest);
    for (struct guest *g = p->guests; g < p->guests + GUESTS; g++) {
        if (g->aio) nng_aio_stop(g->aio);
        guest_clear(g);
        if (g->stream) nng_stream_free(g->stream);
    }
    for (struct kept *k = p->kept; k < p->kept + KEPT; k++)
        if (k->stream.s) nng_stream_free(k->stream.s);
    nng_aio_free(p->accept);
    if (p->listener) nng_stream_listener_free(p->listener);
    pthread_mutex_destroy(&p->mutex);
    memory_free(p);
}

void port_serve(struct port *p, struct port_group *g) {
    pthread_mutex_lock(&p->mutex);
    g->next = p->groups;
    p->groups = g;
    for (struct kept *k = p->kept; k < p->kept + KEPT; k++) {
        if (!k->stream.s || k->hello.group != g->group) continue;
        g->came(g->user, &k->hello, &k->stream);
        k->stream.s = NULL;
    }
    pthread_mutex_unlock(&p->mutex);
}

void port_unserve(struct port *p, struct port_group *g) {
    pthread_mutex_lock(&p->mutex);
    struct port_group **at = &p->groups;
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
    pthread_mutex_unlock(&p->mutex);
}
