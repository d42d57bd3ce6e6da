/* The inside of the link over TCP.
 *
 * Control streams join neighbours in a tree over all ranks (tcp_tree.c); the higher rank dials the lower when the group
 * is opened, and a thread of each rank serves them (tcp_control.c). Messages pass on streams of one direction, one for each lane and pair of ranks, which the sender dials when
 * it first has something to send there (tcp_line.c). So a rank has streams to those with whom it works, not to all.
 *
 * A rank dials the other's port, a door (transport/door): both prove in TLS that they hold the run's key, and the
 * dialer's first message is a hello, which says whose stream it is. After the welcome TLS ends, and nothing follows but
 * messages (label, its seal; bytes, their seal) on a lane, or frames of one size with their seals on control. The keys
 * of the seals come from that connection's TLS, so nothing can be changed, left out, repeated or taken from another
 * stream. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/memory.h"
#include "transport/base/condition.h"
#include "transport/base/secret.h"
#include "transport/door/door.h"
#include "transport/link/seal.h"
#include "transport/link/words.h"

#include <stdatomic.h>

enum { CONTROL = LINK_WAYS, STREAMS };

/* ---- the hello (tcp_dial.c, tcp_port.c) ---- */

enum { HELLO_KIND = 32 };
struct hello {
    struct door_head head;
    uint64_t group;
    int64_t dialed; /* when, by the dialer's clock_ns: by it the streams that one dialer has opened are in order */
    uint32_t from, to, size, kind; /* kind: a way or CONTROL */
    struct seal_ciphers ciphers;   /* of 'from', which dials */
};
static inline struct hello hello_of(const struct link_params *p, int to, uint32_t kind) {
    return (struct hello){.head = door_head(HELLO_KIND, sizeof(struct hello)),
                          .group = p->group,
                          .from = (uint32_t)p->rank,
                          .to = (uint32_t)to,
                          .size = (uint32_t)p->size,
                          .kind = kind,
                          .ciphers = seal_ciphers()};
}
const char *port_key(const struct port *p);
struct tcp;
/* From here on tree_came gets every stream of the link's group, those that came before, too. */
void port_serve(struct port *p, struct tcp *t);
void port_unserve(struct port *p, const struct tcp *t);
/* Opens the stream of that hello, but for the time, which is set: waits for the peer's port until clock_ns() is 'deadline', never for a thread of the
 * peer. */
MUST_CHECK enum error tcp_dial(const struct link_params *p, const struct hello *h, int64_t deadline,
                               struct stream *out);

/* ---- the link ---- */

/* What a rank reports to a neighbour: of itself, and of all ranks that are behind it, seen from there. */
struct tcp_stand {
    int32_t rank, unused;
    struct call call; /* its last on the lane */
};
struct tcp_span {                 /* of a lane */
    struct tcp_stand least, most; /* whoever has come to the fewest calls, and to the most */
    struct sighting seen;         /* of 'least' */
};
struct tcp_report {
    int32_t missing;      /* a rank that has not joined the group; -1: all have */
    int32_t heir, degree; /* the lowest of the sender's neighbours, and how many there are */
    int32_t unused;
    struct sighting seen; /* of the sender */
    struct tcp_span lane[LANES];
};
/* Each may be what those before it have caused: a fault; a peer has ended or does not come; a stream broke off. */
enum cause { FAULTY, ENDED, BROKEN_OFF };
struct tcp_verdict {
    int32_t error, origin; /* enum error; the rank that found it */
    uint32_t cause;        /* enum cause */
    char reason[REASON_MAX];
};
enum { LEAVERS = 128 };
struct tcp_leavers {
    int32_t n, rank[LEAVERS];
};
enum frame_kind { FRAME_STATE = 1, FRAME_ASK = 2, FRAME_FAIL = 4, FRAME_LEAVE = 8 };
struct tcp_frame {
    uint32_t kind;
    uint32_t last; /* FRAME_FAIL: the sender knows the verdicts of all ranks behind it */
    union {
        struct tcp_report report; /* FRAME_STATE, FRAME_ASK: who hears it is to report, too, and to ask on */
        struct tcp_verdict verdict;
        struct tcp_leavers leavers;
    };
    uint8_t seal[SEAL_BYTES]; /* of what stands before it */
};

