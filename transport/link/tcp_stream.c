/* Messages on a lane: a label, then the bytes, straight from and into the caller's memory.
 *
 * nng makes the streams, checks who is there, and carries control. Messages are written and read by the lane's own
 * thread, on the streams' descriptors: through nng's requests every message wakes a thread that polls and one that
 * completes before it wakes the one that waits, which took 2.5 times as long at 1 KB.
 *
 * An exchange sends and receives at once: it writes what the kernel takes, reads what there is, and waits for either.
 * So ranks in a circle do not wait for each other, however long the messages and however small the kernel's buffers
 * are. Bytes are sealed, or encrypted into a piece of the lane's, just before they leave, and checked just after they
 * have come, so that they are still in a cache. */
#include "engine/base/memory.h"
#include "transport/link/tcp_impl.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    PIECE_IN = 128 << 10,  /* received at once for a sink: it fits the cache */
    PIECE_OUT = 512 << 10, /* encrypted at once: it does, too, and the kernel is slower when it is given less */
    WHOLE = 1 << 10,       /* a sink gets multiples of it, and so does a seal, but for the last bytes */
    AHEAD = 4096 << 10,    /* sealed at once */
    TICK_MS = 20,
    HEAD = sizeof(struct label) + SEAL_BYTES,
};
_Static_assert(offsetof(struct sending, head) - offsetof(struct sending, label) == sizeof(struct label) &&
                   offsetof(struct receiving, head) - offsetof(struct receiving, label) == sizeof(struct label),
               "a label and its seal are one piece of memory");

static size_t bytes_least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* What is left of the head after 'done' bytes. */
static struct iovec head_left(struct label *head, size_t done) {
    return (struct iovec){(char *)head + done, done < HEAD ? HEAD - done : 0};
}

/* Of the head, the bytes and, when these are the last, their seal, those that are not empty. */
static struct msghdr message_of(struct iovec iov[3]) {
    struct msghdr m = {.msg_iov = iov};
    for (int i = 0; i < 3; i++)
        if (iov[i].iov_len) iov[m.msg_iovlen++] = iov[i];
    return m;
}

/* Of the bytes after the head. */
static size_t moved_bytes(size_t done, size_t bytes) {
    return done > HEAD ? bytes_least(done - HEAD, bytes) : 0;
}

enum moved { MOVED_NOTHING, MOVED_SOME, MOVED_BROKEN };

static enum moved moved_of(ssize_t n) {
    if (n > 0) return MOVED_SOME;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? MOVED_NOTHING : MOVED_BROKEN;
}

/* ---- sending ---- */

/* The next bytes are sealed when those before have left. Gives where they lie that are next. */
static const char *seal_ahead(struct sending *s, size_t sent) {
    if (sent == s->ready && s->ready < s->bytes) {
        size_t n = bytes_least(s->piece ? PIECE_OUT : AHEAD, s->bytes - sent);
        s->ready += n;
        if (s->ready < s->bytes)
            seal_pass(s->sealer, s->data + sent, s->piece, n);
        else
            seal_end(s->sealer, s->data + sent, s->piece, n, s->tail);
    }
    return s->piece && s->sealed ? s->piece + (sent - (s->ready - 1) / PIECE_OUT * PIECE_OUT) : s->data + sent;
}

static enum moved send_some(struct sending *s) {
    if (s->done == s->total) return MOVED_NOTHING;
    size_t sent = moved_bytes(s->done, s->bytes);
    const char *next = seal_ahead(s, sent);
    size_t n = s->ready - sent, tail = s->ready == s->bytes ? s->sealed : 0;
    size_t left = bytes_least(tail, s->total - s->done);
    struct iovec iov[3] = {head_left(&s->label, s->done),
                           {(char *)(uintptr_t)next, n}, /* read only */
                           {s->tail + tail - left, left}};
    struct msghdr m = message_of(iov);
    ssize_t gone = sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (gone > 0) s->done += (size_t)gone;
    return moved_of(gone);
}

static void send_begin(struct tcp *t, int lane, const struct call *label, const struct outgoing *out) {
    struct sending *s = &t->lane[lane].out;
    s->peer = -1;
    s->done = s->total = 0;
    if (!out) return;
    s->peer = out->peer;
    s->label = (struct label){.call = *label, .bytes = out->bytes, .stamp = out->stamp};
    s->data = out->data;
    s->bytes = out->bytes;
    s->total = sizeof s->label + out->bytes;
}

/* ---- receiving ---- */

static size_t received_bytes(const struct receiving *r) {
    return moved_bytes(r->done, r->in->bytes);
}

