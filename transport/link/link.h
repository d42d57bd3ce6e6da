/* A link moves bytes between this rank and its peers. It knows neither collectives nor floats. The kinds are listed in
 * engine/base/links.def. Every function that waits has a deadline (link_params.timeout without progress), looks for
 * ranks that left or died, and gives the group's failure once there is one.
 *
 * A link has three lanes for calls, each with flags and pipes of its own, so that they never meet, and where
 * params.mail is set, two for messages by tags (transport/mail.c), on which there is nothing but exchange: what leaves
 * on LANE_OUT comes on LANE_IN. One thread at a time works on a lane. */
#pragma once
#include "engine/base/emulation.h"
#include "engine/base/error.h"
#include "engine/base/limits.h"
#include "engine/base/links.h"
#include "transport/base/place.h"
#include "transport/base/types.h"
#include <stdint.h>

enum { LANES = 3, LANE_OUT = LANES, LANE_IN, ALL_LANES, DESCRIBED_MAX = 160 };
/* Between two ranks there is one way for each lane of calls, and one for messages. */
enum { MAIL_WAY = LANES, LINK_WAYS };
static inline int lane_way(int lane) {
    return lane < LANES ? lane : MAIL_WAY;
}
/* The peer's lane, on which it waits for what this rank does on 'lane'. */
static inline int lane_facing(int lane) {
    return lane < LANES ? lane : LANE_OUT + LANE_IN - lane;
}

/* The call of a rank, as its peers check it. */
struct call {
    uint64_t what;     /* kind, type, operation, root: compared, not understood */
    int64_t count;     /* compared */
    uint64_t detail;   /* compared */
    uint32_t sequence; /* of calls on this lane; compared */
};
static inline bool same_call(const struct call *a, const struct call *b) {
    return a->what == b->what && a->count == b->count && a->detail == b->detail && a->sequence == b->sequence;
}
/* Stands before the bytes of every message: by it ranks that are out of step notice before a byte is misread. */
struct label {
    struct call call;
    uint64_t bytes;
    int64_t stamp;
};

/* Whether it stands before what this rank expects. The detail of a call is compared where ranks meet. */
static inline bool label_fits(const struct label *l, const struct call *mine, size_t bytes) {
    const struct call *c = &l->call;
    return c->what == mine->what && c->count == mine->count && c->sequence == mine->sequence && l->bytes == bytes;
}

struct meeting;
struct link_params {
    int rank, size;
    double timeout;
    double heartbeat;            /* seconds of silence after which a peer on another host is lost (tcp_control.c) */
    struct meeting *meeting;     /* of the ranks on this host; NULL for a link that needs none */
    const struct roster *roster; /* NULL: all ranks are on this host */
    struct port *port;           /* this rank's; NULL for a link that needs none */
    bool mail;                   /* there are messages by tags: the same on all ranks */
    enum secure secure;          /* the same on all ranks */
    uint64_t group;              /* which group: streams of another are not taken for this one's */
    const int *names;            /* what messages call the ranks; NULL: their numbers here */
    void *user;
    /* The current call of this rank on the lane, for messages: "all_reduce 412 (4.0 MB)". */
    void (*describe)(void *user, int lane, char out[DESCRIBED_MAX]);
    /* A peer's call differs from mine: fails the link with words for it. */
    enum error (*disagree)(void *user, int lane, int peer, const struct call *mine, const struct call *theirs);
};

struct link { /* embedded first in each kind's own struct */
    const struct link_ops *ops;
    struct link_params params;
    bool patient[ALL_LANES];   /* waits may spin: the waiting thread has a core to itself */
    double alpha, beta;        /* seconds a message, seconds a byte: set by open, equal on all ranks */
    size_t lent_bytes;         /* of a lent memory; set by open, equal on all ranks */
    size_t slot_bytes;         /* that a message in a slot may have; likewise */
    const char *guard;         /* of messages between hosts: "sealed"; NULL: it has none. Set by open */
    struct emulated *emulated; /* of emulate.c; NULL: the link is as it is */
    int64_t asked[ALL_LANES];  /* when the lane's queue was given what it does (link_time of lane 0); else 0 */
};

struct outgoing {
    int peer;
    const void *data;
    size_t bytes;
    int64_t stamp; /* travels with the message, not understood */
};
/* What arrives is given to sink piece by piece, in order; offset and data are multiples of 64 bytes. Where it is only
 * to be copied, sink is sink_copy and ctx the memory: a link may then put it there itself. */
struct incoming {
    int peer;
    size_t bytes;
    void (*sink)(void *ctx, size_t offset, const void *data, size_t n);
    void *ctx;
    int64_t *stamp; /* where the sender's goes; NULL: nowhere */
};