struct tcp_line { /* a stream, and how its directions are sealed */
    struct stream stream;
    int fd;                /* the stream's, which owns it; -1: it had ended */
    int64_t dialed;        /* of the hello */
    _Atomic bool used;     /* something has come on it */
    struct sealer out, in; /* of a lane, only that of its direction is open */
    uint32_t kind;         /* a way or CONTROL */
    struct tcp_line *next; /* of t->lines */
};
struct tcp_peer {
    struct tcp_line *_Atomic to[LINK_WAYS], *_Atomic from[LINK_WAYS]; /* NULL: there is none yet (tcp_line.c) */
    _Atomic int64_t left; /* when it was heard that it has left; 0: it has not */
    int leaver;           /* at place i: the rank that was the i-th to be heard to have left */
};
struct tcp_near { /* a neighbour in the tree of control; t->mutex protects it */
    int rank;
    struct tcp_line *line; /* NULL: it has not joined yet */
    struct tcp_frame out, in;
    size_t out_left, in_done; /* bytes: to be sent of 'out'; that have come of 'in' */
    bool ended;
    unsigned due;               /* kinds of frames to be sent */
    int leavers_told;           /* of t->nleavers */
    int64_t heard, asked, asks; /* when something was last heard of it; when it asked last, and was asked */
    bool warned;                /* of its silence */
    struct tcp_report report;   /* its last */
    int64_t reported;           /* when; 0: never */
    bool told, concluded;       /* verdicts of all behind it, or of all on this side, have been exchanged */
    bool heals;                 /* it is gone, and this rank is to dial its heir */
    int awaited;                /* it is gone: how many of its other neighbours have still to come */
    struct tcp_near *next;
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
    int peer, fd; /* fd -1: the stream has not come */
    const struct incoming *in;
    struct label label;
    uint8_t head[SEAL_BYTES], tail[SEAL_BYTES];
    bool labelled;
    size_t sealed, done, total; /* as above */
    size_t held;                /* bytes in 'piece' that the sink has not got yet */
    char *piece;                /* for sinks that do not only copy */
    struct sealer *sealer;
    _Atomic bool *used; /* the line's */
};
static inline bool only_copies(const struct receiving *r) {
    return r->in->sink == sink_copy;
}
struct tcp_vigil { /* of one exchange */
    int64_t start;
    size_t progress;
    bool warned;
    double asks; /* seconds of waiting after which it asks; 0: it has not said what it waits in */
};
struct tcp_lane {
    struct sending out;
    struct receiving in;
    const struct call *label;
    struct tcp_vigil vigil;
    struct call met;           /* the last; t->mutex's */
    char waits[DESCRIBED_MAX]; /* in what its thread waits, "" : it does not; t->mutex's */
    int awaited;               /* the rank that is waited for; -1: none */
    int bell;                  /* an eventfd: a stream has come for it; -1: none */
};

enum judging { FINE, SETTLING, SETTLED };
struct tcp {
    struct link link;
    enum seal_kind seals, control_seals; /* of lanes, and of control */
    const struct link_ops *own;          /* as opened, and not as emulated: its exchange carries what this link needs */
    void *carried;                       /* another's own */
    _Atomic bool opened;                 /* the caller's callbacks may be asked */
    struct tcp_lane lane[ALL_LANES];
    struct tcp *next; /* of those that the port serves */
    int arrivals;     /* an epoll of the streams on which messages by tags come; -1: none */

    /* The control thread (tcp_control.c), and its own. */
    pthread_t control;
    bool controlled;          /* it runs */
    int events, control_bell; /* an epoll, and an eventfd that wakes it; -1: none */
    int64_t beaten, beats;    /* when the last beat was, and when the next is due; t->mutex protects them */
    bool announced;           /* the failure, to 'inside' */
    struct link *inside;      /* of the ranks of this host, which is to fail with this link; NULL: none */

    struct note note;

