#include "lab/predict/pipe.h"

#include "engine/base/memory.h"

#include <math.h>

int pipe_ahead(int stages, bool ahead, int passes, int s) {
    int most = passes - 1, usual = ahead ? most : stages - 1 - s;
    return usual < most ? usual : most;
}

struct pipe {
    struct exchange *e;
    const struct step_stages *stages;
    int passes;
    const double *slow;
    int *turn; /* of each rank, what it computes next: of 2 passes */
    double
        *came[2]; /* (ranks, passes): when an output has come from the stage before, its gradient from the one after */
};
struct turn {
    bool backward;
    int pass;
};

/* Forwards alone at first, then one forward and one backward by turns, then backwards alone. */
static struct turn pipe_turn(const struct pipe *p, int rank) {
    const struct step_stages *s = p->stages;
    int passes = p->passes, ahead = pipe_ahead(s->count, s->ahead, passes, rank % s->count);
    int i = p->turn[rank], by_turns = i - ahead;
    if (by_turns < 0) return (struct turn){false, i};
    if (by_turns >= 2 * (passes - ahead)) return (struct turn){true, i - passes};
    return (struct turn){by_turns % 2, by_turns % 2 ? by_turns / 2 : ahead + by_turns / 2};
}

/* When the rank has computed what is next; INFINITY: that has not come yet, or nothing is left. */
static double pipe_ends(const struct pipe *p, int rank) {
    const struct step_stages *s = p->stages;
    int passes = p->passes, stage = rank % s->count;
    if (p->turn[rank] == 2 * passes) return INFINITY;
    struct turn t = pipe_turn(p, rank);
    bool waits = t.backward ? stage + 1 < s->count : stage > 0;
    double came = waits ? p->came[t.backward][(size_t)rank * (size_t)passes + (size_t)t.pass] : 0;
    return fmax(p->e->at[rank], came) + p->slow[rank] * (t.backward ? s->backward : s->forward)[stage];
}

/* The rank computes, and what it has computed leaves for the next stage, or the one before. */
static void pipe_compute(struct pipe *p, int rank, double ends) {
    const struct step_stages *s = p->stages;
    struct turn t = pipe_turn(p, rank);
    int stage = rank % s->count, step = t.backward ? -1 : 1, to = stage + step;
    p->e->at[rank] = ends;
    p->turn[rank]++;
    if (to < 0 || to == s->count) return;
    double bytes = s->border[t.backward ? to : stage];
    struct passage way = network_pass(&p->e->net, rank, rank + step, bytes, ends, 0);
    p->came[t.backward][(size_t)(rank + step) * (size_t)p->passes + (size_t)t.pass] = way.came;
}

/* What ends first is computed first, so messages pass a port in the order of time; copies have no port in common. */
static enum error pipe_run(struct pipe *p, int copy) {
    int stages = p->stages->count;
    int64_t turns = 2 * (int64_t)p->passes * stages;
    for (; turns > 0; turns--) {
        int first = 0;
        double least = INFINITY;
        for (int r = copy * stages; r < (copy + 1) * stages; r++) {
            double ends = pipe_ends(p, r);
            if (ends < least) least = ends, first = r;
        }
        if (!isfinite(least)) return FAIL(ERR_BUG, "stages wait for each other");
        pipe_compute(p, first, least);
    }
    return ERR_NONE;
}

/* All micro-batches of all copies. */
static enum error pipe_pass(struct exchange *e, const struct step_stages *s, int passes, const double *slow) {
    size_t ranks = (size_t)e->size, n = ranks * (size_t)passes;
    double *memory = memory_new(2 * n * sizeof *memory + ranks * sizeof(int));
    if (!memory) return ERR_MEMORY;
    struct pipe p = {e, s, passes, slow, NULL, {memory, memory + n}};
    p.turn = (int *)(void *)(p.came[1] + n);
    for (size_t i = 0; i < 2 * n; i++) p.came[0][i] = INFINITY;
    enum error err = ERR_NONE;
    for (int c = 0; c < e->size / s->count && err == ERR_NONE; c++) err = pipe_run(&p, c);
    memory_free(memory);
    return err;
}

/* The ranks with one stage, on a network of their own. */
static void pipe_copy_ranks(struct exchange *e, struct exchange *peers, int stages, int stage, bool back) {
    for (int c = 0; c < peers->size; c++) {
        int rank = c * stages + stage;
        struct port_state *all = &e->net.port[PORT_DEVICE][rank], *own = &peers->net.port[PORT_DEVICE][c];
        *(back ? &e->at[rank] : &peers->at[c]) = *(back ? &peers->at[c] : &e->at[rank]);
        *(back ? all : own) = *(back ? own : all);
    }
}

static enum error pipe_sum(struct exchange *e, const struct step_stages *s, const struct pipe_copies *how, int stage) {
    struct network_plan net = e->net.plan;
    struct exchange peers;
    net.devices = e->size / s->count;
    int *number = memory_new((size_t)net.devices * sizeof *number);
    if (!number) return ERR_MEMORY;
    for (int c = 0; c < net.devices; c++) number[c] = c * s->count + stage; /* without servers, devices are ranks */
    net.links.number = number;
    double bytes = s->messages[stage] ? s->bytes[stage] / s->messages[stage] : 0;
    const struct ground g = {net.devices, net.devices, net.outside, false, how->leaves};
    enum scheme scheme = how->scheme == SCHEMES ? cost_cheapest(&g, false, bytes) : how->scheme;
    enum error err = exchange_open(&net, false, how->leaves, &peers);
    if (err == ERR_NONE) pipe_copy_ranks(e, &peers, s->count, stage, false);
    for (int i = 0; i < s->messages[stage] && err == ERR_NONE; i++) err = exchange_all_reduce(&peers, scheme, bytes);
    if (err == ERR_NONE) pipe_copy_ranks(e, &peers, s->count, stage, true);
    exchange_close(&peers);
    memory_free(number);
    return err;
}

enum error pipe_replay(struct exchange *e, const struct step_stages *s, int passes, const double *slow,
                       const struct pipe_copies *how) {
    if (e->size > s->count && e->net.shared)
        return FAIL(ERR_CONFIG, "several copies of the stages are not simulated where devices share a port\n"
                                "leave out --per-host and --per-rack, or set pipeline.stages: auto");
    TRY(pipe_pass(e, s, passes, slow));
    for (int stage = 0; stage < s->count && e->size > s->count; stage++) TRY(pipe_sum(e, s, how, stage));
    return ERR_NONE;
}
