/* The process group: ranks that move and reduce memory together. It knows neither models nor data.
 *
 * Collectives are matched by the order of calls; each carries (sequence, kind, type, count, op, root), and ranks that
 * disagree all fail with a message that names both sides. Every wait has a deadline. Once failed, a group stays failed.
 * One thread a rank calls into a group; work runs on the caller (LANE_INLINE) or on the group's communication lane, a
 * thread that runs what it is given in order; or on LANE_AHEAD, a second such thread, so that what is needed soon does
 * not queue after what is not. Across ranks, the sequence of calls must be the same on each lane. */
#pragma once
#include "engine/base/emulation.h"
#include "engine/base/links.h"
#include "engine/base/memory.h"
#include "engine/device/runtime.h"
#include "transport/base/place.h"
#include "transport/base/types.h"

struct group;
struct work;
struct group_params {
    int rank, size;
    const char *link;      /* a name of links.def: "thread", "shm", "tcp", "hosts" */
    const char *algorithm; /* a name of algos.def, "auto", or the path of a plug-in */
    const char *digest;    /* that the plug-in must have; NULL: any */
    enum order order;
    int leaves;       /* of the tree that the ranks which give take runs of (engine/base/leaves.h), a power
                    of two; 0: each is a leaf */
    int idle;         /* ranks below it give nothing to group_reduce and group_reduce_scatter: servers that only
                 add. The others are then numbered from it in the order of addition */
    double timeout;   /* seconds a collective may take; a warning is logged after a sixth of it (10 s
                       of 60) */
    double heartbeat; /* seconds of silence after which a rank on another host is lost, three times as many while that
                       host answers; 0: 10 */
    struct meeting *meeting;     /* where the ranks of this host find each other: see launch/launch.h */
    const struct roster *roster; /* NULL: all ranks are on this host. Borrowed, as are the next two */
    struct port *port;           /* this rank's, for links to other hosts; else NULL */
    struct recorder *recorder;   /* of this rank; NULL: none */
    bool mail;                   /* messages by tags (group_post) are possible, in its subgroups, too */
    enum secure secure;          /* the same on all ranks */
    size_t kept;              /* bytes of messages that this rank may keep until it asks for them; 0: half of the host's
                    memory */
    uint64_t id;              /* of the group, the same on all ranks; no two at a time have one */
    struct emulation emulate; /* its links, too, are borrowed */
    /* How buffers on accelerators travel: "auto" or a name of carriers.def, the same on all ranks. NULL: all buffers
     * are the host's. */
    const char *carrier;
    struct device *device; /* with a carrier: this rank's accelerator; NULL or a host's: it has none */
    bool bitwise;          /* with a carrier: floats are added in 'order' there, too, not in the library's own */
    bool repeatable;       /* with a carrier: the same calls again give the same bits */
    const char *interface; /* with a carrier: the address or the name of the network interface that a library of its
                              own is to use; NULL: the one it takes */
};
/* Collective: returns when all ranks are there. */
MUST_CHECK enum error group_open(const struct group_params *p, struct group **out);
void group_close(struct group *g); /* waits for no one */
int group_rank(const struct group *g);
int group_size(const struct group *g);
/* This rank's place in the order of addition, and so which run of leaves is its own: its rank, but
 * where ranks of several hosts are mixed. In ORDER_TREE each host's stand together, so that they are
 * a subtree where that can be and a hierarchical sum adds in the same order as any other. */
int group_position(const struct group *g);
/* Collective over g: a group of the ranks that give the same color, in the order of (key, rank).
 * color < 0: this rank is in none (*out NULL). Subgroups may overlap and live as long as they like,
 * but not longer than g's roster and port. */
MUST_CHECK enum error group_split(struct group *g, int color, int key, struct group **out);
/* The algorithm of all_reduce for this many bytes, and the reason (for the banner; lives as long as the group). */
const char *group_choice(const struct group *g, size_t bytes, const char **why);
/* Other algorithms than its own by which this group can make all_reduces with the same bits: names of algos.def, at most
 * 'most'. The same on all ranks; gives how many. */
int group_others(const struct group *g, const char **names, int most);
/* From the next call on, which is the same one on all ranks: one of these, or "auto". No call is under way. */
void group_use(struct group *g, const char *algorithm);

/* What guards messages between hosts: "sealed", "encrypted" or "checked"; NULL: the link is of one host. */
const char *group_guard(const struct group *g);

