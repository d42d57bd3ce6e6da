#include "transport/door/talk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum error talk_begin(struct talk *t, int fd, const char *key, bool dialed) {
    t->fd = fd;
    t->dialed = dialed;
    t->head_done = 0;
    return tls_create(key, dialed, &t->tls);
}

enum error talk_keep(struct talk *t, struct stream *out) {
    *out = (struct stream){.fd = t->fd, .dialed = t->dialed};
    TRY(tls_session(t->tls, out->session));
    t->fd = -1;
    return ERR_NONE;
}

void talk_end(struct talk *t) {
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
    tls_free(t->tls);
    t->tls = NULL;
}

void talk_free(struct talk *t) {
    talk_end(t);
    free(t->message);
}

uint8_t *talk_room(struct talk *t, size_t n) {
    uint8_t *more = n > t->room ? realloc(t->message, n) : t->message;
    if (!more) return NULL;
    t->message = more;
    if (n > t->room) t->room = n;
    return more;
}

/* ---- bytes ---- */

/* All that TLS has to say. */
static int talk_send(struct talk *t) {
    void *bytes;
    for (size_t left; (left = tls_pending(t->tls, &bytes)) > 0;) {
        ssize_t n = send(t->fd, bytes, left, MSG_NOSIGNAL);
        if (n < 0) return errno;
        tls_sent(t->tls, (size_t)n);
    }
    return 0;
}

/* The head of a record says how long it is. */
static int record_advance(struct talk *t, const uint8_t *bytes, size_t n) {
    if (t->head_done == TLS_RECORD_HEAD) {
        t->rest -= n;
        if (!t->rest) t->head_done = 0;
        return 0;
    }
    memcpy(t->head + t->head_done, bytes, n);
    t->head_done += n;
    if (t->head_done < TLS_RECORD_HEAD) return 0;
    t->rest = tls_record_rest(t->head);
    return t->rest ? 0 : EPROTO;
}

static size_t bytes_wanted(const struct talk *t) {
    return t->head_done < TLS_RECORD_HEAD ? TLS_RECORD_HEAD - t->head_done : t->rest;
}

static int talk_receive(struct talk *t) {
    uint8_t bytes[8192];
    size_t wanted = bytes_wanted(t);
    ssize_t n = recv(t->fd, bytes, wanted < sizeof bytes ? wanted : sizeof bytes, 0);
    if (n <= 0) return n ? errno : ECONNRESET;
    if ((size_t)n > t->most) return EMSGSIZE;
    t->most -= (size_t)n;
    int err = record_advance(t, bytes, (size_t)n);
    if (err) return err;
    return tls_put(t->tls, bytes, (size_t)n) ? 0 : ENOMEM;
}

/* ---- what they are for ---- */

int talk_shake(struct talk *t) {
    for (;;) {
        enum tls_step step = tls_shake(t->tls);
        int err = talk_send(t);
        if (step == TLS_REFUSED) return EKEYREJECTED;
        if (step == TLS_GARBAGE) return EPROTO;
        if (!err && step == TLS_MORE) err = talk_receive(t);
        if (err || step == TLS_OPEN) return err;
    }
}

int talk_write(struct talk *t) {
    for (;;) {
        int err = talk_send(t);
        size_t left = t->total - t->done, n = left < TLS_PIECE ? left : TLS_PIECE;
        if (err || !n) return err;
        if (!tls_write(t->tls, t->message + t->done, n)) return EPROTO;
        t->done += n;
    }
}

/* TLS may have something to say of its own. */
int talk_read(struct talk *t) {
    while (t->done < t->total) {
        int n = tls_read(t->tls, t->message + t->done, t->total - t->done);
        if (n < 0) return EBADMSG;
        t->done += (size_t)n;
        int err = n ? 0 : talk_send(t);
        if (!n && !err) err = talk_receive(t);
        if (err) return err;
    }
    return 0;
}
