/* The inside of the link over TCP.
 *
 * Between two ranks there is one stream for each way and one for control. The higher rank dials the lower's port, a door
 * (transport/door): both prove in TLS that they hold the run's key, and the dialer's first message is a hello, which
 * says whose stream it is. After the welcome TLS ends, and nothing follows but messages (label, its seal; bytes, their
 * seal) on a lane, or frames of one size with their seals on control. The keys of the seals come from that connection's
 * TLS, so nothing can be changed, left out, repeated or taken from another stream. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/memory.h"
#include "transport/base/secret.h"
#include "transport/base/timer.h"
#include "transport/door/door.h"
#include "transport/link/label.h"
#include "transport/link/note.h"
#include "transport/link/seal.h"
#include "transport/link/tcp.h"
#include "transport/link/words.h"

#include <nng/nng.h>
#include <pthread.h>
#include <stdatomic.h>

enum { CONTROL = LINK_WAYS, STREAMS };

/* ---- the hello (tcp_dial.c, tcp_port.c) ---- */

enum { HELLO_KIND = 32 };
struct hello {
    struct door_head head;
    uint64_t group;
    uint32_t from, to, size, kind; /* kind: a way or CONTROL */
};
static inline struct hello hello_of(const struct link_params *p, int from, int to, uint32_t kind) {
    return (struct hello){.head = door_head(HELLO_KIND, sizeof(struct hello)),
                          .group = p->group,
                          .from = (uint32_t)from,
                          .to = (uint32_t)to,
                          .size = (uint32_t)p->size,
                          .kind = kind};
}
const char *port_key(const struct port *p);
/* Waits until clock_ns() is 'deadline' for the stream of that name, which another rank opens to this one;
 * ERR_TIMEOUT without words, for the caller to name who did not come. */
MUST_CHECK enum error port_take(struct port *p, const struct hello *wanted, int64_t deadline, struct stream *out);
/* Opens this rank's stream of that kind to a lower one. */
MUST_CHECK enum error tcp_dial(const struct link_params *p, int peer, uint32_t kind, int64_t deadline,
                               struct stream *out);
/* Whether two ranks have a stream of that kind. lanes: calls pass between them over TCP. */
static inline bool has_stream(const struct link_params *p, uint32_t kind, bool lanes) {
    return kind == CONTROL || (kind == MAIL_WAY ? p->mail : lanes);
}

/* ---- the link ---- */

/* The state that a rank reports about itself, from time to time and on request. */
struct peer_state {
    struct call call[LANES];
    struct sighting seen;
};
struct tcp_verdict {
    int32_t error, origin; /* enum error; the rank that found it */
    uint32_t end; /* a peer has ended or does not come, which a fault that another rank found may have caused */
    char reason[REASON_MAX];
};
enum frame_kind { FRAME_STATE = 1, FRAME_ASK = 2, FRAME_FAIL = 4, FRAME_LEAVE = 8 };
struct tcp_frame {
    uint32_t kind, unused;
    union {
        struct peer_state state; /* FRAME_STATE, FRAME_ASK: the other is to tell, too */
        struct tcp_verdict verdict;
    };
    uint8_t seal[SEAL_BYTES]; /* of what stands before it */
};

typedef enum error (*exchange_fn)(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                  const struct incoming *in);
struct tcp;
struct tcp_line { /* how a stream's two directions are sealed */
    struct sealer out, in;
};
struct tcp_peer {
    struct tcp *of;
    int rank;
    struct stream stream[STREAMS];
    struct tcp_line *line[STREAMS]; /* NULL where there is no stream */
    int fd[STREAMS];                /* of the streams, which own them; else -1 */
    _Atomic bool mute;              /* no message of it comes any more */
    /* t->mutex protects the following members. */
    nng_aio *send, *recv;
    struct tcp_frame out, in;
    size_t out_done, in_done;
    bool sending;
    unsigned due;           /* kinds of frames to be sent */
    bool left, ended, told; /* took leave; its stream ended; has told its verdict */
    int64_t heard;
    struct peer_state state;
    int64_t stated; /* when; 0: never */
};

/* One message in each direction (tcp_stream.c), the lane's thread's own. On the stream: label and
 * seal; then the bytes; and, between hosts or where seals are expressly wanted, their seal: what
 * stays on one host nobody can change who could not change the processes as well. */
