#include "transport/door/visit.h"
#include "engine/base/clock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static int visit_await(const struct talk *t, short events, int64_t deadline) {
    struct pollfd p = {.fd = t->fd, .events = events};
    int n;
    do n = poll(&p, 1, clock_ms_until(deadline));
    while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : n == 0 ? ETIMEDOUT : errno;
}

/* Goes on with it whenever the stream takes or has bytes. */
static int visit_go_on(struct talk *t, int (*with)(struct talk *t), int64_t deadline) {
    void *bytes;
    int err = with(t);
    while (err == EAGAIN) {
        err = visit_await(t, tls_pending(t->tls, &bytes) ? POLLOUT : POLLIN, deadline);
        if (!err) err = with(t);
    }
    return err;
}

static int visit_dial(const struct talk *t, const struct endpoint *to, int64_t deadline) {
    int err = 0;
    socklen_t n = sizeof err;
    if (connect(t->fd, (const struct sockaddr *)&to->at, endpoint_bytes(to)) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    int late = visit_await(t, POLLOUT, deadline);
    if (late) return late;
    return getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &n) == 0 ? err : errno;
}

int visit_connect(struct talk *t, const struct endpoint *to, const char *key, int64_t deadline) {
    talk_end(t);
    int fd = endpoint_socket(to);
    if (fd < 0) return errno;
    if (talk_begin(t, fd, key, true) != ERR_NONE) return ENOMEM;
    int err = visit_dial(t, to, deadline);
    return err ? err : visit_go_on(t, talk_shake, deadline);
}

/* From half to all of it, as the clock has it, so that those who collided once do not go on doing so. */
bool visit_pause(int64_t *ns, int64_t deadline) {
    static const int64_t longest = 500000000;
    int64_t now = clock_ns(), left = deadline - now, half = *ns / 2, nap = half + now % half;
    if (left <= 0) return false;
    clock_nap(nap < left ? nap : left);
    *ns = *ns * 2 < longest ? *ns * 2 : longest;
    return true;
}

/* The message up to there. */
static int visit_read(struct talk *t, size_t total, int64_t deadline) {
    if (!talk_room(t, total)) return ENOMEM;
    t->total = total;
    return visit_go_on(t, talk_read, deadline);
}

int visit_ask(struct talk *t, size_t most, int64_t deadline, struct door_head *head) {
    memcpy(head, t->message, sizeof *head);
    t->done = 0;
    t->total = head->bytes;
    int err = visit_go_on(t, talk_write, deadline);
    t->done = 0;
    if (!err) err = visit_read(t, sizeof *head, deadline);
    if (err) return err;
    memcpy(head, t->message, sizeof *head);
    if (head->magic != DOOR_MAGIC || head->bytes < sizeof *head || head->bytes > most) return EPROTO;
    return visit_read(t, head->bytes, deadline);
}
