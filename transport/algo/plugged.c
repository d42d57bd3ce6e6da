/* An algorithm of a user's own (engine/plugin.h) as a row: its all-reduce runs over any link's messages, all else is done
 * in the plain way. A share of a user's own is one, too: what it makes of weights or gradients is its all-reduce. It sees places in the order of addition as ranks. What it asks for is checked before it is done, a
 * failure that it overlooks is not forgotten, and what it has moved must be what it declares. */
#include "transport/algo/algo.h"

#include "engine/base/plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plugged {
    struct algo_ops ops;
    bool meets; /* it is a share's */
    const struct plugin *plugin;
    struct plugged *next;
};
struct visit { /* of a plug-in's function: one call */
    struct engine_call call;
    struct collective *c;
    const struct plugin *plugin;
    const char *doing; /* "all_reduce", or a share's "meet" */
    enum error failed; /* the first failure */
    struct engine_plan moved;
    int64_t whole[2];        /* as one tensor */
    struct rehearsal *notes; /* nothing moves: what is asked for goes there; else NULL */
};

static const struct plugged *plugged_of(const struct collective *c) {
    return (const struct plugged *)c->algo;
}

/* ---- an exchange ---- */

/* Whether a leg is within the buffer, or wholly out of it: memory of the plug-in's own. */
static bool leg_fits(const struct engine_call *c, const struct engine_leg *leg) {
    uintptr_t lo = (uintptr_t)c->buf, hi = lo + (uintptr_t)(c->count * c->bytes), at = (uintptr_t)leg->data;
    uintptr_t end = at + (uintptr_t)(leg->count * c->bytes);
    return (at >= lo && end <= hi) || end <= lo || at >= hi;
}

static enum error leg_check(const struct engine_call *c, const struct engine_leg *leg) {
    if (!leg) return ERR_NONE;
    if (leg->peer < 0 || leg->peer >= c->size || leg->peer == c->rank)
        return FAIL(ERR_BUG, "rank %d of %d exchanges with rank %d", (int)c->rank, (int)c->size, (int)leg->peer);
    if (leg->count < 0 || leg->count > INT64_MAX / 8 / c->bytes)
        return FAIL(ERR_BUG, "rank %d exchanges %lld elements", (int)c->rank, (long long)leg->count);
    if (leg->landing < ENGINE_COPY || leg->landing > ENGINE_ADD_RIGHT)
        return FAIL(ERR_BUG, "rank %d has a landing %d", (int)c->rank, (int)leg->landing);
    if (leg_fits(c, leg)) return ERR_NONE;
    long long first = (long long)(((char *)leg->data - c->buf) / c->bytes);
    return FAIL(ERR_BUG, "rank %d of %d exchanges elements %lld to %lld of a buffer of %lld", (int)c->rank,
                (int)c->size, first, first + (long long)leg->count, (long long)c->count);
}

/* What leaves must not change before it has left. */
static enum error legs_check(const struct engine_call *c, const struct engine_leg *out, const struct engine_leg *in) {
    if (!out || !in || !out->count || !in->count) return ERR_NONE;
    const char *from = out->data, *to = in->data;
    if (from >= to + in->count * c->bytes || to >= from + out->count * c->bytes) return ERR_NONE;
    return FAIL(ERR_BUG, "rank %d of %d sends elements and receives into them in one exchange", (int)c->rank,
                (int)c->size);
}

static struct leg leg_of(const struct visit *v, const struct engine_leg *leg) {
    static const enum landing landings[] = {
        [ENGINE_COPY] = LAND_COPY, [ENGINE_ADD_LEFT] = LAND_LEFT, [ENGINE_ADD_RIGHT] = LAND_RIGHT};
    if (!leg) return (struct leg){.peer = -1};
    return (struct leg){v->c->places->rank[leg->peer], leg->data, leg->count, landings[leg->landing]};
}

static enum error rehearsal_add(struct rehearsal *r, const struct engine_leg *out, const struct engine_leg *in) {
    if (r->n == r->room) {
        int room = r->room ? 2 * r->room : 64;
        struct rehearsed *step = room > REHEARSAL_STEPS ? NULL : realloc(r->step, (size_t)room * sizeof *step);
        if (!step) return FAIL(ERR_CONFIG, "%d ranks make more than %d exchanges", r->ranks, r->n);
        r->step = step, r->room = room;
    }
    r->step[r->n++] = (struct rehearsed){.to = out ? out->peer : -1,
                                         .from = in ? in->peer : -1,
                                         .sent = out ? out->count : 0,
                                         .received = in ? in->count : 0,
                                         .adds = in && in->landing != ENGINE_COPY};
    return ERR_NONE;
}

