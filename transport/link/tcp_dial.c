/* The dialing side: opens a stream to a rank's port, again and again until it is there. */
#include "engine/base/clock.h"
#include "transport/link/tcp_impl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

struct dialing {
    const struct link_params *params;
    nng_stream_dialer *dialer;
    nng_aio *aio;
    struct timer timer;
    int64_t deadline;
    char where[NAME_MAX_BYTES + ADDRESS_MAX + 8]; /* "rank 1 (hostA) at tcp://..." */
};

/* When what is begun now has to be done. */
static int64_t latest(const struct dialing *d) {
    int64_t hello = clock_ns() + HELLO_SECONDS * 1000000000LL;
    return hello < d->deadline ? hello : d->deadline;
}

/* Sends or receives all n bytes; an nng error. */
static int move_all(struct dialing *d, nng_stream *s, void *buf, size_t n, void (*move)(nng_stream *, nng_aio *)) {
    for (size_t done = 0; done < n;) {
        nng_iov iov = {.iov_buf = (char *)buf + done, .iov_len = n - done};
        timer_set(&d->timer, d->aio, latest(d));
        nng_aio_set_iov(d->aio, 1, &iov);
        move(s, d->aio);
        nng_aio_wait(d->aio);
        timer_clear(&d->timer);
        int rv = nng_aio_result(d->aio);
        if (rv) return rv;
        done += nng_aio_count(d->aio);
    }
    return 0;
}

static enum error check_listener(const struct dialing *d, const struct challenge *c) {
    if (c->magic != HELLO_MAGIC) return FAIL(ERR_PEER, "%s: the program that listens there is not a rank", d->where);
    if (c->version != HELLO_VERSION)
        return FAIL(ERR_MISMATCH, "%s speaks version %u of the link, this rank %d", d->where, (unsigned)c->version,
                    HELLO_VERSION);
    return ERR_NONE;
}

static enum error refuse_key(const struct dialing *d) {
    return FAIL(ERR_PEER, "%s does not hold this run's token\nall ranks need the same run.token", d->where);
}

/* *rv: an nng error after which one may try again. */
static enum error greet(struct dialing *d, struct stream *out, struct hello h, int *rv) {
    struct challenge c;
    struct welcome w;
    uint8_t proof[SHA256_BYTES];
    nng_stream *s = out->s;
    const char *key = port_key(d->params->port);
    hello_nonce(h.nonce);
    if ((*rv = move_all(d, s, &h, sizeof h, nng_stream_send)) != 0) return ERR_NONE;
    if ((*rv = move_all(d, s, &c, sizeof c, nng_stream_recv)) != 0) return ERR_NONE;
    TRY(check_listener(d, &c));
    hello_proof(key, 'D', &h, c.nonce, proof);
    if ((*rv = move_all(d, s, proof, sizeof proof, nng_stream_send)) != 0) return ERR_NONE;
    if ((*rv = move_all(d, s, &w, sizeof w, nng_stream_recv)) != 0) return ERR_NONE;
    hello_proof(key, 'L', &h, c.nonce, proof);
    if (!w.in || !digest_equal(proof, w.proof)) return refuse_key(d);
    hello_proof(key, 'S', &h, c.nonce, out->session);
    out->dialed = true;
    return ERR_NONE;
}

static enum error dial_once(struct dialing *d, struct hello h, struct stream *out, int *rv) {
    timer_set(&d->timer, d->aio, latest(d));
    nng_stream_dialer_dial(d->dialer, d->aio);
    nng_aio_wait(d->aio);
    timer_clear(&d->timer);
    if ((*rv = nng_aio_result(d->aio)) != 0) return ERR_NONE;
    struct stream s = {.s = nng_aio_get_output(d->aio, 0)};
    enum error err = greet(d, &s, h, rv);
    if (!err && *rv == 0) {
        *out = s;
        return ERR_NONE;
    }
    /* a timeout may still use the stream: the aio's end waits for that */
    nng_aio_free(d->aio);
    d->aio = NULL;
    nng_stream_free(s.s);
    return err || nng_aio_alloc(&d->aio, NULL, NULL) == 0
               ? err
               : FAIL(ERR_MEMORY, "out of memory while reaching %s", d->where);
}

static enum error dial_until(struct dialing *d, struct hello h, struct stream *out) {
    long nap = 2000000;        /* ns; doubled up to a quarter of a second */
    int cause = NNG_ETIMEDOUT; /* the last that says more than that the time was over */
    for (;;) {
        int rv;
        TRY(dial_once(d, h, out, &rv));
        if (rv == 0) return ERR_NONE;
        if (rv != NNG_ETIMEDOUT) cause = rv;
        if (clock_ns() + nap >= d->deadline)
            return FAIL(ERR_TIMEOUT, "cannot reach %s within %.3g s: %s", d->where, d->params->timeout,
                        nng_strerror(cause));
        nanosleep(&(struct timespec){.tv_nsec = nap}, NULL);
        nap = nap < 125000000 ? nap * 2 : 250000000;
    }
}

enum error tcp_dial(const struct link_params *p, int peer, uint32_t kind, int64_t deadline, struct stream *out) {
    char name[NAME_MAX_BYTES];
    const char *address = p->roster->of[peer].address;
    struct dialing d = {.params = p, .deadline = deadline};
    struct hello h = {.magic = HELLO_MAGIC,
                      .version = HELLO_VERSION,
                      .kind = kind,
                      .group = p->group,
                      .from = (uint32_t)p->rank,
                      .to = (uint32_t)peer,
                      .size = (uint32_t)p->size};
    enum error err;
    tcp_name(p, peer, name);
    snprintf(d.where, sizeof d.where, "%s at %.*s", name, ADDRESS_MAX, address);
    if (strncmp(address, "tcp://", 6) || nng_stream_dialer_alloc(&d.dialer, address) != 0)
        return FAIL(ERR_DATA, "'%.*s' is not the address of a rank", ADDRESS_MAX, address);
    if (nng_aio_alloc(&d.aio, NULL, NULL) != 0) {
        err = FAIL(ERR_MEMORY, "out of memory while reaching %s", d.where);
    } else {
        (void)nng_stream_dialer_set_bool(d.dialer, NNG_OPT_TCP_NODELAY, true);
        err = dial_until(&d, h, out);
        nng_aio_free(d.aio);
    }
    nng_stream_dialer_free(d.dialer);
    return err;
}