static enum moved recv_some(struct receiving *r) {
    if (r->done == r->total) return MOVED_NOTHING;
    size_t offset = received_bytes(r), left = r->in->bytes - offset;
    size_t room = only_copies(r) ? left : PIECE_IN - r->held;
    size_t n = bytes_least(left, room), tail = n == left ? bytes_least(r->sealed, r->total - r->done) : 0;
    struct iovec iov[3] = {head_left(&r->label, r->done),
                           {only_copies(r) ? (char *)r->in->ctx + offset : r->piece + r->held, n},
                           {r->tail + r->sealed - tail, tail}};
    struct msghdr m = message_of(iov);
    ssize_t got = recvmsg(r->fd, &m, MSG_DONTWAIT);
    if (got <= 0) return moved_of(got);
    r->done += (size_t)got;
    r->held += received_bytes(r) - offset;
    return MOVED_SOME;
}

/* Checks or decrypts whole blocks of what has come, in their place, and gives them to the sink; at the end, when their
 * seal has come, too, all. False: the seal does not hold. */
static bool hand_over(struct receiving *r) {
    bool last = r->done == r->total, holds = true;
    size_t n = last ? r->held : r->held / WHOLE * WHOLE, at = received_bytes(r) - r->held;
    char *data = only_copies(r) ? (char *)r->in->ctx + at : r->piece;
    if (r->sealed && last)
        holds = seal_ends(r->sealer, data, data, n, r->tail);
    else if (r->sealed)
        seal_pass(r->sealer, data, data, n);
    r->held -= n;
    if (!n || !holds || only_copies(r)) return holds;
    r->in->sink(r->in->ctx, at, r->piece, n);
    memmove(r->piece, r->piece + n, r->held);
    return true;
}

enum error tcp_check_label(struct tcp *t, int lane) {
    struct tcp_lane *n = &t->lane[lane];
    struct receiving *r = &n->in;
    const struct link_params *p = &t->link.params;
    r->labelled = true;
    if (label_fits(&r->label, n->label, r->in->bytes)) {
        if (r->in->stamp) *r->in->stamp = r->label.stamp;
        return ERR_NONE;
    }
    if (t->opened) return p->disagree(p->user, lane, r->peer, n->label, &r->label.call);
    return tcp_fail(&t->link, ERR_MISMATCH, "ranks disagree in how they open the group");
}

/* The label is believed once its seal holds, the message once that of its bytes does: what a sink
 * got before is of a call that fails. */
static enum error use_received(struct tcp *t, int lane) {
    struct receiving *r = &t->lane[lane].in;
    if (r->done < HEAD) return ERR_NONE;
    if (!r->labelled) {
        if (!seal_holds(r->sealer, &r->label, sizeof r->label, r->head)) return tcp_changed(t, lane, r->peer);
        TRY(tcp_check_label(t, lane));
        if (r->sealed) seal_begin(r->sealer);
    }
    return hand_over(r) ? ERR_NONE : tcp_changed(t, lane, r->peer);
}

static void recv_begin(struct tcp *t, int lane, const struct incoming *in) {
    struct receiving *r = &t->lane[lane].in;
    r->in = in;
    r->peer = -1;
    r->done = r->total = r->held = 0;
    r->labelled = false;
    if (!in) return;
    r->peer = in->peer;
    r->fd = -1;
    r->total = sizeof r->label + in->bytes;
}

/* ---- both ---- */

/* Whether the stream has come on which the lane receives. */
static bool recv_open(struct tcp *t, int lane) {
    struct receiving *r = &t->lane[lane].in;
    struct tcp_line *line = r->fd >= 0 || r->done == r->total ? NULL : line_from(t, lane, r->peer);
    if (!line) return r->fd >= 0;
    r->fd = line->fd;
    r->sealer = &line->in;
    r->used = &line->used;
    return line->fd >= 0 || !line_drop(t, lane, r->peer, -1);
}

static enum moved recv_on_line(struct tcp *t, int lane) {
    struct receiving *r = &t->lane[lane].in;
    if (!recv_open(t, lane)) return MOVED_NOTHING;
    enum moved came = recv_some(r);
    if (came == MOVED_SOME) *r->used = true;
    if (came != MOVED_BROKEN || r->done || !line_drop(t, lane, r->peer, r->fd)) return came;
    r->fd = -1;
    return MOVED_NOTHING;
}

/* *some tells whether anything moved. */
static enum error move_some(struct tcp *t, int lane, bool *some) {
    struct tcp_lane *n = &t->lane[lane];
    enum moved sent = send_some(&n->out), came = recv_on_line(t, lane);
    if (came == MOVED_SOME) TRY(use_received(t, lane));
    if (came == MOVED_BROKEN) return tcp_broken(t, lane, n->in.peer);
    if (sent == MOVED_BROKEN) return tcp_broken(t, lane, n->out.peer);
    *some = sent == MOVED_SOME || came == MOVED_SOME;
    return ERR_NONE;
}

