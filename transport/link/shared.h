/* The inside of the links over shared memory. */
#pragma once
#include "transport/link/board.h"

struct shared {
    struct link link;
    struct meeting *meeting;
    struct board *board;
    struct board_member *me;
    uint32_t steps[LANES];  /* syncs so far */
    uint32_t rounds[LANES]; /* of the gate, likewise */
    bool crowd;             /* there are more than CROWD ranks, which meet at a gate */
    bool roomy;             /* each rank has a core to itself */
    uint64_t space;         /* process_space of this rank */
    bool lent[LANES];       /* what the board lends this rank has memory */
    _Atomic bool poked;     /* the wait in arrival is to end */
    _Atomic int watched;    /* the rank that was looked at last, whether it has died */
    /* Pipes that have memory, as this rank knows: (LINK_WAYS, 2, size), those to and those from each. */
    _Atomic bool opened[];
};
static inline size_t opened_index(const struct shared *s, int way, bool in, int peer) {
    return ((size_t)way * 2 + in) * (size_t)s->link.params.size + (size_t)peer;
}

enum error shared_exchange(struct link *l, int lane, const struct call *label, const struct outgoing *out,
                           const struct incoming *in);
enum error shared_arrival(struct link *l, int *peer);
void shared_poke(struct link *l);
bool shared_left(struct link *l, int rank);
enum error shared_fail(struct link *l, enum error err, const char *reason);
enum error shared_failure(struct link *l);
enum error shared_lost(struct link *l, int lane);

/* ---- waiting (wait.c) ---- */

/* In which numbers name processes for this one; ranks where they differ cannot see each other die. */
uint64_t process_space(void);

/* Counters only grow, modulo 2^32. */
static inline bool reached(const _Atomic uint32_t *counter, uint32_t want) {
    return (int32_t)(atomic_load(counter) - want) >= 0;
}
/* Until one of n counters, each written by its peer, is where it is wanted. */
struct wait {
    int n;
    int peer[2];
    const _Atomic uint32_t *counter[2];
    uint32_t want[2];
    bool entering;     /* for the message: the peer has not come to the call at all */
    bool gate;         /* the counter is the gate's, and the peer anybody who has not come to it ... */
    uint32_t sequence; /* ... for this call, or this sync */
};
MUST_CHECK enum error wait_for(struct shared *s, int lane, const struct wait *w);
/* For a thread that waits, once. */
void wait_take_short_turns(void);
/* Through the gate, as the last of all ranks or when that has come. */
MUST_CHECK enum error gate_pass(struct shared *s, int lane, bool entering, uint32_t sequence);
/* Wakes who sleeps there, whatever he waits for. */
void bell_ring(struct bell *b);
/* After a counter has been advanced: wakes the peer if it sleeps for that. */
void wake_peer(struct shared *s, int lane, int peer);
void wake_peers(struct shared *s, int lane);
/* Wakes all that sleep, whatever they wait for: something happened to the group. */
void wake_all(struct shared *s);
