#include "lab/predict/exchange.h"

#include "engine/base/memory.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct message {
    int from, to;
    double bytes, begin;
};

static struct terrain exchange_terrain_of(const struct exchange *e, struct places *p) {
    p->size = e->size;
    p->terms = e->terms;
    return terrain_plan(p, e->net.plan.outside.alpha, e->net.plan.outside.beta, false, e->near);
}

enum error exchange_open(const struct network_plan *p, bool near, int leaves, struct exchange *out) {
    int per = p->per_host < p->devices ? p->per_host : p->devices;
    leaves = cost_leaves(leaves, p->devices);
    *out = (struct exchange){.size = p->devices, .near = near, .terms = places_terms(leaves, p->devices)};
    out->plain = emulation_varies(&p->links); /* rounds are not alike */
    out->own = leaves_subtrees(0, leaves_cut(leaves, p->devices, 1));
    out->locals = p->devices % per == 0 ? places_locals(leaves, p->devices, per) : 0;
    size_t n = (size_t)p->devices;
    TRY(network_open(p, &out->net));
    TRY_MEMORY(out->was = memory_new(n * sizeof *out->was));
    TRY_MEMORY(out->at = memory_new(n * sizeof *out->at));
    TRY_MEMORY(out->after = memory_new(n * sizeof *out->after));
    TRY_MEMORY(out->round = memory_new(n * sizeof *out->round));
    struct places places;
    out->gamma = exchange_terrain_of(out, &places).gamma;
    return ERR_NONE;
}

void exchange_close(struct exchange *e) {
    exchange_own_close(e);
    network_close(&e->net);
    memory_free(e->at);
    memory_free(e->after);
    memory_free(e->was);
    memory_free(e->round);
}

/* ---- a round: every rank sends at most one message, or one rank many ------------------------ */

static int exchange_by_begin(const void *a, const void *b) {
    const struct message *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : (x->to > y->to) - (x->to < y->to);
}

/* Sorts messages by when they begin: a port that several share passes first what comes first. */
static void exchange_in_order(struct message *m, int n) {
    bool sorted = true;
    for (int i = 1; i < n && sorted; i++) sorted = m[i - 1].begin <= m[i].begin;
    if (!sorted) qsort(m, (size_t)n, sizeof *m, exchange_by_begin);
}

/* Sends the n messages of e->round at once; adds: receivers also sum what comes, which bounds the rate. */
static void exchange_round(struct exchange *e, int n, bool adds) {
    double slowest = adds ? e->gamma : 0;
    for (int i = 0; i < n; i++) e->round[i].begin = e->at[e->round[i].from];
    if (e->net.shared) exchange_in_order(e->round, n);
    memcpy(e->after, e->at, (size_t)e->size * sizeof *e->at);
    for (int i = 0; i < n; i++) {
        const struct message *m = &e->round[i];
        struct passage p = network_pass(&e->net, m->from, m->to, m->bytes, m->begin, slowest);
        e->after[m->from] = fmax(e->after[m->from], p.left);
        e->after[m->to] = fmax(e->after[m->to], p.came);
    }
    double *was = e->at;
    e->at = e->after;
    e->after = was;
}

/* The time by which all ranks have moved on since they were at 'was'; < 0: not all by the same. */
static double exchange_ranks_moved(const struct exchange *e, const double *was, bool level) {
    double d = e->at[0] - was[0], most = 1e-7 * d;
    for (int r = 1; r < e->size; r++) {
        if (fabs(e->at[r] - was[r] - d) > most) return -1;
        if (level && fabs(e->at[r] - e->at[0]) > most) return -1;
    }
    return d;
}

/* To the next rank only one rank of a host sends to another host, so there is no order to find. */
static void exchange_one_shift(struct exchange *e, int distance, double bytes, bool adds) {
    bool shared = e->net.shared;
    e->net.shared = shared && distance > 1;
    for (int r = 0; r < e->size; r++) e->round[r] = (struct message){r, (r + distance) % e->size, bytes, 0};
    exchange_round(e, e->size, adds);
    e->net.shared = shared;
}

/* Adds 'times' more rounds like those since the mark, of which there were 'done'. */
static void exchange_repeat_rounds(struct exchange *e, const struct port_mark *since, int done, int times,
                                   double each) {
    for (int r = 0; r < e->size; r++) e->at[r] += each * times;
    network_repeat(&e->net, since, (double)times / done, each * times);
}

/* The number of rounds after which the same has happened everywhere: to each host, or each rack of them, what happened to the one
 * before it. */
static int exchange_period_of(const struct exchange *e) {
    const struct network_plan *p = &e->net.plan;
    return e->net.shared ? p->per_host * (p->per_rack ? p->per_rack : 1) : 1;
}

