/* Stretches of a pass that run again with the same addresses and numbers. What is seen for the first time runs as it
 * is (libraries may prepare themselves then); the second time it is recorded; from then on one call asks for all of
 * it. The stretches of backward end where somebody waits for gradients, since what he asks of other lanes cannot be
 * a part of them. */
#include "engine/base/log.h"
#include "engine/model/graph_run.h"

#include <stdlib.h>
#include <string.h>

/* Backward enters the stretch that ends with step 'last' and is not the last one: its activations are computed again. */
static enum error stretch_again(struct graph *g, const struct graph_run *r, int last) {
    const struct member_arenas *m = graph_now(g);
    const struct plan_step *steps = m->plan->steps;
    struct graph_batch batch = *r->batch;
    const struct graph_run again = {.batch = &batch, .values = r->values, .again = true};
    int first = last;
    bool goes_in = m->plan->tensors[steps[last].out].wants_grad; /* or all of it precedes what is trained */
    batch.update_buffers = false;
    for (; first > 0 && steps[first - 1].stretch == steps[last].stretch; first--)
        goes_in |= m->plan->tensors[steps[first - 1].out].wants_grad;
    for (int s = first; s <= last && goes_in; s++)
        if (steps[s].again) TRY(graph_step_forward(g, m, &steps[s], &again, NULL));
    return ERR_NONE;
}

static bool is_entered(const struct plan *p, int step) {
    return step + 1 < p->nsteps && p->steps[step + 1].stretch != p->steps[step].stretch;
}

static enum error steps_run(struct graph *g, const struct graph_run *r, bool backward, int from, int to) {
    const struct member_arenas *m = graph_now(g);
    const struct plan *p = m->plan;
    if (!backward)
        for (int s = from; s < to; s++) TRY(graph_step_forward(g, m, &p->steps[s], r, NULL));
    else
        for (int s = to; s-- > from;) {
            if (is_entered(p, s)) TRY(stretch_again(g, r, s));
            if (p->tensors[p->steps[s].out].wants_grad) TRY(graph_step_backward(g, m, &p->steps[s], r, NULL));
        }
    return ERR_NONE;
}

enum error graph_record(struct graph *g) {
    if (!g->runtime->records || g->records.of) return ERR_NONE;
    g->records.of = calloc(RECORDS, sizeof *g->records.of);
    if (!g->records.of) return FAIL(ERR_MEMORY, "no memory for recordings");
    g->records.on = true;
    return ERR_NONE;
}

void records_drop(struct graph *g) {
    for (int i = 0; g->records.of && i < RECORDS; i++) {
        struct pass_record *r = &g->records.of[i];
        if (r->recording) g->runtime->recording_free(r->recording);
        *r = (struct pass_record){0};
    }
}

void records_free(struct graph *g) {
    records_drop(g);
    free(g->records.of);
    g->records.of = NULL;
}

static struct pass_key key_of(const struct graph *g, const struct graph_run *r, bool backward, int from, int to) {
    const struct graph_batch *b = r->batch;
    struct pass_key k;
    memset(&k, 0, sizeof k);
    k.plan = graph_now(g)->plan, k.values = r->values, k.grads = r->grads, k.buffers = r->buffers;
    k.x = b->x, k.labels = b->labels, k.target = b->target, k.others = b->others, k.shares = b->shares;
    k.seed = b->seed, k.at = b->at, k.scale = b->scale;
    k.training = b->training, k.update_buffers = b->update_buffers, k.backward = backward, k.top = b->top;
    k.from = from, k.to = to;
    return k;
}

/* The record of this key: an old one's place if it is new. */
static struct pass_record *record_find(struct pass_records *all, const struct pass_key *key) {
    struct pass_record *oldest = all->of;
    for (int i = 0; i < RECORDS; i++) {
        struct pass_record *r = &all->of[i];
        if (r->used && !memcmp(&r->key, key, sizeof *key)) return r;
        if (r->used < oldest->used) oldest = r;
    }
    return oldest;
}

/* Records the stretch. *out NULL: it could not be, and nothing has run. */
static enum error record_make(struct graph *g, const struct graph_run *r, const struct pass_key *k,
                              struct device_recording **out) {
    *out = NULL;
    enum error err = g->runtime->record(g->dev);
    if (err == ERR_NONE) {
        err = steps_run(g, r, k->backward, k->from, k->to);
        enum error end = g->runtime->recorded(g->dev, out);
        if (err == ERR_NONE) err = end;
    }
    if (err != ERR_NONE && *out) {
        g->runtime->recording_free(*out);
        *out = NULL;
    }
    if (*out) return ERR_NONE;
    log_warn("the steps cannot be recorded, and are asked for one by one: %s",
             err == ERR_NONE ? "the device gives no reason" : error_message());
    g->records.on = false;
    return ERR_NONE;
}

enum error stretch_run(struct graph *g, const struct graph_run *r, bool backward, int from, int to) {
    if (!g->records.on || g->watch || g->source || from == to) return steps_run(g, r, backward, from, to);
    const struct pass_key key = key_of(g, r, backward, from, to);
    struct pass_record *record = record_find(&g->records, &key);
    bool seen = record->used && !memcmp(&record->key, &key, sizeof key);
    if (!seen && record->recording) g->runtime->recording_free(record->recording);
    if (!seen) *record = (struct pass_record){.key = key};
    record->used = ++g->records.clock;
    if (seen && !record->recording) TRY(record_make(g, r, &key, &record->recording));
    if (!record->recording) return steps_run(g, r, backward, from, to);
    graph_where_set(g, graph_now(g)->plan->steps[backward ? to - 1 : from].node, backward);
    return g->runtime->replay(g->dev, record->recording);
}
