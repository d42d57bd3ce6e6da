/* Links that are not there, as comm.emulate describes them. Runs (transport/link/emulate.c), the simulator
 * (lab/predict/network.c), the formulas and the choice of an algorithm read this one description.
 *
 * Each rank has a port with a way out and a way in, and from each rank to each other there is a link. A message of n
 * bytes that is handed over at time t
 *
 *     leaves        from s = max(t, the way out is free), for n / its rate
 *     is delayed    by what jitter and lost segments cost it
 *     passes        the link, from when that is free, for n / its rate, where it has one
 *     arrives       one latency later, from when the way in is free, for n / its rate
 *
 * and has come when the last of these has ended: it passes all of them at once (cut-through).
 *
 * Jitter is exponentially distributed. A message is sent in segments of 1,448 bytes, and each is lost with the same
 * probability: it comes a round trip later, and if it is one of the last three, after which nothing tells the sender
 * that it is missing, 200 ms after that round trip, as Linux waits. What is drawn follows from the seed, the sender, its
 * lane and the number of its message. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rank_set {
    int count;
    const struct rank_range { int first, last; } * of;
};
/* An exception. What it does not say is below 0. Rates are those of the ports of 'ranks', where 'to' is empty, and else
 * of each link from one of 'ranks' to one of 'to' and back; the rest is said of these links, or of all links of 'ranks'. */
enum emulated_key { EMULATED_BANDWIDTH, EMULATED_UP, EMULATED_LATENCY, EMULATED_JITTER, EMULATED_LOSS, EMULATED_KEYS };
struct emulated_links {
    struct rank_set ranks, to;
    bool one_way; /* not back */
    double value[EMULATED_KEYS];
};
struct emulation {
    double bandwidth, latency; /* bytes/s of each port, seconds; 0: unlimited, none */
    double up;                 /* bytes/s of each way out; 0: as bandwidth */
    double jitter;             /* seconds, the mean */
    double loss;               /* share of segments */
    uint64_t seed;
    int count;
    const struct emulated_links *links; /* of several that say the same of a link, the last counts */
    const int *number;                  /* what 'links' calls each rank; NULL: its number */
};
static inline bool emulation_on(const struct emulation *e) {
    return e->bandwidth > 0 || e->latency > 0 || e->up > 0 || e->jitter > 0 || e->loss > 0 || e->count > 0;
}
/* Whether messages of one size take different times. */
static inline bool emulation_varies(const struct emulation *e) {
    return e->jitter > 0 || e->loss > 0 || e->count > 0;
}
/* Whether some are drawn. */
bool emulation_draws(const struct emulation *e);

/* The rate of a port; 0: unlimited. */
double emulation_port(const struct emulation *e, int rank, bool out);
struct emulated_line {
    double bandwidth; /* of the link alone; 0: only the ports limit it */
    double latency, jitter, loss;
};
struct emulated_line emulation_line(const struct emulation *e, int from, int to);
/* How long a message is delayed: the n-th of its sender's lane. */
double emulation_delay(const struct emulation *e, int from, int to, double bytes, int lane, uint64_t n);
/* The slowest of all links between the first ranks, for formulas: its latency alone; seconds that a message takes longer,
 * in the mean; and seconds a byte. */
struct emulated_worst {
    double latency, alpha, beta;
} emulation_worst(const struct emulation *e, int ranks);

/* What makes no sense of so many ranks: the entry of 'links', and in *other one that undoes it. -1: all is well. */
enum { LINKS_OF_NOBODY = -1, LINKS_JOIN_NONE = -2 }; /* in place of *other: a rank is not there; no two ranks */
int emulation_find_wrong(const struct emulation *e, int ranks, int *other);