    pthread_mutex_t mutex; /* taken after a port's */
    pthread_cond_t changed;
    struct tcp_near *near;
    struct tcp_line *lines; /* all that there were: a lane's thread may still use their descriptors */
    int nleavers;
    _Atomic int judging; /* enum judging */
    int64_t judging_since;
    struct tcp_verdict verdict;
    bool joined;           /* all ranks have: this one knows it */
    bool closing, stopped; /* it takes leave; it has */
    struct tcp_peer peers[];
};

static inline struct tcp *tcp_of(struct link *l) {
    return (struct tcp *)l;
}
/* Wakes who waits for that eventfd. */
void eventfd_ring(int fd); /* tcp_control.c */

/* The descriptor of a stream, which nng does not tell: the one socket of this process that has its two addresses. */
MUST_CHECK enum error stream_descriptor(nng_stream *s, int *out); /* tcp_address.c */

/* ---- tcp_line.c ---- */
/* ns: after it was heard that a rank has left, a stream that it had dialed may still be on its way from the port. */
enum { LEFT_FOR_GOOD = 200000000 };
MUST_CHECK enum error lines_open(struct tcp *t);
void lines_close(struct tcp *t);
/* The stream is the line's, or freed; the line is the link's. h: the hello of whoever dialed it. Without the mutex. */
MUST_CHECK enum error line_open(struct tcp *t, const struct stream *s, const struct hello *h, struct tcp_line **out);
/* With the mutex: a stream that another rank has dialed to send on it. */
void line_came(struct tcp *t, int from, uint32_t way, struct tcp_line *line);
/* The line on which the lane sends to that peer: dials it, if there is none. */
MUST_CHECK enum error line_to(struct tcp *t, int lane, int peer, struct tcp_line **out);
/* The line on which the lane receives from that peer; NULL: it has not come. */
struct tcp_line *line_from(struct tcp *t, int lane, int peer);
/* The line has ended. True: nothing had come on it, so another may; false: the peer has ended it. */
bool line_drop(struct tcp *t, int lane, int peer, int fd);
/* With the mutex: all of them end, so that no lane's thread waits. */
void lines_end(struct tcp *t);

/* ---- tcp_stream.c ---- */
MUST_CHECK enum error lanes_open(struct tcp *t);
void lanes_close(struct tcp *t);
/* For whoever carries messages otherwise: the lane begins an exchange; a label has come. */
void tcp_prepare(struct tcp *t, int lane, const struct call *label, const struct outgoing *out,
                 const struct incoming *in);
MUST_CHECK enum error tcp_check_label(struct tcp *t, int lane);
/* The exchange is over: nobody is waited for. */
void tcp_rest(struct tcp *t, int lane);

/* The two halves of exchange: begin starts both directions and waits for neither; end must follow. */
MUST_CHECK enum error tcp_begin(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                                const struct incoming *in);
MUST_CHECK enum error tcp_end(struct link *l, int lane);
enum error tcp_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                        const struct incoming *in);

/* ---- tcp.c ---- */
MUST_CHECK enum error tcp_check_params(const struct link_params *p);
/* Like link_ops.open, for a link with the given ops: all ranks hear of each other from here on, and messages pass
 * between those that exchange some. Its callbacks are not called before it is opened. inside: see struct tcp. */
MUST_CHECK enum error tcp_open(const struct link_params *p, const struct link_ops *ops, struct link *inside,
                               struct link **out);
void tcp_close(struct link *l);
/* The half of meet that shows a call to others. */
void tcp_publish(struct link *l, int lane, const struct call *c);
/* Ranks who[0..n), of which this one is who[at]. who NULL: all ranks. */
struct circle {
    const int *who;
    int n, at;
};
/* All ranks of the circle have called as often as this one. */
MUST_CHECK enum error tcp_gather(struct link *l, int lane, struct circle c);
/* Measures alpha and beta among these ranks. */
MUST_CHECK enum error tcp_measure(struct link *l, struct circle c);
/* The end of opening a link of all ranks: measures, and opens. */
MUST_CHECK enum error tcp_begin_use(struct link *l);