static enum error visit_exchange(struct visit *v, const struct engine_leg *out, const struct engine_leg *in) {
    if (v->failed || (!out && !in)) return v->failed;
    TRY(leg_check(&v->call, out));
    TRY(leg_check(&v->call, in));
    TRY(legs_check(&v->call, out, in));
    v->moved.sent += out ? out->count : 0;
    v->moved.received += in ? in->count : 0;
    if (v->notes) return rehearsal_add(v->notes, out, in);
    return collective_exchange(v->c, leg_of(v, out), leg_of(v, in));
}

static int exchange(struct engine_call *call, const struct engine_leg *out, const struct engine_leg *in) {
    struct visit *v = call->engine;
    const struct plugin *guest = v->plugin;
    plugin_leave();
    v->failed = visit_exchange(v, out, in);
    plugin_enter(guest, v->doing);
    return (int)v->failed;
}

/* ---- a call ---- */

static enum error visit_check_plan(struct visit *v) {
    struct engine_plan p = {0};
    const struct engine_call *c = &v->call;
    const struct engine_algorithm *a = v->plugin->of->algorithm;
    const struct engine_share *s = v->plugin->of->share;
    bool meets = plugged_of(v->c)->meets;
    if (meets ? !s->plan : !a->plan) return ERR_NONE;
    plugin_enter(v->plugin, "plan");
    if (meets)
        s->plan(c->rank, c->size, v->c->mixing.meeting, c->count, &p);
    else
        a->plan(c->rank, c->size, c->count, &p);
    plugin_leave();
    if (p.sent == v->moved.sent && p.received == v->moved.received) return ERR_NONE;
    return FAIL(
        ERR_BUG,
        "rank %d of %d sent %lld and received %lld elements of a buffer of %lld, and its plan declares %lld and "
        "%lld",
        (int)c->rank, (int)c->size, (long long)v->moved.sent, (long long)v->moved.received, (long long)c->count,
        (long long)p.sent, (long long)p.received);
}

static enum error visit_run(struct visit *v) {
    const struct engine_plugin *of = v->plugin->of;
    plugin_enter(v->plugin, v->doing);
    int result =
        plugged_of(v->c)->meets ? of->share->meet(&v->call, v->c->mixing.meeting) : of->algorithm->all_reduce(&v->call);
    plugin_leave();
    TRY(v->failed);
    if (result) return FAIL(ERR_BUG, "%s of rank %d returned %d", v->doing, (int)v->call.rank, result);
    return visit_check_plan(v);
}

/* Names the plug-in: to all ranks, where the group has not failed for another reason before. */
static enum error visit_fail(const struct visit *v, enum error err) {
    char words[ERROR_WORDS];
    struct link *link = v->c->link;
    bool guest = plugged_of(v->c)->ops.mark != 0;
    if (guest && !strstr(error_message(), v->plugin->path)) error_prefix(err, "in plug-in '%s': ", v->plugin->path);
    error_words(words, sizeof words);
    if (link->ops->failure(link) == ERR_NONE) return link->ops->fail(link, err, words);
    return FAIL(err, "%s", words);
}

static void visit_take_mixing(struct visit *v, const struct mixing *m) {
    v->whole[1] = v->call.count;
    v->call.room = m->room;
    v->call.tensor = m->tensors ? m->tensor : v->whole;
    v->call.tensors = m->tensors ? m->tensors : 1;
}

static enum error plugged_all_reduce(struct collective *c) {
    const struct places *p = c->places;
    const struct plugged *own = plugged_of(c);
    struct visit v = {.c = c, .plugin = own->plugin, .doing = own->meets ? "meet" : "all_reduce"};
    v.call = (struct engine_call){.rank = p->place[c->rank],
                                  .size = c->size,
                                  .count = c->sum.count,
                                  .bytes = (int64_t)dtype_size(c->sum.type),
                                  .buf = c->buf,
                                  .exchange = exchange,
                                  .engine = &v};
    if (own->meets) visit_take_mixing(&v, &c->mixing);
    enum error err = visit_run(&v);
    if (err != ERR_NONE) return visit_fail(&v, err);
    if (!own->meets) sum_complete(&c->sum, c->sum.count, c->buf);
    return ERR_NONE;
}

