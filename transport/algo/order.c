/* Order of additions: see order.h. Sums run over blocks small enough that the partial sums of all terms stay in the
 * first cache, whatever their number; so memory is read once and written once. */
#include "transport/algo/order.h"
#include "engine/base/memory.h"
#include "transport/link/link.h"

#include <string.h>

enum { BLOCK = 2048 }; /* bytes of one partial sum */

int64_t order_chunk(int64_t count, int ranks, int c) {
    return (int64_t)((__int128)count * c / ranks);
}

/* A block: its inputs, n elements of them, 'at' bytes into all buffers. */
struct fold {
    const struct sum *sum;
    const char *const *in;
    int64_t n;
    size_t at;
};

static void fold_add(const struct fold *f, char *to, const char *left, const char *right) {
    combine(f->sum->type, f->sum->op, f->n, to, left, right);
}

/* left[d] is the d-th of what is left, in its buffer or already in part[d]. The last addition goes to dst, which may be
 * an input: every other one is done by then. */
static void fold_tree(const struct fold *f, char *dst) {
    _Alignas(ALIGNMENT) char part[LEAVES_DEPTH][BLOCK];
    const char *left[LEAVES_DEPTH];
    int depth = 0, terms = f->sum->terms;
    for (int t = 0; t < terms; t++) {
        left[depth++] = f->in[t] + f->at;
        for (int i = 0; i < f->sum->adds[t]; i++) {
            char *to = t == terms - 1 && depth == 2 ? dst : part[depth - 2];
            fold_add(f, to, left[depth - 2], left[depth - 1]);
            left[--depth - 1] = to;
        }
    }
}

static void fold_ring(const struct fold *f, int first, char *dst) {
    _Alignas(ALIGNMENT) char part[BLOCK];
    const char *sum = f->in[first] + f->at;
    for (int i = 1, ranks = f->sum->ranks; i < ranks; i++) {
        char *to = i == ranks - 1 ? dst : part;
        fold_add(f, to, sum, f->in[(first + i) % ranks] + f->at);
        sum = to;
    }
}

static void fold_block(const struct fold *f, int chunk, char *const *out, int outs) {
    size_t bytes = (size_t)f->n * dtype_size(f->sum->type);
    char *dst = out[0] + f->at;
    if (f->sum->terms == 1)
        memmove(dst, f->in[0] + f->at, bytes);
    else if (f->sum->order == ORDER_RING)
        fold_ring(f, chunk, dst);
    else
        fold_tree(f, dst);
    sum_complete(f->sum, f->n, dst);
    for (int i = 1; i < outs; i++) memcpy(out[i] + f->at, dst, bytes);
}

static int order_chunk_of(const struct sum *s, int64_t element) {
    int c = (int)((__int128)element * s->ranks / s->count);
    while (order_chunk(s->count, s->ranks, c + 1) <= element) c++;
    return c;
}

void order_sum(const struct sum *s, int64_t lo, int64_t hi, const char *const *in, char *const *out, int outs) {
    struct fold f = {.sum = s, .in = in};
    size_t size = dtype_size(s->type);
    int64_t block = BLOCK / (int64_t)size;
    while (lo < hi) {
        int64_t end = hi - lo > block ? lo + block : hi;
        int chunk = 0;
        if (s->order == ORDER_RING) {
            chunk = order_chunk_of(s, lo);
            int64_t stop = order_chunk(s->count, s->ranks, chunk + 1);
            if (end > stop) end = stop;
        }
        f.n = end - lo;
        fold_block(&f, chunk, out, outs);
        f.at += (size_t)f.n * size;
        lo = end;
    }
}
