#include "lab/predict/cost.h"

#include "lab/numbers/fit.h"
#include "transport/algo/plain.h"

#include <math.h>
#include <string.h>

const char *scheme_name(enum scheme s) {
    static const char *const names[] = {
        "star, serial",
        "star, full duplex",
        "sharded server",
#define ALGO(name) #name,
#include "transport/algo/algos.def"
    };
    return s < SCHEMES ? names[s] : s == SCHEME_OWN ? "a plug-in" : "auto";
}

enum scheme scheme_find(const char *name) {
    enum scheme s = 0;
    while (s < SCHEMES && strcmp(name, scheme_name(s)) != 0) s++;
    return s;
}

bool scheme_is_known(enum scheme s) {
    return s > SCHEME_SHARDED && s < SCHEMES && algo_find(scheme_name(s))->cost[KIND_ALL_REDUCE] != NULL;
}

/* ---- one exchange --------------------------------------------------------------------------- */

int cost_leaves(int leaves, int devices) {
    while (leaves < devices || !is_power_of_two(leaves)) leaves = leaves < 1 ? 1 : 2 * leaves;
    return leaves;
}

/* The formulas ask a place for its sizes alone, so there may be more devices than ranks can be. */
static void cost_ground_survey(const struct ground *g, struct places *p, struct terrain *t) {
    int givers = g->devices - g->servers, leaves = cost_leaves(g->leaves, givers), locals = g->devices / g->hosts;
    p->size = g->devices;
    p->hosts = g->hosts;
    p->terms = places_terms(leaves, givers);
    p->own = g->servers ? 0 : leaves_subtrees(0, leaves_cut(leaves, givers, 1));
    p->even = is_power_of_two(g->devices);
    p->locals = locals * g->hosts == g->devices ? places_locals(leaves, g->devices, locals) : 0;
    *t = terrain_plan(p, g->wire.alpha, g->wire.beta, false, g->near);
}

static bool cost_several_hosts(const struct places *p) {
    return p->terms > p->size;
}

static double cost_formula_time(enum scheme s, const struct terrain *t, double bytes) {
    int others = t->places->size - 1;
    double message = t->alpha + bytes * t->beta;
    if (s == SCHEME_STAR_DUPLEX) return t->alpha + others * message;
    return others * (2 * message + bytes * t->gamma);
}

double cost_share(enum scheme s, const struct ground *g, double bytes) {
    struct places p;
    struct terrain t;
    cost_ground_survey(g, &p, &t);
    if (g->devices == 1) return 0;
    if (s == SCHEME_OWN) return (double)NAN;
    if (s == SCHEME_STAR_SERIAL || s == SCHEME_STAR_DUPLEX) return cost_formula_time(s, &t, bytes);
    const struct algo_ops *a = algo_find(scheme_name(s == SCHEME_SHARDED ? SCHEME_direct : s));
    if (!a->cost[KIND_ALL_REDUCE]) return INFINITY;
    bool tree = a->orders[ORDER_TREE]; /* else a rank gives one sum */
    if (!algo_suits(a, tree ? ORDER_TREE : ORDER_RING, &p, tree && cost_several_hosts(&p))) return INFINITY;
    return a->cost[KIND_ALL_REDUCE](&t, bytes);
}

enum scheme cost_cheapest(const struct ground *g, bool ring_order, double bytes) {
    struct places p;
    struct terrain t;
    cost_ground_survey(g, &p, &t);
    enum order order = ring_order ? ORDER_RING : ORDER_TREE;
    return scheme_find(
        algo_cheapest(&t, order, KIND_ALL_REDUCE, !ring_order && cost_several_hosts(&p), (size_t)bytes)->name);
}

double cost_crossover(enum scheme a, enum scheme b, const struct ground *g) {
    double low = 1, high = 1e13;
    if (cost_share(b, g, low) <= cost_share(a, g, low)) return 0;
    if (cost_share(b, g, high) > cost_share(a, g, high)) return INFINITY;
    for (int i = 0; i < 80; i++) {
        double middle = sqrt(low * high);
        *(cost_share(b, g, middle) <= cost_share(a, g, middle) ? &high : &low) = middle;
    }
    return high;
}

/* ---- the port ------------------------------------------------------------------------------- */

/* A formula is a number of messages, a number of bytes, and the time of adding, which depends a little on beta where
 * one hides the other: a few rounds settle that. */
static struct fit_terms { double messages, bytes, adding; } terms_of(const struct cost_point *p, double beta) {
    struct ground g = {.devices = p->devices, .hosts = 1, .wire = {1, 0}};
    const double huge = 1; /* seconds a byte: all adding is hidden */
    double none = cost_share(p->scheme, &(struct ground){p->devices, 1, {0, 0}, false}, p->bytes);
    struct fit_terms t = {.messages = cost_share(p->scheme, &g, p->bytes) - none};
    g.wire = (struct wire){0, huge};
    double slow = cost_share(p->scheme, &g, p->bytes);
    g.wire.beta = 2 * huge;
    t.bytes = (cost_share(p->scheme, &g, p->bytes) - slow) / huge;
    g.wire.beta = beta;
    t.adding = cost_share(p->scheme, &g, p->bytes) - beta * t.bytes;
    return t;
}