/* ---- rows ---- */

static struct plugged *plugged_make(const struct plugin *p, bool meets) {
    static const bool orders[][2] = {
        [ENGINE_TREE] = {true, false}, [ENGINE_RING] = {false, true}, [ENGINE_OWN] = {true, true}};
    struct plugged *row = calloc(1, sizeof *row);
    unsigned long long mark = 0; /* the engine's own has no digest */
    if (!row) return NULL;
    if (sscanf(p->digest, "%7llx", &mark) == 1) mark++;
    row->plugin = p;
    row->meets = meets;
    row->ops = (struct algo_ops){.name = p->path,
                                 .why = p->of->about ? p->of->about : "a plug-in",
                                 .mark = mark,
                                 .run = {[KIND_ALL_REDUCE] = plugged_all_reduce}};
    memcpy(row->ops.orders, orders[meets ? ENGINE_OWN : p->of->algorithm->order], sizeof row->ops.orders);
    return row;
}

static enum error plugged_row(const struct plugin *p, bool meets, const struct algo_ops **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct plugged *rows;
    pthread_mutex_lock(&lock);
    struct plugged *row = rows;
    while (row && (row->plugin != p || row->meets != meets)) row = row->next;
    if (!row && (row = plugged_make(p, meets))) {
        row->next = rows;
        rows = row;
    }
    pthread_mutex_unlock(&lock);
    *out = row ? &row->ops : NULL;
    return row ? ERR_NONE : FAIL(ERR_MEMORY, "no memory for plug-in '%s'", p->path);
}

enum error algo_meets(const struct plugin *p, const struct algo_ops **out) {
    return plugged_row(p, true, out);
}

enum error algo_named(const char *name, const char *digest, const struct algo_ops **out) {
    const struct plugin *p;
    if (!plugin_is_path(name)) {
        *out = algo_find(name);
        return *out ? ERR_NONE : FAIL(ERR_CONFIG, "no algorithm '%s'", name);
    }
    TRY(plugin_open(name, PLUGIN_ALGORITHM, digest, &p));
    return plugged_row(p, false, out);
}

enum error algo_prepare(const struct algo_ops *a, int ranks) {
    return a->mark ? plugin_prepare(((const struct plugged *)a)->plugin, ranks) : ERR_NONE;
}

/* ---- a rehearsal ---- */

static enum error rehearse_rank(struct collective *c, int rank, void *buf, struct rehearsal *out) {
    struct visit v = {.c = c, .plugin = plugged_of(c)->plugin, .doing = "all_reduce", .notes = out};
    v.call = (struct engine_call){.rank = rank,
                                  .size = out->ranks,
                                  .count = c->sum.count,
                                  .bytes = sizeof(float),
                                  .buf = buf,
                                  .exchange = exchange,
                                  .engine = &v};
    out->first[rank] = out->n;
    enum error err = visit_run(&v);
    out->first[rank + 1] = out->n;
    if (err != ERR_NONE && !strstr(error_message(), v.plugin->path))
        error_prefix(err, "in plug-in '%s': ", v.plugin->path);
    return err;
}

enum error algo_rehearse(const struct algo_ops *a, int ranks, int64_t count, struct rehearsal *out) {
    struct collective c = {.algo = a, .sum.count = count};
    void *memory;
    *out = (struct rehearsal){.ranks = ranks};
    if (ranks > REHEARSAL_RANKS)
        return FAIL(ERR_CONFIG, "plug-in '%s' among %d ranks\nat most %d can be simulated", a->name, ranks,
                    REHEARSAL_RANKS);
    TRY(algo_prepare(a, ranks));
    TRY(memory_alloc_sparse((size_t)count * sizeof(float), &memory));
    enum error err = ERR_NONE;
    for (int r = 0; r < ranks && err == ERR_NONE; r++) err = rehearse_rank(&c, r, memory, out);
    memory_free(memory);
    return err;
}

void rehearsal_free(struct rehearsal *r) {
    free(r->step);
}