/* Slots of the ops. */
enum error tcp_meet(struct link *l, int lane, const struct call *c, void *mine, void **at);
enum error tcp_sync(struct link *l, int lane);
void tcp_note(struct link *l, const char *doing, int64_t step);
enum error tcp_arrival(struct link *l, int *peer);
void tcp_poke(struct link *l);
bool tcp_left(struct link *l, int rank);
#define TCP_LINK_OPS                                                                                                   \
    .lazy = true, .meet = tcp_meet, .sync = tcp_sync, .fail = tcp_fail, .failure = tcp_failure, .note = tcp_note,      \
    .arrival = tcp_arrival, .poke = tcp_poke, .left = tcp_left

/* ---- tcp_tree.c ---- */
/* A stream of the group, which is the link's or freed. Waits for nothing: it is called with the port's mutex. */
void tree_came(struct tcp *t, const struct hello *h, const struct stream *s);
MUST_CHECK enum error tree_open(struct tcp *t); /* waits until all ranks have joined */
void tree_close(struct tcp *t);
/* With the mutex. */
struct tcp_report tree_report(struct tcp *t, const struct tcp_near *to); /* to NULL: of all ranks */
struct sighting tree_seen(const struct tcp *t, int rank);
static inline bool near_is_open(const struct tcp_near *p) {
    return p->line && !p->ended;
}
/* It has ended, or counts as lost: whoever was its neighbour becomes its heir's. */
void tree_gone(struct tcp *t, struct tcp_near *p);
/* Its stream has ended: it has left, or it has died; or its dialer has given it up, while the group is opened. */
void tree_ended(struct tcp *t, struct tcp_near *p);
/* Dials the heirs of those that are gone; meanwhile the mutex is free. Of the control thread. */
void tree_mend(struct tcp *t);

/* ---- tcp_health.c ---- */
enum error tcp_fail(struct link *l, enum error err, const char *reason);
enum error tcp_failure(struct link *l);
/* "rank 3 (hostB, pid 4711)" */
void tcp_name(const struct link_params *p, int rank, char out[NAME_MAX_BYTES]);
/* These are called with the mutex; the frames leave with the control thread's next turn. */
void health_tell_others(struct tcp *t, const struct tcp_near *but, enum frame_kind kind);
void health_ask(struct tcp *t, const struct tcp_near *but); /* all neighbours but that one */
/* Makes p->out the most urgent frame that is due; false: none is. */
bool health_frame(struct tcp *t, struct tcp_near *p);
/* Understands p->in. */
void health_hear(struct tcp *t, struct tcp_near *p);
/* A rank is lost: "has died". */
void health_lost(struct tcp *t, int rank, enum cause cause, const char *how);
/* A verdict of this rank's own: none is made any more once there is one. */
void health_judge(struct tcp *t, enum error err, enum cause cause, const char *reason);
/* Settles on the verdict when all neighbours have sent theirs. */
void health_settle(struct tcp *t);
/* Tells all ranks that this one leaves, passes on what it hears for a moment, and stops the control thread. Without the
 * mutex. */
void health_leave(struct tcp *t);
/* Seconds after which a rank that waits asks, at first. */
double health_period(const struct tcp *t);

/* ---- tcp_control.c ---- */
/* After so many heartbeats a rank that is stopped counts as lost: whoever is lost has been found. */
enum { PATIENCE = 3 };
MUST_CHECK enum error control_open(struct tcp *t);
void control_close(struct tcp *t);
/* The thread has a turn when something happens on that descriptor, and when it is woken. */
MUST_CHECK bool control_watch(const struct tcp *t, int fd);
void control_wake(const struct tcp *t);

/* ---- tcp_watch.c ---- */
/* What this rank does on the lane, in words. */
void tcp_describe(const struct tcp *t, int lane, char out[DESCRIBED_MAX]);
/* Fails the group because the lane's call takes too long: with words for a rank that has not come
 * to it, else with those given. */
enum error tcp_overdue(struct link *l, int lane, const char *otherwise);
/* Looks around while the lane's thread waits: for the failure, for calls that differ, for the deadline. */
MUST_CHECK enum error tcp_watch(struct tcp *t, int lane);
/* The message of 'peer' was changed on the way: fails the group. */
MUST_CHECK enum error tcp_changed(struct tcp *t, int lane, int peer);
/* The stream to 'peer' is broken: the control stream will say why. */
MUST_CHECK enum error tcp_broken(struct tcp *t, int lane, int peer);
