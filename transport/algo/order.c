/* Order of additions: see order.h. Sums run over blocks small enough that the partial sums of all
 * ranks stay in the first cache, whatever the number of ranks; so memory is read once and written
 * once. */
#include "transport/algo/order.h"
#include "engine/base/memory.h"
#include "transport/link/link.h"

#include <string.h>

enum { BLOCK = 2048 }; /* bytes of one partial sum */

int64_t order_chunk(int64_t count, int ranks, int c) {
    return (int64_t)((__int128)count * c / ranks);
}

/* The partial sums of one block: cur[r] is rank r's, in its buffer or already in part[r]. */
struct fold {
    enum dtype type;
    enum redop op;
    int64_t n;
    const char *cur[RANKS_MAX];
    char (*part)[BLOCK];
};

/* The last addition goes to dst, which may be an input: every other one is done by then. */
static void fold_tree(struct fold *f, int ranks, char *dst) {
    for (int h; ranks > 1; ranks = h) {
        h = (ranks + 1) / 2;
        for (int r = 0; r + h < ranks; r++) {
            char *to = ranks == 2 ? dst : f->part[r];
            combine(f->type, f->op, f->n, to, f->cur[r], f->cur[r + h]);
            f->cur[r] = to;
        }
    }
}

static void fold_ring(struct fold *f, int ranks, int first, char *dst) {
    const char *sum = f->cur[first];
    for (int i = 1; i < ranks; i++) {
        char *to = i == ranks - 1 ? dst : f->part[0];
        combine(f->type, f->op, f->n, to, sum, f->cur[(first + i) % ranks]);
        sum = to;
    }
}

/* f->n elements in chunk 'chunk', 'at' bytes into all buffers. */
static void sum_block(const struct sum *s, struct fold *f, size_t at, int chunk, const char *const *in,
                      char *const *out, int outs) {
    size_t bytes = (size_t)f->n * dtype_size(s->type);
    for (int r = 0; r < s->ranks; r++) f->cur[r] = in[r] + at;
    if (s->ranks == 1)
        memmove(out[0] + at, f->cur[0], bytes);
    else if (s->order == ORDER_RING)
        fold_ring(f, s->ranks, chunk, out[0] + at);
    else
        fold_tree(f, s->ranks, out[0] + at);
    sum_complete(s, f->n, out[0] + at);
    for (int i = 1; i < outs; i++) memcpy(out[i] + at, out[0] + at, bytes);
}

static int chunk_of(const struct sum *s, int64_t element) {
    int c = (int)((__int128)element * s->ranks / s->count);
    while (order_chunk(s->count, s->ranks, c + 1) <= element) c++;
    return c;
}

void order_sum(const struct sum *s, int64_t lo, int64_t hi, const char *const *in, char *const *out, int outs) {
    _Alignas(ALIGNMENT) char part[RANKS_MAX / 2][BLOCK];
    struct fold f = {.type = s->type, .op = s->op, .part = part};
    size_t size = dtype_size(s->type), at = 0;
    int64_t block = BLOCK / (int64_t)size;
    while (lo < hi) {
        int64_t end = hi - lo > block ? lo + block : hi;
        int chunk = 0;
        if (s->order == ORDER_RING) {
            chunk = chunk_of(s, lo);
            int64_t stop = order_chunk(s->count, s->ranks, chunk + 1);
            if (end > stop) end = stop;
        }
        f.n = end - lo;
        sum_block(s, &f, at, chunk, in, out, outs);
        at += (size_t)f.n * size;
        lo = end;
    }
}
