#include "transport/door/visit.h"

#include <stdlib.h>
#include <string.h>

struct visit {
    nng_stream *stream;
    nng_aio *aio;
    struct timer timer;
    struct tls *tls;
    uint8_t *message; /* of the request, then of the reply */
    size_t room;
    uint8_t raw[TLS_RECORD_HEAD + TLS_PIECE + 256];
};

enum error visit_create(struct visit **out) {
    struct visit *v = calloc(1, sizeof *v);
    if (!v || nng_aio_alloc(&v->aio, NULL, NULL) != 0) {
        free(v);
        return FAIL(ERR_MEMORY, "no memory for a connection");
    }
    *out = v;
    return ERR_NONE;
}

/* The aio first: it is awaited, and what cancels it may use the stream to the last. */
static void visit_hang_up(struct visit *v) {
    if (v->aio) nng_aio_stop(v->aio);
    nng_aio_free(v->aio);
    v->aio = NULL;
    if (v->stream) nng_stream_free(v->stream);
    v->stream = NULL;
    tls_free(v->tls);
    v->tls = NULL;
}

void visit_free(struct visit *v) {
    if (!v) return;
    visit_hang_up(v);
    free(v->message);
    free(v);
}

uint8_t *visit_room(struct visit *v, size_t n) {
    uint8_t *more = n > v->room ? realloc(v->message, n) : v->message;
    if (!more) return NULL;
    v->message = more;
    if (n > v->room) v->room = n;
    return more;
}

const uint8_t *visit_reply(const struct visit *v, struct door_head *head) {
    memcpy(head, v->message, sizeof *head);
    return v->message;
}

bool visit_arrived(const struct visit *v) {
    return v->stream;
}

bool visit_is_ours(const struct visit *v) {
    return remote_is_ours(v->stream);
}

enum error visit_end(struct visit *v, struct stream *out) {
    *out = (struct stream){.s = v->stream, .dialed = true};
    TRY(tls_session(v->tls, out->session));
    v->stream = NULL;
    return ERR_NONE;
}

/* ---- bytes ---- */

/* Moves all n bytes. */
static int visit_move(struct visit *v, void *bytes, size_t n, int64_t deadline, void (*move)(nng_stream *, nng_aio *)) {
    for (size_t done = 0; done < n;) {
        nng_iov iov = {.iov_buf = (char *)bytes + done, .iov_len = n - done};
        nng_aio_set_iov(v->aio, 1, &iov);
        timer_set(&v->timer, v->aio, deadline);
        move(v->stream, v->aio);
        nng_aio_wait(v->aio);
        timer_clear(&v->timer);
        int rv = nng_aio_result(v->aio);
        if (rv) return rv;
        done += nng_aio_count(v->aio);
    }
    return 0;
}

static int visit_flush(struct visit *v, int64_t deadline) {
    void *bytes;
    size_t n = tls_pending(v->tls, &bytes);
    int rv = visit_move(v, bytes, n, deadline, nng_stream_send);
    tls_sent(v->tls, n);
    return rv;
}

/* Receives a record, and never a byte more, since what follows the last reply is not for this. */
static int visit_fill(struct visit *v, int64_t deadline) {
    int rv = visit_move(v, v->raw, TLS_RECORD_HEAD, deadline, nng_stream_recv);
    size_t n = rv ? 0 : tls_record_rest(v->raw);
    if (!rv && !n) rv = NNG_EPROTO;
    if (!rv) rv = visit_move(v, v->raw + TLS_RECORD_HEAD, n, deadline, nng_stream_recv);
    if (rv) return rv;
    return tls_put(v->tls, v->raw, TLS_RECORD_HEAD + n) ? 0 : NNG_ENOMEM;
}

/* ---- connecting ---- */

/* The aio is freed before the dialer, as above before the stream. */
static int visit_dial(struct visit *v, const char *url, int64_t deadline) {
    nng_stream_dialer *dialer = NULL;
    int rv = nng_stream_dialer_alloc(&dialer, url);
    if (!rv) rv = nng_stream_dialer_set_bool(dialer, NNG_OPT_TCP_NODELAY, true);
    if (!rv) rv = nng_stream_dialer_set_bool(dialer, NNG_OPT_TCP_KEEPALIVE, true);
    if (!rv) rv = nng_aio_alloc(&v->aio, NULL, NULL);
    if (!rv) {
        timer_set(&v->timer, v->aio, deadline);
        nng_stream_dialer_dial(dialer, v->aio);
        nng_aio_wait(v->aio);
        timer_clear(&v->timer);
        rv = nng_aio_result(v->aio);
        if (!rv) v->stream = nng_aio_get_output(v->aio, 0);
        nng_aio_free(v->aio);
        v->aio = NULL;
    }
    if (dialer) nng_stream_dialer_free(dialer);
    return rv ? rv : nng_aio_alloc(&v->aio, NULL, NULL);
}

static int visit_shake(struct visit *v, int64_t deadline) {
    for (;;) {
        enum tls_step step = tls_shake(v->tls);
        int rv = visit_flush(v, deadline);
        if (step == TLS_REFUSED) return NNG_EPEERAUTH;
        if (step == TLS_GARBAGE) return NNG_EPROTO;
        if (!rv && step == TLS_MORE) rv = visit_fill(v, deadline);
        if (rv || step == TLS_OPEN) return rv;
    }
}

int visit_connect(struct visit *v, const char *url, const char *key, int64_t deadline) {
    visit_hang_up(v);
    int rv = visit_dial(v, url, deadline);
    if (!rv && tls_create(key, true, &v->tls) != ERR_NONE) rv = NNG_ENOMEM;
    return rv ? rv : visit_shake(v, deadline);
}

/* ---- asking ---- */

static int visit_send(struct visit *v, int64_t deadline) {
    struct door_head head;
    memcpy(&head, v->message, sizeof head);
    for (size_t done = 0; done < head.bytes;) {
        size_t left = head.bytes - done, n = left < TLS_PIECE ? left : TLS_PIECE;
        if (!tls_write(v->tls, v->message + done, n)) return NNG_EPROTO;
        int rv = visit_flush(v, deadline);
        if (rv) return rv;
        done += n;
    }
    return 0;
}

static int visit_read(struct visit *v, size_t from, size_t to, int64_t deadline) {
    if (!visit_room(v, to)) return NNG_ENOMEM;
    while (from < to) {
        int n = tls_read(v->tls, v->message + from, to - from);
        if (n < 0) return NNG_ECRYPTO;
        from += (size_t)n;
        int rv = n == 0 ? visit_fill(v, deadline) : 0;
        if (rv) return rv;
    }
    return 0;
}

int visit_ask(struct visit *v, size_t most, int64_t deadline) {
    struct door_head head;
    int rv = visit_send(v, deadline);
    if (!rv) rv = visit_read(v, 0, sizeof head, deadline);
    if (rv) return rv;
    memcpy(&head, v->message, sizeof head);
    if (head.magic != DOOR_MAGIC || head.bytes < sizeof head || head.bytes > most) return NNG_EPROTO;
    return visit_read(v, sizeof head, head.bytes, deadline);
}