/* The carrier of buffers on accelerators, and the reason (for the banner; as long as the group). NULL: there are
 * none. */
const char *group_carrier(const struct group *g, const char **why);

/* Memory that peers can read in place. Collective and symmetric: every rank asks for the same sizes in the same order.
 * Zeroed. Other memory may be passed to any collective too, and is copied (see algo/lent.c). The memory goes
 * with the meeting. A rank with an accelerator gets memory of that. */
MUST_CHECK enum error group_alloc(struct group *g, size_t bytes, void **out);
/* sparse: pages of what it gives cost nothing before they are touched, nor after memory_release. */
struct allocator group_allocator(struct group *g, bool sparse);

enum lane { LANE_INLINE, LANE_COMM, LANE_AHEAD };
enum { GROUP_WORKS = 256 }; /* of each lane but LANE_INLINE that may be begun and not waited for */

/* Any buffer may lie on this rank's accelerator (but all ranks' of a call, where the carrier is not "staged"; send and
 * recv are free). It then takes the values that it has after all that was asked of LANE_COMPUTE before the call. On
 * LANE_INLINE the call returns when it is done, or no later than it stands in order on LANE_COMPUTE: what is asked of
 * that lane afterwards finds the result. Work of LANE_COMM runs on the accelerator's LANE_EXCHANGE, beside computing,
 * and is done when work_wait returns; on LANE_AHEAD only the host's buffers are possible. Some carriers do one call at a time: over these the sequence of calls must be the
 * same over both lanes. */

/* How a call runs. On LANE_INLINE it has finished on return, and needs no handle. */
struct dispatch {
    enum lane lane;
    struct work **work; /* where its handle goes; NULL: nowhere */
    int64_t label;      /* the caller's own, which the watch is told */
    int64_t apart;      /* of a sum: this rank gives one term for each subtree of its run of leaves, which lie so
                 many elements apart; the sum lands where the first lies. 0: one term for its run */
    bool givers;        /* of an all-gather: only ranks that give to sums (group_params.idle) receive */
    void *own; /* in the host's memory: where this rank's part of a reduce_scatter or of a scatter goes, or lies in a
                  gather of which it is not root; NULL: in buf */
};
#define GROUP_ON(on, handle) ((struct dispatch){.lane = (on), .work = (handle)})
#define GROUP_INLINE GROUP_ON(LANE_INLINE, NULL)
#define GROUP_COMM(handle) GROUP_ON(LANE_COMM, handle)

/* Each starts a collective. Buffers are borrowed until work_wait. Counts are in elements, any count,
 * zero included. In place: send == recv. */
MUST_CHECK enum error group_all_reduce(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t,
                                       enum redop op);
/* The sum lands at root; other ranks' buffers keep their content. */
MUST_CHECK enum error group_reduce(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t,
                                   enum redop op, int root);
MUST_CHECK enum error group_broadcast(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t,
                                      int root);
/* Rank r's part of buf is [part[r], part[r + 1]) in elements (size + 1 entries). reduce_scatter:
 * each rank's own part (or how.own) holds the sum afterwards, the rest keeps its content. all_gather: every part
 * from its owner. scatter: root's parts to their owners. gather: to root. Of the memory of a rank that is not root, these
 * two touch only its own part; if how.own says where that lies, the rank needs no buf. */
MUST_CHECK enum error group_reduce_scatter(struct group *g, struct dispatch how, void *buf, const int64_t *part,
                                           enum dtype t, enum redop op);
MUST_CHECK enum error group_all_gather(struct group *g, struct dispatch how, void *buf, const int64_t *part,
                                       enum dtype t);
MUST_CHECK enum error group_scatter(struct group *g, struct dispatch how, void *buf, const int64_t *part, enum dtype t,
                                    int root);
MUST_CHECK enum error group_gather(struct group *g, struct dispatch how, void *buf, const int64_t *part, enum dtype t,
                                   int root);
/* send[part] to rank r is [to[r], to[r + 1]), what comes from it goes to [from[r], from[r + 1]) of
 * recv; both have size + 1 entries. The buffers do not overlap. */
MUST_CHECK enum error group_all_to_all(struct group *g, struct dispatch how, const void *send, const int64_t *to,
                                       void *recv, const int64_t *from, enum dtype t);
