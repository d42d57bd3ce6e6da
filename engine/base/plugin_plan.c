/* An all-reduce in Python is a plan: what each rank sends and receives, step by step, in chunks of a buffer that may have
 * any length. Python is asked for all ranks' plans once for each size of group. Before any byte moves the plan is walked
 * through with sets in place of numbers: every send must meet a receive of the same chunks, no rank may wait for ever, no
 * term may be added twice, and in the end all ranks must have all terms. What the walk finds has the line of a step. Then
 * a call is a loop over the rank's own steps. */
#include "engine/base/plugin_python.h"

#include "engine/base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PLAN_RANKS = 256, PLAN_CHUNKS = 4096, PLAN_STEPS = 1 << 18 };
struct plan_leg {
    int32_t peer, first, end; /* peer: -1: none */
};
struct plan_step { /* as plugin_python.py writes it */
    int32_t line;
    struct plan_leg out, in;
    int32_t adds;
};
_Static_assert(sizeof(struct plan_step) == 8 * sizeof(int32_t), "a step is eight words");
struct python_plan {
    struct python_plan *next;
    int ranks, chunks;
    const struct plan_step *steps[PLAN_RANKS];
    int n[PLAN_RANKS];
};

/* ---- reading ---- */

static enum error plan_wrong(const struct python *p, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum error plan_wrong(const struct python *p, int line, const char *fmt, ...) {
    char words[512], where[32] = "";
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    if (line > 0) snprintf(where, sizeof where, ", line %d", line);
    return FAIL(ERR_CONFIG, "plug-in '%s'%s: %s", p->path, where, words);
}

static enum error plan_check_leg(const struct python *p, const struct python_plan *of, int rank, int line,
                                 const struct plan_leg *l) {
    if (l->peer == -1 && !l->first && !l->end) return ERR_NONE;
    if (l->peer < 0 || l->peer >= of->ranks || l->peer == rank)
        return plan_wrong(p, line, "rank %d of %d exchanges with rank %d", rank, of->ranks, (int)l->peer);
    if (l->first >= 0 && l->first <= l->end && l->end <= of->chunks) return ERR_NONE;
    return plan_wrong(p, line, "rank %d of %d exchanges chunks %d to %d of a buffer of %d", rank, of->ranks,
                      (int)l->first, (int)l->end, of->chunks);
}

static enum error plan_check_step(const struct python *p, const struct python_plan *of, int rank,
                                  const struct plan_step *s) {
    TRY(plan_check_leg(p, of, rank, s->line, &s->out));
    TRY(plan_check_leg(p, of, rank, s->line, &s->in));
    if (s->out.first >= s->in.end || s->in.first >= s->out.end || s->out.peer < 0 || s->in.peer < 0) return ERR_NONE;
    return plan_wrong(p, s->line, "rank %d of %d sends chunks and receives into them in one step", rank, of->ranks);
}

/* The steps stay where they are. */
static enum error plan_read(const struct python *p, const int32_t *word, size_t n, struct python_plan *of) {
    const int32_t *end = word + n;
    of->chunks = *word++;
    if (of->chunks < 1 || of->chunks > PLAN_CHUNKS)
        return plan_wrong(p, 0, "a buffer is cut into %d chunks, and may have from 1 to %d", of->chunks, PLAN_CHUNKS);
    for (int r = 0; r < of->ranks; r++) {
        if (word >= end || *word < 0 || *word > (end - word - 1) / 8)
            return plan_wrong(p, 0,
                              "its plan is no plan: print and the standard streams are its own, other "
                              "descriptors are not");
        of->n[r] = *word++;
        of->steps[r] = (const struct plan_step *)word;
        word += 8 * of->n[r];
        for (int i = 0; i < of->n[r]; i++) TRY(plan_check_step(p, of, r, &of->steps[r][i]));
    }
    return word == end ? ERR_NONE : plan_wrong(p, 0, "its plan has more than %d ranks", of->ranks);
}

/* ---- the walk ---- */

struct walk {
    const struct python *p;
    const struct python_plan *of;
    int words;      /* of a set of ranks */
    uint64_t *sets; /* (ranks, chunks, words): whose terms a chunk has */
    int at[PLAN_RANKS];
    bool sent[PLAN_RANKS], received[PLAN_RANKS]; /* of the step where a rank is */
};

static uint64_t *walk_set(const struct walk *w, int rank, int chunk) {
    return w->sets + ((size_t)rank * (size_t)w->of->chunks + (size_t)chunk) * (size_t)w->words;
}

static const struct plan_step *walk_step(const struct walk *w, int rank) {
    return w->at[rank] < w->of->n[rank] ? &w->of->steps[rank][w->at[rank]] : NULL;
}

static void walk_enter(struct walk *w, int rank, int step) {
    w->at[rank] = step;
    const struct plan_step *s = walk_step(w, rank);
    w->sent[rank] = !s || s->out.peer < 0;
    w->received[rank] = !s || s->in.peer < 0;
}

static enum error walk_chunk(const struct walk *w, int from, int to, int chunk) {
    const struct plan_step *s = walk_step(w, to);
    const uint64_t *come = walk_set(w, from, chunk);
    uint64_t *there = walk_set(w, to, chunk);
    for (int i = 0; i < w->words; i++) {
        uint64_t both = come[i] & there[i];
        if (s->adds && both)
            return plan_wrong(w->p, s->line, "rank %d of %d adds the term of rank %d to chunk %d a second time", to,
                              w->of->ranks, 64 * i + __builtin_ctzll(both), chunk);
        there[i] = s->adds ? there[i] | come[i] : come[i];
    }
    return ERR_NONE;
}

/* Moves what a rank sends now, where its peer is ready for it; whether it did. */
static enum error walk_send(struct walk *w, int from, bool *moved) {
    const struct plan_step *out = walk_step(w, from);
    *moved = false;
    if (w->sent[from]) return ERR_NONE;
    int to = out->out.peer;
    const struct plan_step *in = walk_step(w, to);
    if (w->received[to] || in->in.peer != from) return ERR_NONE;
    if (out->out.first != in->in.first || out->out.end != in->in.end)
        return plan_wrong(w->p, in->line,
                          "rank %d of %d receives chunks %d to %d from rank %d, which sends chunks %d to %d (line %d)",
                          to, w->of->ranks, (int)in->in.first, (int)in->in.end, from, (int)out->out.first,
                          (int)out->out.end, (int)out->line);
    for (int k = in->in.first; k < in->in.end; k++) TRY(walk_chunk(w, from, to, k));
    w->sent[from] = w->received[to] = *moved = true;
    return ERR_NONE;
}

static void walk_waits(const struct walk *w, int rank, char out[128]) {
    const struct plan_step *s = walk_step(w, rank);
    if (!s)
        snprintf(out, 128, "rank %d has ended", rank);
    else
        snprintf(out, 128, "rank %d waits in line %d to %s rank %d", rank, (int)s->line,
                 w->sent[rank] ? "receive from" : "send to", (int)(w->sent[rank] ? s->in.peer : s->out.peer));
}

static enum error walk_stuck(const struct walk *w, int rank) {
    char one[128], other[128];
    const struct plan_step *s = walk_step(w, rank);
    walk_waits(w, rank, one);
    walk_waits(w, w->sent[rank] ? s->in.peer : s->out.peer, other);
    return plan_wrong(w->p, s->line, "a deadlock of %d ranks: %s, and %s", w->of->ranks, one, other);
}

static enum error walk_check_sums(const struct walk *w) {
    for (int r = 0; r < w->of->ranks; r++)
        for (int k = 0; k < w->of->chunks; k++)
            for (int term = 0; term < w->of->ranks; term++)
                if (!(walk_set(w, r, k)[term / 64] >> term % 64 & 1))
                    return plan_wrong(w->p, 0,
                                      "adds wrongly: rank %d of %d ends without the term of rank %d in chunk %d", r,
                                      w->of->ranks, term, k);
    return ERR_NONE;
}

/* Rank by rank, as far as it comes, until nothing moves any more. */
static enum error walk_all(struct walk *w) {
    bool moved, any = true;
    for (int r = 0; r < w->of->ranks; r++) walk_enter(w, r, 0);
    while (any) {
        any = false;
        for (int r = 0; r < w->of->ranks; r++) {
            TRY(walk_send(w, r, &moved));
            any |= moved;
            while (walk_step(w, r) && w->sent[r] && w->received[r]) walk_enter(w, r, w->at[r] + 1), any = true;
        }
    }
    for (int r = 0; r < w->of->ranks; r++)
        if (walk_step(w, r)) return walk_stuck(w, r);
    return walk_check_sums(w);
}

static enum error plan_walk(const struct python *p, const struct python_plan *of) {
    struct walk w = {.p = p, .of = of, .words = (of->ranks + 63) / 64};
    TRY_MEMORY(w.sets = memory_new((size_t)of->ranks * (size_t)of->chunks * (size_t)w.words * sizeof *w.sets));
    for (int r = 0; r < of->ranks; r++)
        for (int k = 0; k < of->chunks; k++) walk_set(&w, r, k)[r / 64] |= (uint64_t)1 << r % 64;
    enum error err = walk_all(&w);
    memory_free(w.sets);
    return err;
}

/* ---- of a group ---- */

static const struct python_plan *plan_find(const struct python *p, int ranks) {
    const struct python_plan *of = p->plans;
    while (of && of->ranks != ranks) of = of->next;
    return of;
}

/* A plan and its steps are one piece of memory. */
static enum error plan_fetch(struct python *p, int32_t ranks) {
    size_t n, word = sizeof(int32_t);
    const struct question q = {.what = PYTHON_PLAN,
                               .part = {{&ranks, sizeof ranks}},
                               .least = word,
                               .most = (1 + (size_t)ranks + 8 * (size_t)PLAN_STEPS) * word,
                               .err = ERR_CONFIG};
    TRY(child_ask(p, &q, &n));
    struct python_plan *of = memory_new(sizeof *of + n);
    if (!of) return ERR_MEMORY;
    of->ranks = ranks;
    memcpy(of + 1, p->answer, n);
    enum error err = plan_read(p, (const int32_t *)(of + 1), n / word, of);
    if (err == ERR_NONE) err = plan_walk(p, of);
    if (err != ERR_NONE) {
        memory_free(of);
        return err;
    }
    of->next = p->plans;
    p->plans = of;
    return ERR_NONE;
}

enum error plugin_prepare(const struct plugin *plugin, int ranks) {
    struct python *p = plugin->python;
    enum error err = ERR_NONE;
    if (!p || !p->of.algorithm || ranks < 2) return ERR_NONE;
    if (ranks > PLAN_RANKS)
        return FAIL(ERR_CONFIG, "plug-in '%s' plans for %d ranks\na plan in Python is for at most %d", p->path, ranks,
                    PLAN_RANKS);
    pthread_mutex_lock(&p->lock);
    if (!plan_find(p, ranks)) {
        err = plan_fetch(p, ranks);
        if (!p->of.compressor) child_end(p);
    }
    pthread_mutex_unlock(&p->lock);
    return err;
}

static const struct python_plan *plan_of_guest(int ranks) {
    struct python *p = plugin_guest(NULL)->python;
    pthread_mutex_lock(&p->lock);
    const struct python_plan *of = plan_find(p, ranks);
    pthread_mutex_unlock(&p->lock);
    return of;
}

/* ---- a call ---- */

static struct engine_leg plan_leg(const struct engine_call *c, const struct python_plan *of, const struct plan_leg *l,
                                  int landing) {
    int64_t first = engine_chunk(c->count, of->chunks, l->first), end = engine_chunk(c->count, of->chunks, l->end);
    return engine_leg(c, l->peer, first, end - first, landing);
}

int plan_all_reduce(struct engine_call *c) {
    const struct python_plan *of = plan_of_guest(c->size);
    int failed = of ? 0 : ERR_BUG;
    for (int i = 0; !failed && i < of->n[c->rank]; i++) {
        const struct plan_step *s = &of->steps[c->rank][i];
        struct engine_leg out = plan_leg(c, of, &s->out, ENGINE_COPY);
        struct engine_leg in = plan_leg(c, of, &s->in, s->adds ? ENGINE_ADD_RIGHT : ENGINE_COPY);
        failed = c->exchange(c, s->out.peer < 0 ? NULL : &out, s->in.peer < 0 ? NULL : &in);
    }
    return failed;
}

void plan_declare(int32_t rank, int32_t size, int64_t count, struct engine_plan *out) {
    const struct python_plan *of = plan_of_guest(size);
    *out = (struct engine_plan){.steps = of ? of->n[rank] : 0};
    for (int i = 0; of && i < of->n[rank]; i++) {
        const struct plan_leg *o = &of->steps[rank][i].out, *l = &of->steps[rank][i].in;
        out->sent += engine_chunk(count, of->chunks, o->end) - engine_chunk(count, of->chunks, o->first);
        out->received += engine_chunk(count, of->chunks, l->end) - engine_chunk(count, of->chunks, l->first);
    }
}