struct wire cost_fit(const struct cost_point *points, int n) {
    enum { POINTS = 1024, ROUNDS = 24 };
    struct fit_point line[POINTS];
    struct fit f = {0, 0};
    if (n > POINTS) n = POINTS;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++) {
            struct fit_terms t = terms_of(&points[i], f.beta);
            bool known = isfinite(t.bytes) && isfinite(t.messages); /* else no way to do it there */
            line[i] = known ? (struct fit_point){t.bytes, points[i].seconds - t.adding, t.messages}
                            : (struct fit_point){0, 0, 0};
        }
        f = fit_line(line, n);
    }
    return (struct wire){f.alpha, f.beta};
}

/* ---- a step --------------------------------------------------------------------------------- */

/* Some ranks have all parts. A giver sends its messages one after another; those that come to an owner are on their way at
 * once, and pass its port one after another. */
static double parts_cost(enum move_by by, const struct ground *g, const struct terrain *t, double bytes) {
    const struct places *p = t->places;
    int others = g->devices - (g->servers ? g->servers : 1), givers = g->devices - g->servers;
    double owners = g->owners, part = bytes / owners, pieces = ceil(part / (double)t->part_bytes);
    double terms = p->terms - p->own, each = (double)p->terms / givers;
    if (by == MOVE_ALL_GATHER) return t->alpha + fmax(others / owners, 1) * bytes * t->beta;
    double giver = pieces * owners * t->alpha + each * bytes * t->beta, owner = t->alpha + terms * part * t->beta;
    return fmax(giver, owner) + terms * part * t->gamma;
}

/* Seconds of a move of 'bytes' among all devices. */
static double move_cost(enum move_by by, enum scheme s, const struct ground *g, double bytes) {
    struct places p;
    struct terrain t;
    cost_ground_survey(g, &p, &t);
    bool parts = by == MOVE_REDUCE_SCATTER || by == MOVE_ALL_GATHER;
    if (parts && g->owners && g->owners < g->devices) return parts_cost(by, g, &t, bytes);
    double gather = (g->devices - 1) * (t.alpha + bytes / g->devices * t.beta);
    switch (by) {
    case MOVE_REDUCE:
        return plain_reduce_cost(&t, bytes);
    case MOVE_BROADCAST:
        return plain_broadcast_cost(&t, bytes);
    case MOVE_REDUCE_SCATTER:
        return cost_share(SCHEME_SHARDED, g, bytes) - gather;
    case MOVE_ALL_GATHER:
        return gather;
    case MOVE_PAIRS:
        return cost_swaps(g->devices, NULL) * (t.alpha + bytes * (t.beta > t.gamma ? t.beta : t.gamma));
    case MOVE_NEIGHBOUR:
        return t.alpha + bytes * t.beta;
    default:
        return cost_share(s, g, bytes);
    }
}

static double moves_cost(const struct step_cost *c, const struct move *move, int n, enum scheme s,
                         const struct ground *g, double bytes) {
    double cost = 0;
    enum scheme now = s == SCHEMES ? cost_cheapest(g, c->ring_order, bytes) : s;
    for (int i = 0; i < n; i++) cost += move_cost(move[i].by, now, g, bytes);
    return cost;
}

/* The time of an exchange in which the weights of a bucket move while the gradients of later buckets move. */
static double cost_stream(const struct step_cost *c, enum scheme s, const struct ground *g) {
    const struct exchange_plan *p = c->plan;
    double lane = 0, weights = c->before + c->backward, all = 0;
    for (int b = 0; b < c->buckets; b++) all += c->bytes[b];
    for (int b = 0; b < c->buckets; b++) {
        lane = fmax(lane, c->before + c->ready[b]) + moves_cost(c, p->before, p->nbefore, s, g, c->bytes[b]);
        weights = fmax(weights, lane) + c->update * c->bytes[b] / all / g->owners +
                  moves_cost(c, p->after, p->nafter, s, g, c->bytes[b]);
    }
    return weights;
}

/* A step whose weights come before its layers, in the order of the layers. In a last backward that gathers they share the
 * port with gradients. */