static enum error wait_either(struct tcp *t, int lane) {
    const struct sending *s = &t->lane[lane].out;
    const struct receiving *r = &t->lane[lane].in;
    int in = r->fd >= 0 ? r->fd : t->lane[lane].bell;
    uint64_t rung;
    struct pollfd f[2] = {{.fd = s->done < s->total ? s->fd : -1, .events = POLLOUT},
                          {.fd = r->done < r->total ? in : -1, .events = POLLIN}};
    int n = poll(f, 2, TICK_MS);
    if (n > 0 && f[1].revents && r->fd < 0 && read(in, &rung, sizeof rung) < 0 && errno != EAGAIN)
        return tcp_fail(&t->link, ERR_IO, "the eventfd of a lane cannot be read");
    return n == 0 ? tcp_watch(t, lane) : ERR_NONE;
}

void tcp_prepare(struct tcp *t, int lane, const struct call *label, const struct outgoing *out,
                 const struct incoming *in) {
    t->lane[lane].label = label;
    t->lane[lane].vigil = (struct tcp_vigil){0};
    send_begin(t, lane, label, out);
    recv_begin(t, lane, in);
}

static size_t seal_bytes(const struct tcp *t, int peer, size_t bytes) {
    const struct link_params *p = &t->link.params;
    bool far = p->roster->of[peer].host != p->roster->of[p->rank].host;
    return bytes && (far || p->secure >= SECURE_SEALED) ? SEAL_BYTES : 0;
}

/* On a stream there are seals, too. Opens it if it is the first that is sent on it. */
static enum error seals_begin(struct tcp *t, int lane) {
    struct sending *s = &t->lane[lane].out;
    struct receiving *r = &t->lane[lane].in;
    s->ready = s->bytes;
    if (s->piece && s->bytes > AEAD_MOST)
        return tcp_fail(&t->link, ERR_CONFIG, "a message of more than 64 GB cannot be encrypted");
    if (s->peer >= 0) {
        struct tcp_line *line;
        TRY(line_to(t, lane, s->peer, &line));
        s->fd = line->fd;
        s->sealer = &line->out;
        s->sealed = seal_bytes(t, s->peer, s->bytes);
        s->total += SEAL_BYTES + s->sealed;
        seal_make(s->sealer, &s->label, sizeof s->label, s->head);
        if (s->sealed) {
            seal_begin(s->sealer);
            s->ready = 0;
        }
    }
    if (r->peer >= 0) {
        r->sealed = seal_bytes(t, r->peer, r->in->bytes);
        r->total += SEAL_BYTES + r->sealed;
    }
    return ERR_NONE;
}

enum error tcp_begin(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                     const struct incoming *in) {
    struct tcp *t = tcp_of(l);
    bool some;
    TRY(tcp_failure(l));
    tcp_prepare(t, lane, label, out, in);
    TRY(seals_begin(t, lane));
    return move_some(t, lane, &some);
}

static enum error move_all(struct tcp *t, int lane) {
    const struct tcp_lane *n = &t->lane[lane];
    while (n->out.done < n->out.total || n->in.done < n->in.total) {
        bool some = false;
        TRY(move_some(t, lane, &some));
        if (!some) TRY(wait_either(t, lane));
    }
    return ERR_NONE;
}

void tcp_rest(struct tcp *t, int lane) {
    if (!t->lane[lane].vigil.asks) return; /* it has not said what it waits in */
    pthread_mutex_lock(&t->mutex);
    *t->lane[lane].waits = '\0';
    pthread_mutex_unlock(&t->mutex);
}

enum error tcp_end(struct link *l, int lane) {
    struct tcp *t = tcp_of(l);
    enum error err = move_all(t, lane);
    tcp_rest(t, lane);
    return err;
}

enum error tcp_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                        const struct incoming *in) {
    TRY(tcp_begin(l, lane, label, out, in));
    return tcp_end(l, lane);
}

/* ---- opening and closing ---- */

enum error lanes_open(struct tcp *t) {
    for (int i = 0; i < ALL_LANES; i++) {
        if (i < LANES) {
            TRY_MEMORY(t->lane[i].in.piece = memory_new(PIECE_IN));
        }
        if (i != LANE_IN && t->link.params.secure == SECURE_ENCRYPTED) {
            TRY_MEMORY(t->lane[i].out.piece = memory_new(PIECE_OUT));
        }
    }
    return ERR_NONE;
}

void lanes_close(struct tcp *t) {
    for (int i = 0; i < ALL_LANES; i++) {
        memory_free(t->lane[i].in.piece);
        memory_free(t->lane[i].out.piece);
    }
}