/* Each rank sends to the one 'distance' further, or when that is 0, to the one 1, 2, ... further, round after round.
 * When all ranks have twice moved on by the same time, the rest of the rounds does so too, because the rounds are the
 * same (or, of other distances, when ranks and ports are all alike and level): so it is added at once. */
static enum error rounds_alike(struct exchange *e, int distance, double bytes, bool adds) {
    struct port_mark mark;
    int count = e->size - 1, period = exchange_period_of(e);
    double last = -1;
    bool found = false;
    TRY(network_mark(&e->net, &mark));
    for (int k = 0; k < count; k++) {
        if (k % period == 0 && !found) {
            double d = k ? exchange_ranks_moved(e, e->was, !distance) : -1;
            int more = (count - k) / period;
            found = d > 0 && fabs(d - last) <= 1e-7 * d;
            last = d;
            if (found) exchange_repeat_rounds(e, &mark, k / period, more, d);
            if (found && (k += more * period) == count) break;
            memcpy(e->was, e->at, (size_t)e->size * sizeof *e->at);
        }
        exchange_one_shift(e, distance ? distance : k + 1, bytes, adds);
    }
    network_mark_free(&mark);
    return ERR_NONE;
}

/* Where ports are shared, every distance has other neighbours; of many distances some are tried, and each stands for
 * those that follow it. An odd stride does not miss what repeats with the size of hosts. */
static enum error rounds_sampled(struct exchange *e, double bytes) {
    enum { TRIED = 128 };
    int count = e->size - 1, stride = e->plain ? 1 : (count + TRIED - 1) / TRIED | 1;
    for (int k = 0; k < count; k += stride) {
        struct port_mark mark;
        double each = 0;
        int more = k + stride < count ? stride - 1 : count - k - 1;
        TRY(network_mark(&e->net, &mark));
        exchange_one_shift(e, k + 1, bytes, false);
        for (int r = 0; r < e->size; r++) each += (e->at[r] - e->after[r]) / e->size;
        exchange_repeat_rounds(e, &mark, 1, more, each);
        network_mark_free(&mark);
    }
    return ERR_NONE;
}

static enum error exchange_ring_rounds(struct exchange *e, double bytes, bool adds) {
    if (!e->plain) return rounds_alike(e, 1, bytes, adds);
    for (int k = 1; k < e->size; k++) exchange_one_shift(e, 1, bytes, adds);
    return ERR_NONE;
}

static enum error exchange_all_distances(struct exchange *e, double bytes) {
    return e->plain || e->net.shared ? rounds_sampled(e, bytes) : rounds_alike(e, 0, bytes, false);
}

static double exchange_part_of(const struct exchange *e) {
    struct places p;
    return (double)exchange_terrain_of(e, &p).part_bytes;
}

/* The terms that a rank gives, as the mean over all ranks but one, which has 'own' itself. */
static double exchange_terms_each(const struct exchange *e, int own) {
    return (double)(e->terms - own) / (e->size - 1);
}

/* ---- one server ----------------------------------------------------------------------------- */

void exchange_reduce(struct exchange *e, int root, double bytes) {
    double piece = exchange_part_of(e);
    for (double left = bytes; left > 0; left -= piece) {
        double some = fmin(left, piece);
        int n = 0;
        for (int r = 0; r < e->size; r++)
            if (r != root) e->round[n++] = (struct message){r, root, some * exchange_terms_each(e, e->own), 0};
        exchange_round(e, n, false);
        e->at[root] += (e->terms - e->own) * some * e->gamma;
    }
}

void exchange_broadcast(struct exchange *e, int root, double bytes) {
    double piece = exchange_part_of(e);
    for (double left = bytes; left > 0; left -= piece) {
        double some = fmin(left, piece);
        for (int i = 1; i < e->size; i++) e->round[i - 1] = (struct message){root, (root + i) % e->size, some, 0};
        exchange_round(e, e->size - 1, false);
    }
}

/* ---- every rank its part -------------------------------------------------------------------- */

/* The i-th of the ranks that have all parts (sharing_owner; here servers are the last). */
static int exchange_owner_of(const struct exchange *e, int i) {
    return e->servers ? e->size - e->servers + i : (int)((int64_t)i * e->size / e->owners);
}

static bool exchange_has_owners(const struct exchange *e) {
    return e->owners && e->owners < e->size;
}

