/* An optimizer where the weights lie: by the kernels of its formula and a table of spans. Tables stay on the
 * GPU: a step whose spans are those of an earlier one, as nearly all are, sends none. */
#include "engine/device/cuda/parts.h"
#include "engine/device/cuda/update_launch.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct update_span) == (2 + RULE_SLOTS) * sizeof(void *) + 24,
               "tables are compared byte by byte");

/* A step of a sharded job has one for each of its slices, and another where weights are averaged. */
enum { TABLES = 64 };
static const char *const table_words = "the optimizer's table of spans";
struct table {
    struct cuda_sent of;
    int count, room;
    uint64_t used;
};
struct cuda_tables {
    struct update_span *made; /* the one being asked for */
    int room;
    uint64_t turn;
    struct table table[TABLES];
};

void cuda_tables_close(struct cuda *c) {
    if (!c->tables) return;
    for (int i = 0; i < TABLES; i++) cuda_sent_close(&c->tables->table[i].of);
    free(c->tables->made);
    free(c->tables);
    c->tables = NULL;
}

/* Room for 'count' spans in the table being made. */
static enum error room_to_make(struct cuda *c, int count) {
    if (!c->tables) c->tables = calloc(1, sizeof *c->tables);
    if (!c->tables) return FAIL(ERR_MEMORY, "no memory for the table of spans");
    if (c->tables->room >= count) return ERR_NONE;
    void *more = realloc(c->tables->made, (size_t)count * sizeof *c->tables->made);
    if (!more) return FAIL(ERR_MEMORY, "no memory for the table of spans");
    c->tables->made = more;
    c->tables->room = count;
    return ERR_NONE;
}

/* What still reads the old one ends first: cudaFree would wait for it without a deadline. */
static enum error table_grow(struct cuda *c, struct table *t, int count) {
    if (t->of.there) TRY(cuda_await(c, c->stream[LANE_COMPUTE], NULL, table_words));
    cuda_sent_close(&t->of);
    t->room = 0;
    TRY(cuda_sent_open(&t->of, (size_t)count * sizeof(struct update_span), table_words));
    t->room = count;
    return ERR_NONE;
}

/* The GPU's copy may be written while an earlier launch still reads it: no, since both are on one lane. The host's
 * must have been read. */
static enum error table_send(struct cuda *c, struct table *t, int count) {
    size_t bytes = (size_t)count * sizeof(struct update_span);
    t->count = 0;
    TRY(t->room < count ? table_grow(c, t, count) : cuda_await(c, NULL, t->of.copied, table_words));
    memcpy(t->of.host, c->tables->made, bytes);
    TRY(cuda_send(c, LANE_COMPUTE, &t->of, bytes, table_words));
    t->count = count;
    return ERR_NONE;
}

/* Gives the table that was made, as the GPU has it: the one sent before that is equal, or in the place of the one
 * that was not used for longest. */
static enum error table_there(struct cuda *c, int count, const struct update_span **there) {
    struct cuda_tables *all = c->tables;
    struct table *oldest = all->table;
    for (struct table *t = all->table; t < all->table + TABLES; t++) {
        if (t->used < oldest->used) oldest = t;
        if (t->count != count || memcmp(t->of.host, all->made, (size_t)count * sizeof *all->made) != 0) continue;
        t->used = ++all->turn;
        *there = t->of.there;
        return ERR_NONE;
    }
    TRY(table_send(c, oldest, count));
    oldest->used = ++all->turn;
    *there = oldest->of.there;
    return ERR_NONE;
}

/* ---- asking ---------------------------------------------------------------------------------- */
static bool span_aligned(const struct rule_span *s) {
    uintptr_t all = (uintptr_t)s->w | (uintptr_t)s->g;
    for (int i = 0; i < RULE_SLOTS; i++) all |= (uintptr_t)s->slot[i];
    return all % 16 == 0;
}

/* Gives how many chunks there are. */
static int64_t make_table(struct cuda *c, const struct rule_span *spans, int count) {
    int64_t chunks = 0;
    for (int i = 0; i < count; i++) {
        const struct rule_span *s = &spans[i];
        c->tables->made[i] = (struct update_span){.w = s->w,
                                                  .g = s->g,
                                                  .slot = {s->slot[0], s->slot[1], s->slot[2]},
                                                  .n = s->n,
                                                  .first = chunks,
                                                  .rate = s->rate,
                                                  .kind = (uint16_t)s->kind,
                                                  .aligned = span_aligned(s)};
        chunks += (s->n + UPDATE_CHUNK - 1) / UPDATE_CHUNK;
    }
    return chunks;
}

static enum error find_kernels(const struct formula *f, const struct update_kernels **out) {
    const char *name = f ? f->name : NULL;
    *out = update_find(name);
    return *out ? ERR_NONE : FAIL(ERR_BUG, "there is no kernel of the formula %s", name);
}

static struct update_numbers numbers_of(const struct rule *r) {
    struct update_numbers n;
    memcpy(n.number, r->number, sizeof n.number);
    memcpy(n.adapts, r->adapts, sizeof n.adapts);
    return n;
}

struct asked { /* there: the table of the spans; NULL: there are none */
    const struct update_kernels *kernels;
    const struct update_span *there;
    int64_t chunks;
};

static enum error ask(struct cuda *c, const struct formula *f, const struct rule_span *spans, int count,
                      struct asked *out) {
    *out = (struct asked){0};
    TRY(find_kernels(f, &out->kernels));
    if (count < 1) return ERR_NONE;
    TRY(cuda_not_recording(c, "an optimizer"));
    TRY(room_to_make(c, count));
    out->chunks = make_table(c, spans, count);
    return table_there(c, count, &out->there);
}

enum error cuda_measure(struct device *d, const struct rule *r, const struct rule_span *spans, int count,
                        double *squares) {
    CUDA_ENTERED(c, d);
    const struct update_numbers numbers = numbers_of(r);
    struct asked a;
    TRY(ask(c, r->direct, spans, count, &a));
    if (!a.there) return ERR_NONE;
    CU(a.kernels->direct(&numbers, a.there, count, squares, c->stream[LANE_COMPUTE]), "norms of tensors");
    return ERR_NONE;
}

enum error cuda_update(struct device *d, const struct rule *r, const struct rule_span *spans, int count) {
    CUDA_ENTERED(c, d);
    const struct update_numbers numbers = numbers_of(r);
    struct asked a;
    TRY(ask(c, r->step, spans, count, &a));
    if (a.chunks < 1) return ERR_NONE;
    CU(a.kernels->step(&numbers, a.there, count, a.chunks, c->stream[LANE_COMPUTE]), "an optimizer's step");
    return ERR_NONE;
}
