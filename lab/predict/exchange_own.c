/* An all-reduce of a plug-in, simulated: it is rehearsed once for each size of message, and what its ranks ask for then
 * passes the network, of all messages that can the one that leaves first. A rank's exchange begins when its last one has
 * ended, and ends when what it sends has left and what it receives has come; to send, it does not wait for its peer. */
#include "lab/predict/exchange.h"

#include "engine/base/memory.h"
#include "transport/algo/algo.h"

#include <math.h>
#include <stdlib.h>

struct own_rehearsal {
    struct own_rehearsal *next;
    double bytes;
    struct rehearsal of;
};
struct own_walk {
    struct exchange *e;
    const struct rehearsal *of;
    double each; /* bytes of an element */
    int at[REHEARSAL_RANKS];
    bool sent[REHEARSAL_RANKS], received[REHEARSAL_RANKS];
};

static enum error own_rehearse(struct exchange *e, double bytes, const struct rehearsal **out) {
    struct own_rehearsal *r = e->rehearsals;
    while (r && r->bytes != bytes) r = r->next;
    if (!r) {
        if (!(r = calloc(1, sizeof *r))) return FAIL(ERR_MEMORY, "no memory for a rehearsal");
        *r = (struct own_rehearsal){.next = e->rehearsals, .bytes = bytes};
        e->rehearsals = r;
        TRY(algo_rehearse(e->plugged, e->size, (int64_t)ceil(bytes / sizeof(float)), &r->of));
    }
    *out = &r->of;
    return ERR_NONE;
}

void exchange_own_close(struct exchange *e) {
    for (struct own_rehearsal *r = e->rehearsals, *next; r; r = next) {
        next = r->next;
        rehearsal_free(&r->of);
        free(r);
    }
    e->rehearsals = NULL;
}

static const struct rehearsed *own_step(const struct own_walk *w, int rank) {
    return w->at[rank] < w->of->first[rank + 1] ? &w->of->step[w->at[rank]] : NULL;
}

static void own_enter(struct own_walk *w, int rank, int step) {
    w->at[rank] = step;
    const struct rehearsed *s = own_step(w, rank);
    w->sent[rank] = !s || s->to < 0;
    w->received[rank] = !s || s->from < 0;
    w->e->after[rank] = w->e->at[rank];
}

/* The rank whose message leaves first, of those whose peer is where it receives it; -1: none. */
static int own_first(const struct own_walk *w) {
    int first = -1;
    for (int r = 0; r < w->of->ranks; r++) {
        if (w->sent[r] || (first >= 0 && w->e->at[r] >= w->e->at[first])) continue;
        int to = own_step(w, r)->to;
        if (!w->received[to] && own_step(w, to)->from == r) first = r;
    }
    return first;
}

static void own_leave(struct own_walk *w, int rank) {
    if (!w->sent[rank] || !w->received[rank]) return;
    w->e->at[rank] = w->e->after[rank];
    own_enter(w, rank, w->at[rank] + 1);
}

static enum error own_pass(struct own_walk *w, int from) {
    struct exchange *e = w->e;
    int to = own_step(w, from)->to;
    const struct rehearsed *out = own_step(w, from), *in = own_step(w, to);
    if (out->sent != in->received)
        return FAIL(ERR_CONFIG,
                    "plug-in '%s': of %d ranks, rank %d sends rank %d a part of another size than it expects",
                    e->plugged->name, e->size, from, to);
    double bytes = (double)out->sent * w->each;
    struct passage p = network_pass(&e->net, from, to, bytes, e->at[from], in->adds ? e->gamma : 0);
    e->own_bytes += bytes;
    e->after[from] = fmax(e->after[from], p.left);
    e->after[to] = fmax(e->after[to], p.came);
    w->sent[from] = w->received[to] = true;
    own_leave(w, from);
    own_leave(w, to);
    return ERR_NONE;
}

enum error exchange_own(struct exchange *e, double bytes) {
    struct own_walk w = {.e = e};
    TRY(own_rehearse(e, bytes, &w.of));
    w.each = bytes / ceil(bytes / sizeof(float));
    for (int r = 0; r < e->size; r++) own_enter(&w, r, w.of->first[r]);
    for (int from; (from = own_first(&w)) >= 0;) TRY(own_pass(&w, from));
    for (int r = 0; r < e->size; r++)
        if (own_step(&w, r))
            return FAIL(ERR_CONFIG, "plug-in '%s': of %d ranks, rank %d waits for ever\nengine check tells more",
                        e->plugged->name, e->size, r);
    return ERR_NONE;
}