/* Round by round, as algo/plain.c has them: a server has another worker each time; or each rank, another one further. */
static void exchange_part_rounds(struct exchange *e, double bytes, bool gather) {
    int givers = e->size - e->servers, servers = e->servers, rounds = servers > givers ? servers : givers;
    for (int i = 0; i < rounds; i++) {
        int n = 0;
        for (int o = 0; o < e->owners; o++) {
            int owner = exchange_owner_of(e, o), from = servers ? o : owner;
            int giver = (from + (gather && !servers ? i : rounds - i)) % rounds;
            if (giver < givers && giver != owner)
                e->round[n++] =
                    gather ? (struct message){owner, giver, bytes, 0} : (struct message){giver, owner, bytes, 0};
        }
        exchange_round(e, n, false);
    }
}

/* Piece by piece. Once all ranks have twice moved on by the same time, the pieces but the last are added at once. */
static enum error exchange_some_reduce_scatter(struct exchange *e, double bytes) {
    double slice = bytes / e->owners, piece = exchange_part_of(e), each = (double)e->terms / (e->size - e->servers),
           last = -1;
    struct port_mark mark;
    int pieces = (int)ceil(slice / piece);
    TRY(network_mark(&e->net, &mark));
    for (int k = 0; k < pieces; k++) {
        double some = fmin(slice - k * piece, piece);
        memcpy(e->was, e->at, (size_t)e->size * sizeof *e->at);
        exchange_part_rounds(e, some * each, false);
        for (int o = 0; o < e->owners; o++) e->at[exchange_owner_of(e, o)] += (e->terms - e->own) * some * e->gamma;
        double moved = exchange_ranks_moved(e, e->was, false);
        int more = pieces - 2 - k;
        bool alike = moved > 0 && fabs(moved - last) <= 1e-7 * moved && !e->plain;
        if (alike && more > 0) {
            exchange_repeat_rounds(e, &mark, k + 1, more, moved);
            k += more;
        }
        last = moved;
    }
    network_mark_free(&mark);
    return ERR_NONE;
}

enum error exchange_reduce_scatter(struct exchange *e, double bytes) {
    if (exchange_has_owners(e)) return exchange_some_reduce_scatter(e, bytes);
    double slice = bytes / e->size, piece = exchange_part_of(e);
    for (double left = slice; left > 0; left -= piece) {
        double some = fmin(left, piece);
        TRY(exchange_all_distances(e, some * exchange_terms_each(e, 1)));
        for (int r = 0; r < e->size; r++) e->at[r] += (e->terms - 1) * some * e->gamma;
    }
    return ERR_NONE;
}

enum error exchange_all_gather(struct exchange *e, double bytes) {
    if (exchange_has_owners(e)) {
        exchange_part_rounds(e, bytes / e->owners, true);
        return ERR_NONE;
    }
    return exchange_all_distances(e, bytes / e->size);
}

void exchange_neighbours(struct exchange *e, int64_t meeting, double bytes) {
    int n = 0, size = e->size;
    for (int one = (int)(meeting % 2); one < size; one += 2) {
        int two = (one + 1) % size;
        if (two == 0 && size % 2) continue; /* of an odd number one has no neighbour */
        e->round[n++] = (struct message){one, two, bytes, 0};
        e->round[n++] = (struct message){two, one, bytes, 0};
    }
    exchange_round(e, n, false);
}

void exchange_swaps(struct exchange *e, double bytes) {
    int pairs = 1, size = e->size;
    while (2 * pairs <= size) pairs *= 2;
    int more = size - pairs; /* ranks that are joined with the one before them at first */
    for (int i = 0; i < more; i++) e->round[i] = (struct message){2 * i + 1, 2 * i, bytes, 0};
    if (more) exchange_round(e, more, true);
    for (int d = 1; d < pairs; d *= 2) {
        for (int i = 0; i < pairs; i++) {
            int peer = i ^ d, from = i < more ? 2 * i : i + more, to = peer < more ? 2 * peer : peer + more;
            e->round[i] = (struct message){from, to, bytes, 0};
        }
        exchange_round(e, pairs, true);
    }
    for (int i = 0; i < more; i++) e->round[i] = (struct message){2 * i, 2 * i + 1, bytes, 0};
    if (more) exchange_round(e, more, false);
}

/* ---- trees and halves ----------------------------------------------------------------------- */

struct lots { /* of ranks: those that stand 'each' apart, for each of the first 'count' */
    int each, count;
};

/* The ranks of a lot in groups of 2d: of every group the first and the one d on exchange, or with all, each of the first
 * d with the one d on. Or one sends to the other. */
