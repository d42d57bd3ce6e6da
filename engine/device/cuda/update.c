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
struct table {
    struct update_span *host, *there; /* host: what the last copy read, pinned */
    int count, room;
    cudaEvent_t copied;
    uint64_t used;
};
struct cuda_tables {
    struct update_span *made; /* the one being asked for */
    int room;
    uint64_t turn;
    struct table table[TABLES];
};

static void table_close(struct table *t) {
    if (t->there) (void)cudaFree(t->there);
    if (t->host) (void)cudaFreeHost(t->host);
    if (t->copied) (void)cudaEventDestroy(t->copied);
    *t = (struct table){0};
}

void cuda_tables_close(struct cuda *c) {
    if (!c->tables) return;
    for (int i = 0; i < TABLES; i++) table_close(&c->tables->table[i]);
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
    size_t bytes = (size_t)count * sizeof *t->host;
    void *p;
    if (t->there) TRY(cuda_await(c, c->stream[LANE_COMPUTE], NULL, "the optimizer's table of spans"));
    table_close(t);
    CU(cudaMalloc(&p, bytes), "the optimizer's table of spans");
    t->there = p;
    CU(cudaHostAlloc(&p, bytes, cudaHostAllocPortable), "the optimizer's table of spans");
    t->host = p;
    CU(cudaEventCreateWithFlags(&t->copied, cudaEventDisableTiming), "the optimizer's table of spans");
    t->room = count;
    return ERR_NONE;
}

/* The GPU's copy may be written while an earlier launch still reads it: no, since both are on one lane. The host's
 * must have been read. */
static enum error table_send(struct cuda *c, struct table *t, int count) {
    size_t bytes = (size_t)count * sizeof *t->host;
    t->count = 0;
    if (t->room < count)
        TRY(table_grow(c, t, count));
    else
        TRY(cuda_await(c, NULL, t->copied, "the optimizer's table of spans"));
    memcpy(t->host, c->tables->made, bytes);
    CU(cudaMemcpyAsync(t->there, t->host, bytes, cudaMemcpyHostToDevice, c->stream[LANE_COMPUTE]),
       "the optimizer's table of spans");
    CU(cudaEventRecord(t->copied, c->stream[LANE_COMPUTE]), "the optimizer's table of spans");
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
        if (t->count != count || memcmp(t->host, all->made, (size_t)count * sizeof *t->host) != 0) continue;
        t->used = ++all->turn;
        *there = t->there;
        return ERR_NONE;
    }
    TRY(table_send(c, oldest, count));
    oldest->used = ++all->turn;
    *there = oldest->there;
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

enum error cuda_measure(struct device *d, const struct rule *r, const struct rule_span *spans, int count,
                        double *squares) {
    CUDA_ENTERED(c, d);
    const struct update_numbers numbers = numbers_of(r);
    const struct update_kernels *kernels;
    const struct update_span *there;
    TRY(find_kernels(r->direct, &kernels));
    if (count < 1) return ERR_NONE;
    TRY(cuda_not_recording(c, "an optimizer"));
    TRY(room_to_make(c, count));
    make_table(c, spans, count);
    TRY(table_there(c, count, &there));
    CU(kernels->direct(&numbers, there, count, squares, c->stream[LANE_COMPUTE]), "norms of tensors");
    return ERR_NONE;
}

enum error cuda_update(struct device *d, const struct rule *r, const struct rule_span *spans, int count) {
    CUDA_ENTERED(c, d);
    const struct update_numbers numbers = numbers_of(r);
    const struct update_kernels *kernels;
    const struct update_span *there;
    TRY(find_kernels(r->step, &kernels));
    if (count < 1) return ERR_NONE;
    TRY(cuda_not_recording(c, "an optimizer"));
    TRY(room_to_make(c, count));
    int64_t chunks = make_table(c, spans, count);
    if (chunks < 1) return ERR_NONE;
    TRY(table_there(c, count, &there));
    CU(kernels->step(&numbers, there, count, chunks, c->stream[LANE_COMPUTE]), "an optimizer's step");
    return ERR_NONE;
}
