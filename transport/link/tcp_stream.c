/* Messages on a lane: a label, then the bytes, straight from and into the caller's memory.
 *
 * nng makes the streams, checks who is there, and carries control. Messages are written and read by
 * the lane's own thread, on the streams' descriptors: through nng's requests every message wakes a
 * thread that polls and one that completes before it wakes the one that waits, which took 2.5 times
 * as long at 1 KB.
 *
 * An exchange sends and receives at once: it writes what the kernel takes, reads what there is, and
 * waits for either. So ranks in a circle do not wait for each other, however long the messages and
 * however small the kernel's buffers are. Where bytes are only to be copied, one read covers the
 * label and all of them; another sink gets them in pieces that fit the cache, as they come. */
#include "engine/base/memory.h"
#include "transport/link/tcp_impl.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { PIECE = 128 << 10, LINE_BYTES = 64, TICK_MS = 20 };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* What is left of the label, and n bytes of data. */
static struct msghdr message(struct iovec iov[2], struct label *label, size_t done, void *data,
                             size_t n) {
    struct msghdr m = {.msg_iov = iov};
    if (done < sizeof *label)
        iov[m.msg_iovlen++] = (struct iovec){(char *)label + done, sizeof *label - done};
    if (n) iov[m.msg_iovlen++] = (struct iovec){data, n};
    return m;
}

enum moved { MOVED_NOTHING, MOVED_SOME, MOVED_BROKEN };

static enum moved moved(ssize_t n) {
    if (n > 0) return MOVED_SOME;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? MOVED_NOTHING : MOVED_BROKEN;
}

/* ---- sending ---- */

static enum moved send_some(struct sending *s) {
    struct iovec iov[2];
    if (s->done == s->total) return MOVED_NOTHING;
    size_t offset = s->done > sizeof s->label ? s->done - sizeof s->label : 0;
    struct msghdr m =
        message(iov, &s->label, s->done, (char *)(uintptr_t)s->data + offset, /* read only */
                s->total - sizeof s->label - offset);
    ssize_t n = sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) s->done += (size_t)n;
    return moved(n);
}

static void send_begin(struct tcp *t, int lane, const struct call *label,
                       const struct outgoing *out) {
    struct sending *s = &t->lane[lane].out;
    s->peer = -1;
    s->done = s->total = 0;
    if (!out) return;
    s->peer = out->peer;
    s->fd = t->peers[out->peer].fd[lane];
    s->label = (struct label){.call = *label, .bytes = out->bytes, .stamp = out->stamp};
    s->data = out->data;
    s->total = sizeof s->label + out->bytes;
}

/* ---- receiving ---- */

static bool only_copies(const struct receiving *r) {
    return r->in->sink == sink_copy;
}

static size_t received(const struct receiving *r) { /* of the bytes behind the label */
    return r->done > sizeof r->label ? r->done - sizeof r->label : 0;
}

static enum moved recv_some(struct receiving *r) {
    struct iovec iov[2];
    if (r->done == r->total) return MOVED_NOTHING;
    size_t offset = received(r), left = r->in->bytes - offset;
    struct msghdr m =
        only_copies(r)
            ? message(iov, &r->label, r->done, (char *)r->in->ctx + offset, left)
            : message(iov, &r->label, r->done, r->piece + r->held, least(left, PIECE - r->held));
    ssize_t n = recvmsg(r->fd, &m, MSG_DONTWAIT);
    if (n <= 0) return moved(n);
    r->done += (size_t)n;
    r->held += received(r) - offset;
    return MOVED_SOME;
}

/* Gives the sink whole lines of what has come; at the end, all. */
static void hand_over(struct receiving *r) {
    if (only_copies(r) || !r->held) return;
    size_t n = r->done == r->total ? r->held : r->held / LINE_BYTES * LINE_BYTES;
    r->in->sink(r->in->ctx, received(r) - r->held, r->piece, n);
    r->held -= n;
    memmove(r->piece, r->piece + n, r->held);
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

static enum error use_received(struct tcp *t, int lane) {
    struct receiving *r = &t->lane[lane].in;
    if (r->done < sizeof r->label) return ERR_NONE;
    if (!r->labelled) TRY(tcp_check_label(t, lane));
    hand_over(r);
    return ERR_NONE;
}

static void recv_begin(struct tcp *t, int lane, const struct incoming *in) {
    struct receiving *r = &t->lane[lane].in;
    r->in = in;
    r->peer = -1;
    r->done = r->total = r->held = 0;
    r->labelled = false;
    if (!in) return;
    r->peer = in->peer;
    r->fd = t->peers[in->peer].fd[lane];
    r->total = sizeof r->label + in->bytes;
}

/* ---- both ---- */

/* *some tells whether anything moved. */
static enum error move_some(struct tcp *t, int lane, bool *some) {
    struct tcp_lane *n = &t->lane[lane];
    enum moved sent = send_some(&n->out), came = recv_some(&n->in);
    if (came == MOVED_SOME) TRY(use_received(t, lane));
    if (came == MOVED_BROKEN) return tcp_broken(t, lane, n->in.peer);
    if (sent == MOVED_BROKEN) return tcp_broken(t, lane, n->out.peer);
    *some = sent == MOVED_SOME || came == MOVED_SOME;
    return ERR_NONE;
}

static enum error wait_either(struct tcp *t, int lane) {
    const struct sending *s = &t->lane[lane].out;
    const struct receiving *r = &t->lane[lane].in;
    struct pollfd f[2] = {{.fd = s->done < s->total ? s->fd : -1, .events = POLLOUT},
                          {.fd = r->done < r->total ? r->fd : -1, .events = POLLIN}};
    return poll(f, 2, TICK_MS) == 0 ? tcp_watch(t, lane) : ERR_NONE;
}

void tcp_prepare(struct tcp *t, int lane, const struct call *label, const struct outgoing *out,
                 const struct incoming *in) {
    t->lane[lane].label = label;
    t->lane[lane].vigil = (struct vigil){0};
    send_begin(t, lane, label, out);
    recv_begin(t, lane, in);
}

enum error tcp_begin(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                     const struct incoming *in) {
    struct tcp *t = tcp_of(l);
    bool some;
    TRY(tcp_failure(l));
    tcp_prepare(t, lane, label, out, in);
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
    if (!t->lane[lane].vigil.asked) return; /* it has not said what it waits in */
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

enum error tcp_exchange(struct link *l, int lane, const struct call *label,
                        const struct outgoing *out, const struct incoming *in) {
    TRY(tcp_begin(l, lane, label, out, in));
    return tcp_end(l, lane);
}

/* ---- opening and closing ---- */

enum error lanes_open(struct tcp *t) {
    for (int i = 0; i < LANES; i++) {
        void *piece;
        TRY(memory_alloc(PIECE, &piece));
        t->lane[i].in.piece = piece;
        for (int r = 0; r < t->link.params.size; r++) {
            struct peer *p = &t->peers[r];
            if (p->stream[i]) TRY(stream_descriptor(p->stream[i], &p->fd[i]));
        }
    }
    return ERR_NONE;
}

void lanes_close(struct tcp *t) {
    for (int i = 0; i < LANES; i++) memory_free(t->lane[i].in.piece);
}