struct sending {
    int peer, fd; /* peer -1: none */
    struct label label;
    uint8_t head[SEAL_BYTES], tail[SEAL_BYTES];
    const char *data;
    size_t bytes, sealed; /* sealed: of the bytes' seal; 0: they have none */
    size_t done, total;   /* of all of it; elsewhere than on a stream, of label and data */
    size_t ready;         /* bytes that may be sent, since they are sealed */
    struct sealer *sealer;
    char *piece; /* the last of these, encrypted; NULL: nothing is */
};
struct receiving {
    int peer, fd;
    const struct incoming *in;
    struct label label;
    uint8_t head[SEAL_BYTES], tail[SEAL_BYTES];
    bool labelled;
    size_t sealed, done, total; /* as above */
    size_t held;                /* bytes in 'piece' that the sink has not got yet */
    char *piece;                /* for sinks that do not only copy */
    struct sealer *sealer;
};
struct tcp_vigil { /* of one exchange */
    int64_t start;
    size_t progress;
    bool warned;
    int64_t asked;
};
struct tcp_lane {
    struct sending out;
    struct receiving in;
    const struct call *label;
    struct tcp_vigil vigil;
    struct call met;           /* the last; t->mutex's */
    char waits[DESCRIBED_MAX]; /* in what its thread waits, "" : it does not; t->mutex's */
    int awaited;               /* the rank that is waited for; -1: none */
};

struct tcp_block { /* of memory that alloc gave */
    _Alignas(64) struct tcp_block *next;
};
enum judging { FINE, SETTLING, SETTLED };
struct tcp {
    struct link link;
    enum reach reach;
    exchange_fn exchange; /* what carries the messages of all calls: tcp_exchange or another's */
    void *carried;        /* another's own */
    _Atomic bool opened;  /* the caller's callbacks may be asked */
    struct tcp_peer *peers;
    struct tcp_lane lane[ALL_LANES];
    int poked; /* an eventfd, where there are messages; else -1 */
    struct tcp_block *blocks;

    nng_aio *beat;
    struct timer beat_timer;
    int64_t beaten; /* when; the beat's own */

    struct note note;

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Atomic int judging; /* enum judging */
    int64_t judging_since;
    struct tcp_verdict verdict;
    bool closing;
};

static inline struct tcp *tcp_of(struct link *l) {
    return (struct tcp *)l;
}

/* The descriptor of a stream, which nng does not tell: the one socket of this process that has its two addresses. */
MUST_CHECK enum error stream_descriptor(nng_stream *s, int *out); /* tcp_address.c */

/* ---- tcp_stream.c ---- */
MUST_CHECK enum error lanes_open(struct tcp *t); /* streams are open */
void lanes_close(struct tcp *t);
/* For whoever carries messages otherwise: the lane begins an exchange; a label has come. */
void tcp_prepare(struct tcp *t, int lane, const struct call *label, const struct outgoing *out,
                 const struct incoming *in);
MUST_CHECK enum error tcp_check_label(struct tcp *t, int lane);
/* The exchange is over: nobody is waited for. */
void tcp_rest(struct tcp *t, int lane);

/* ---- tcp.c ---- */

/* The calls among all ranks; any t->exchange carries them. */
enum error tcp_meet(struct link *l, int lane, const struct call *c, void *mine, void **at);
enum error tcp_sync(struct link *l, int lane);
enum error tcp_alloc(struct link *l, size_t bytes, void **out);
/* The end of opening a link of all ranks: measures, and opens. */
MUST_CHECK enum error tcp_begin_use(struct link *l);
#define TCP_LINK_OPS                                                                                                   \
    .lazy = true, .meet = tcp_meet, .sync = tcp_sync, .alloc = tcp_alloc, .fail = tcp_fail, .failure = tcp_failure,    \
    .note = tcp_note, .arrival = tcp_arrival, .poke = tcp_poke, .left = tcp_left

/* ---- tcp_health.c ---- */
MUST_CHECK enum error health_open(struct tcp *t); /* streams are open */
void health_close(struct tcp *t);
/* "rank 3 (hostB, pid 4711)" */
void tcp_name(const struct link_params *p, int rank, char out[NAME_MAX_BYTES]);
/* These four are called with the mutex, but for health_announce. */
void health_tell_all(struct tcp *t, unsigned kind); /* a frame of that kind */
struct sighting health_seen(const struct tcp_peer *p);
/* A peer is lost: "has died". True when the group has settled on a failure, which the caller then
 * announces without the mutex. */
MUST_CHECK bool health_lost(struct tcp *t, const struct tcp_peer *p, const char *how);
void health_announce(struct tcp *t);
/* Some time from now, for waits on t->changed. */
struct timespec tcp_until(double seconds);

/* ---- tcp_watch.c ---- */
/* Looks around while the lane's thread waits: for the failure, for calls that differ, for the deadline. */
MUST_CHECK enum error tcp_watch(struct tcp *t, int lane);
/* The message of 'peer' was changed on the way: fails the group. */
MUST_CHECK enum error tcp_changed(struct tcp *t, int lane, int peer);
/* The stream to 'peer' is broken: the control stream will say why. */
MUST_CHECK enum error tcp_broken(struct tcp *t, int lane, int peer);