enum direction { DOWN, UP, BOTH };
struct pairing {
    int distance; /* d */
    bool all;
    enum direction way;
};
static void exchange_pairs(struct exchange *e, struct lots lots, struct pairing p, double bytes, bool adds) {
    int n = 0, members = e->size / lots.each, d = p.distance;
    for (int k = 0; k < lots.count; k++)
        for (int i = 0; i + d < members; i++) {
            if (p.all ? i & d : i % (2 * d) != 0) continue;
            int low = i * lots.each + k, high = (i + d) * lots.each + k;
            if (p.way != DOWN) e->round[n++] = (struct message){high, low, bytes, 0};
            if (p.way != UP) e->round[n++] = (struct message){low, high, bytes, 0};
        }
    exchange_round(e, n, adds);
}

static void exchange_climb_tree(struct exchange *e, struct lots lots, double bytes) {
    int d = 1;
    for (; d * lots.each < e->size; d *= 2) exchange_pairs(e, lots, (struct pairing){d, false, UP}, bytes, true);
    while ((d /= 2) > 0) exchange_pairs(e, lots, (struct pairing){d, false, DOWN}, bytes, false);
}

static void lots_halve(struct exchange *e, struct lots lots, double bytes) {
    int d = 1;
    for (; d * lots.each < e->size; d *= 2) exchange_pairs(e, lots, (struct pairing){d, true, BOTH}, bytes /= 2, true);
    for (; (d /= 2) > 0; bytes *= 2) exchange_pairs(e, lots, (struct pairing){d, true, BOTH}, bytes, false);
}

/* ---- hosts ---------------------------------------------------------------------------------- */

/* The ranks of a host meet, and each works on as many bytes. */
static void exchange_near_phase(struct exchange *e, double bytes) {
    int per = e->net.plan.per_host;
    for (int first = 0; first < e->size; first += per) {
        double all = 0;
        for (int i = 0; i < per; i++) all = fmax(all, e->at[first + i]);
        for (int i = 0; i < per; i++) e->at[first + i] = all + bytes * e->gamma;
    }
}

/* Adds the rounds in pipes within a host, each to the neighbour 1, 2, ... further. */
static void exchange_near_rounds(struct exchange *e, double slice, bool adds) {
    int per = e->net.plan.per_host;
    for (int k = 1; k < per; k++) {
        for (int r = 0; r < e->size; r++) e->round[r] = (struct message){r, r / per * per + (r + k) % per, slice, 0};
        exchange_round(e, e->size, false);
    }
    for (int r = 0; adds && r < e->size; r++) e->at[r] += (per - 1) * slice * e->gamma;
}

/* A small buffer is one slice, local rank 0's; the others only wait. */
static enum error exchange_hierarchical(struct exchange *e, double bytes) {
    int per = e->net.plan.per_host, hosts = e->size / per;
    bool whole = bytes <= HIERARCHICAL_ONE_SLICE;
    double slice = whole ? bytes : bytes / per;
    if (e->near)
        exchange_near_phase(e, (per - 1) * slice);
    else
        exchange_near_rounds(e, slice, true);
    (is_power_of_two(hosts) ? lots_halve : exchange_climb_tree)(e, (struct lots){per, whole ? 1 : per}, slice);
    if (e->near)
        exchange_near_phase(e, (per - 1) * slice);
    else
        exchange_near_rounds(e, slice, false);
    return ERR_NONE;
}

/* ---- by name -------------------------------------------------------------------------------- */

enum error exchange_all_reduce(struct exchange *e, enum scheme s, double bytes) {
    bool several = e->terms > e->size;
    if (e->size == 1) return ERR_NONE;
    switch (s) {
    case SCHEME_ring:
        TRY(exchange_ring_rounds(e, bytes / e->size, true));
        return exchange_ring_rounds(e, bytes / e->size, false);
    case SCHEME_tree:
        if (several) break;
        exchange_climb_tree(e, (struct lots){1, 1}, bytes);
        return ERR_NONE;
    case SCHEME_halving_doubling:
        if (!is_power_of_two(e->size)) break;
        lots_halve(e, (struct lots){1, 1}, bytes);
        return ERR_NONE;
    case SCHEME_hierarchical:
        if (e->net.plan.per_host < e->size && e->locals) return exchange_hierarchical(e, bytes);
        break;
    case SCHEME_star:
        exchange_reduce(e, 0, bytes);
        exchange_broadcast(e, 0, bytes);
        return ERR_NONE;
    case SCHEME_direct:
        TRY(exchange_reduce_scatter(e, bytes));
        return exchange_all_gather(e, bytes);
    case SCHEME_OWN:
        if (e->plugged) return exchange_own(e, bytes);
        return FAIL(ERR_CONFIG, "the algorithm of a plug-in is not simulated here\n--algorithm auto leaves it out");
    default:
        break;
    }
    return FAIL(ERR_CONFIG, "%s cannot add among %d devices with %d on a host", scheme_name(s), e->size,
                e->net.plan.per_host);
}