/* A receive takes what its peer sends on the same lane, in order. A send may wait for its receive: two ranks that send
 * to each other first, on one lane, wait until the deadline, as with MPI's. Messages (below) never do. */
MUST_CHECK enum error group_send(struct group *g, struct dispatch how, const void *buf, int64_t count, enum dtype t,
                                 int peer);
MUST_CHECK enum error group_recv(struct group *g, struct dispatch how, void *buf, int64_t count, enum dtype t,
                                 int peer);
/* Both at once with one peer, which makes the same call; the buffers do not overlap. */
MUST_CHECK enum error group_swap(struct group *g, struct dispatch how, const void *send, void *recv, int64_t count,
                                 enum dtype t, int peer);
/* Messages, where params.mail is set: beside the calls, and in no order with them. A post waits for no receive: what comes
 * before it is asked for is kept in the receiver's memory. A message is received by rank (or GROUP_ANY) and tag, and those
 * of one rank and one tag in the order in which they were posted. Both ends give the same type and count. Up to
 * GROUP_WORKS posts may be begun and not waited for; of takes, any number. Buffers are the host's. */
enum { GROUP_ANY = -1 };
struct group_message {
    void *buf; /* of a post: only read */
    int64_t count;
    enum dtype type;
    int peer;
    int64_t tag;
    int *source; /* of a take: where its rank goes, before work_wait returns; NULL: nowhere */
};
MUST_CHECK enum error group_post(struct group *g, const struct group_message *m, struct work **out);
MUST_CHECK enum error group_take(struct group *g, const struct group_message *m, struct work **out);

/* Each rank's floats become what a share makes of them (engine/plugin.h), which is one call: all ranks make it with the same
 * count and the same of all below. What these point to is borrowed until work_wait. */
MUST_CHECK enum error group_mix(struct group *g, struct dispatch how, const struct mixing *m, float *buf,
                                int64_t count);
MUST_CHECK enum error group_barrier_on(struct group *g, struct dispatch how);
MUST_CHECK static inline enum error group_barrier(struct group *g) {
    return group_barrier_on(g, GROUP_INLINE);
}

/* This thread waits for the next call beside it, or post, as soon as it has started it: no other thread is woken for that
 * call, and the wait runs it. */
void group_wait_at_once(struct group *g);
/* Waits until it is done; gives the slot back. The result of the work. */
MUST_CHECK enum error work_wait(struct work *w);
bool work_done(struct work *w);

/* The same of a take, but no longer than until that time (clock_ns): *done says whether it is over, and only then is the
 * slot given back. Such a wait has no deadline, but finds ranks that have died or left. */
MUST_CHECK enum error work_wait_until(struct work *w, int64_t until, bool *done);
/* Fails the group as a call whose deadline has passed: words say who is late. */
MUST_CHECK enum error group_late(struct group *g, const char *words);

/* Fails the group on every rank, with a reason that all of them report. Any thread; the first reason wins. */
void group_abort(struct group *g, const char *reason);
/* Sets the current work of this rank, for the others' messages: "backward of conv4". The text is copied; cheap (a few
 * stores). */
void group_note(struct group *g, const char *doing, int64_t step);

/* ---- for those who measure ---- */
/* Collective: what to add to this rank's clock_ns to have rank 0's, and the time that the message took which has told (the
 * error is at most half of it; 0: it is the same clock). */
MUST_CHECK enum error group_compare_clocks(struct group *g, int64_t *offset, int64_t *round_trip);
struct group_event {  /* a call that has run, or (waited) that somebody waited for */
    const char *name; /* "all_reduce"; static */
    enum lane lane;   /* that it ran on; of a wait, that it was for */
    bool waited;
    int64_t label, bytes, began, ended; /* ns, of clock_ns */
};
/* Told at the end of each call, on the thread that ran it (calls of one lane never at the same time), and of each
 * work_wait for LANE_COMM on the waiting one. Must not block. */
typedef void (*group_watch_fn)(void *user, const struct group_event *e);
/* NULL: nobody watches, which costs nothing. Not while work is in flight: a call that ends just then may still tell the
 * one before, so who that is stays until the group is closed. */
void group_watch(struct group *g, group_watch_fn watch, void *user);

struct group_stats {
    int64_t sent, received; /* payload bytes that crossed to and from other ranks */
    int64_t busy_ns;        /* that the communication lane worked */
    int64_t collectives;
};
void group_get_stats(const struct group *g, struct group_stats *out);