/* An all_reduce, reduce or broadcast of the link's own. */
struct native_call {
    enum kind kind;
    enum dtype type;
    enum redop op;
    int root;
    int64_t count; /* elements */
    char *buf;
};

struct link_ops {
    const struct link_row *row; /* its line of links.def */
    const char *summary;
    bool lazy; /* see meet */
    /* Waits for no one, but for those that a far link must reach. *out is set only on success. */
    enum error (*open)(const struct link_params *p, struct link **out);
    /* Tells the peers that this rank has left; waits for no one. */
    void (*close)(struct link *l);

    /* Shows my call and waits for every peer's; at[r] = where rank r's 'mine' can be read and written by this rank, or
     * NULL. Two ranks that disagree fail. What this rank wrote before it, peers may read after it. A lazy link waits
     * only for those whose memory it gives (perhaps for nobody): there the messages that follow bear the call, and
     * ranks disagree when they read them. */
    enum error (*meet)(struct link *l, int lane, const struct call *c, void *mine, void **at);
    /* All ranks have called as often as this one. As meet, for the call of the last meet. */
    enum error (*sync)(struct link *l, int lane);
    /* Like sync, but among the ranks of this host. NULL: all ranks are on one host. */
    enum error (*sync_near)(struct link *l, int lane);
    /* Memory of rank r that all ranks can read: a small message laid there by its owner before the meet number
     * 'sequence' may be read after it, and is overwritten no earlier than two meets later. NULL: the link has none. */
    void *(*slot)(struct link *l, int lane, int rank, uint32_t sequence);
    /* Where peers can reach what this rank keeps at buf: *mine is buf, or the memory that the link
     * lends it on this lane, to lay a part of buf there. Any rank finds rank r's by lent. It is the
     * caller's from one sync to the next. NULL: the link has none. */
    enum error (*lend)(struct link *l, int lane, void *buf, void **mine);
    void *(*lent)(struct link *l, int lane, int rank);

    /* Sends and receives at once, so that ranks in a circle do not wait for each other; either may
     * be NULL. Both ends must give the same label and the same bytes. */
    enum error (*exchange)(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                           const struct incoming *in);

    /* Waits until a message begins to come on LANE_IN, from *peer then. *peer says the last one: ranks take turns. -1: there was none, but poke was called, or nothing happened. */
    enum error (*arrival)(struct link *l, int *peer);
    void (*poke)(struct link *l); /* any thread */
    /* Whether that rank has left, and the last that it sent on LANE_OUT has begun to be received. Any thread. */
    bool (*left)(struct link *l, int rank);

    /* Does an all_reduce, reduce or broadcast by itself (no half floats), in an order of its own;
     * an average is left undivided. NULL: the link cannot. */
    enum error (*native)(struct link *l, int lane, const struct native_call *c);

    /* Collective, on lane 0, after all have met and synced for it: zeroed memory that peers of this host can reach. Freed
     * with the meeting. sparse: see group_allocator. NULL: the link has none. */
    enum error (*alloc)(struct link *l, size_t bytes, bool sparse, void **out);

    /* Fails the link on all ranks; the first failure wins. Any thread. Returns the error that won, recorded. */
    enum error (*fail)(struct link *l, enum error err, const char *reason);
    /* The failure, recorded as this thread's error; ERR_NONE when there is none. */
    enum error (*failure)(struct link *l);
    /* While this rank waits for something else than its peers, now and then: fails the link when one
     * of them has died. NULL: the link sees it without being asked. */
    enum error (*lost)(struct link *l, int lane);
    /* Sets the current work of this rank, for the others' messages. */
    void (*note)(struct link *l, const char *doing, int64_t step);
};

/* All kinds; link_find gives NULL for an unknown name. */
const struct link_ops *const *link_kinds(int *count);
const struct link_ops *link_find(const char *name);
/* Whether peers may be on other hosts: the link then needs a port and a roster. */
static inline bool link_is_far(const struct link_ops *link) {
    return link->row->joins == JOINS_HOSTS;
}
/* The name of a rank in messages. */
static inline int link_rank_name(const struct link_params *p, int rank) {
    return p->names ? p->names[rank] : rank;
}
/* Fails the link with the words of this thread's last failure. */
MUST_CHECK enum error link_fail_own(struct link *l, enum error err);
/* A sink that copies to ctx. */
void sink_copy(void *ctx, size_t offset, const void *data, size_t n);

/* Gives an open link emulated ports (emulate.c). */
MUST_CHECK enum error link_emulate(struct link *l, const struct emulation *e);
/* Emulated time for the thread of a lane, which may lag behind the clock (ns); 0: the link is as it is. */
int64_t link_time(const struct link *l, int lane);
/* The thread of lane 0 has waited, since that time, for what ended at that time on another lane. */
void link_waited(struct link *l, int64_t since, int64_t ended);