struct gathered {
    double at, weights, gradients; /* seconds: of computing, and when the port is done with each */
    double ended[PLAN_AHEAD + 1]; /* when each of the last layers ended, which leaves room for the weights of another */
};
static void cost_layers(const struct step_cost *c, enum scheme s, const struct ground *g, const struct move *v,
                        bool backward, bool last, struct gathered *t) {
    double seconds = backward ? c->backward : c->forward;
    for (int k = 0; k < c->buckets; k++) {
        int b = backward ? k : c->buckets - 1 - k, layer = backward ? c->buckets + k : k;
        double share = c->backward > 0 ? (c->ready[b] - (b ? c->ready[b - 1] : 0)) / c->backward : 0;
        double *ended = &t->ended[layer % (PLAN_AHEAD + 1)];
        double room = c->plan->kept == WEIGHTS_A_LAYER && layer > PLAN_AHEAD ? *ended : 0;
        bool gathers = v && !(backward && b < plan_stays(c->overlap));
        if (gathers && backward && last) t->weights = fmax(t->weights, t->gradients);
        if (gathers) t->weights = fmax(t->weights, c->overlap ? room : t->at) + moves_cost(c, v, 1, s, g, c->bytes[b]);
        if (gathers) t->at = fmax(t->at, t->weights);
        t->at += seconds * share;
        *ended = t->at;
        if (!last || !c->overlap) continue;
        if (gathers) t->gradients = fmax(t->gradients, t->weights);
        t->gradients = fmax(t->gradients, t->at) + moves_cost(c, c->plan->before, c->plan->nbefore, s, g, c->bytes[b]);
    }
}

static double cost_gathered(const struct step_cost *c, enum scheme s, const struct ground *g) {
    const struct exchange_plan *p = c->plan;
    struct gathered t = {.at = c->before - c->passes * c->forward - (c->passes - 1) * c->backward};
    for (int pass = 0; pass < c->passes; pass++) {
        bool gathers = pass == 0 || p->after[0].end == EACH_FORWARD;
        cost_layers(c, s, g, gathers ? &p->after[0] : NULL, false, false, &t);
        cost_layers(c, s, g, p->nafter > 1 ? &p->after[1] : NULL, true, pass == c->passes - 1, &t);
    }
    for (int b = 0; b < c->buckets && !c->overlap; b++) t.at += moves_cost(c, p->before, p->nbefore, s, g, c->bytes[b]);
    return fmax(t.at, t.gradients) + c->update / (g->owners ? g->owners : g->devices);
}

double cost_step(const struct step_cost *c, enum scheme s, const struct ground *g) {
    const struct exchange_plan *p = c->plan;
    double backward = c->before + c->backward, lane = c->overlap ? 0 : backward, all = 0, after = 0;
    if (g->devices == 1) return backward + c->update;
    if (c->streams) return cost_stream(c, s, g);
    if (plan_comes_ahead(p, c->overlap) && c->passes > 0) return cost_gathered(c, s, g);
    for (int b = 0; b < c->buckets; b++) {
        if (c->overlap) lane = fmax(lane, c->before + c->ready[b]);
        lane += moves_cost(c, p->before, p->nbefore, s, g, c->bytes[b]);
        after += p->after[0].whole ? 0 : moves_cost(c, p->after, p->nafter, s, g, c->bytes[b]);
        all += c->bytes[b];
    }
    if (p->after[0].whole) after = moves_cost(c, p->after, p->nafter, s, g, all);
    double update = c->update / (p->update != UPDATE_BY_OWNERS ? 1 : g->owners ? g->owners : g->devices);
    return fmax(lane, backward) + update + after / (double)c->every;
}

int cost_swaps(int ranks, int *messages) {
    int pairs = 1, rounds = 0;
    for (; 2 * pairs <= ranks; pairs *= 2) rounds++;
    if (messages) *messages = pairs * rounds + 2 * (ranks - pairs);
    return rounds + (ranks > pairs ? 2 : 0);
}

static double cost_move_bytes(enum move_by by, int ranks, int servers) {
    int others = ranks - (servers ? servers : 1), messages;
    if (by == MOVE_PAIRS) return cost_swaps(ranks, &messages), messages;
    return by == MOVE_ALL_REDUCE ? 2 * others : by == MOVE_NEIGHBOUR ? ranks / 2 * 2 : others;
}

double cost_again(const double *bytes, int buckets, bool overlap) {
    double all = 0, again = 0;
    for (int b = 0; b < buckets; b++) all += bytes[b], again += b < plan_stays(overlap) ? 0 : bytes[b];
    return again / all;
}

double cost_bytes(const struct exchange_plan *plan, int64_t every, int passes, int ranks, int servers, double again) {
    double bytes = 0;
    for (int i = 0; i < plan->nbefore; i++) bytes += cost_move_bytes(plan->before[i].by, ranks, servers);
    for (int i = 0; i < plan->nafter; i++)
        bytes += cost_move_bytes(plan->after[i].by, ranks, servers) *
                 (plan->after[i].end >= EACH_FORWARD ? passes : 1) / (double)every *
                 (plan->after[i].end == EACH_BACKWARD ? again : 1);
    return bytes;
}
