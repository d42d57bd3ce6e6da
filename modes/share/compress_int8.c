/* Gradients in 8 bits: of each 256 the largest, divided by 127, is the scale; the others are rounded
 * to whole multiples of it. Sums of such numbers have other scales, so they are added where they can
 * be read:
 *
 *     all_to_all   every rank's blocks of a part go to the part's owner
 *     the owner    adds them in the order of the ranks, and rounds the sum with scales of its own
 *     all_gather   of the parts
 *
 * 2(N-1)/N of 260 bytes for 256 floats: a little above a quarter of an all-reduce, on any number of
 * ranks. Both roundings' errors go into the next step: the first on the rank that rounded, the
 * second on the owner. */
#include "engine/base/half.h"
#include "engine/base/vector.h"
#include "engine/settings/compress.h"
#include "engine/settings/places.h"
#include "modes/share/compress.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 };
struct block {
    float scale;
    int8_t q[BLOCK];
};

/* The largest magnitude's bits, which are ordered as the magnitudes are, with NaN above all. */
VECTORISED static uint32_t largest(const float *x, int64_t n) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = bits_of(x[i]) & 0x7fffffff;
        most = u > most ? u : most;
    }
    return most;
}

/* x becomes what is lost. */
VECTORISED static void round_block(float *restrict x, int64_t n, float scale, float inverse, int8_t *restrict q) {
    for (int64_t i = 0; i < n; i++) {
        float whole = rintf(x[i] * inverse);
        q[i] = (int8_t)whole;
        x[i] -= whole * scale;
    }
}

/* A block that is not finite becomes one that is NaN throughout, as the sum then is. */
static void encode(float *x, int64_t n, struct block *to) {
    uint32_t most = largest(x, n);
    bool finite = most < 0x7f800000;
    to->scale = finite ? float_of(most) / 127 : NAN;
    float inverse = finite && to->scale > 0 ? 1 / to->scale : 0;
    if (isinf(inverse)) to->scale = inverse = 0; /* below what has an inverse: it waits */
    memset(to->q, 0, sizeof to->q);
    if (finite) round_block(x, n, to->scale, inverse, to->q);
}

VECTORISED static void decode(const struct block *b, float *restrict x, int64_t n) {
    float scale = b->scale;
    for (int64_t i = 0; i < n; i++) x[i] = scale * (float)b->q[i];
}

VECTORISED static void add(const struct block *b, float *restrict x, int64_t n) {
    float scale = b->scale;
    for (int64_t i = 0; i < n; i++) x[i] += scale * (float)b->q[i];
}

static int64_t blocks_of(const struct packet *p) {
    return (p->n + BLOCK - 1) / BLOCK;
}

static int64_t floats_of(const struct packet *p, int64_t block) {
    return p->n - block * BLOCK < BLOCK ? p->n - block * BLOCK : BLOCK;
}

static int64_t first_of(const struct compress *c, const struct packet *p, int rank) {
    return blocks_of(p) * rank / c->t->standing.ranks;
}

/* wire: my blocks, then what the others send me of my part. */
static struct block *inbox_of(const struct packet *p) {
    return (struct block *)p->wire + blocks_of(p);
}

static enum error int8_open(struct compress *c, struct packet *p) {
    int64_t ranks = c->t->standing.ranks, part = blocks_of(p) / ranks + 1; /* the most that a rank has */
    size_t all = (size_t)(blocks_of(p) + part * ranks) * sizeof(struct block);
    TRY(compress_alloc(c, all, &p->wire));
    return compress_alloc(c, (size_t)blocks_of(p) * sizeof(struct block), &p->back);
}

static enum error int8_send(struct compress *c, struct packet *p, struct dispatch how) {
    struct block *to = p->wire;
    int ranks = c->t->standing.ranks;
    int64_t mine = first_of(c, p, c->t->rank + 1) - first_of(c, p, c->t->rank), *from = c->parts + ranks + 1;
    floats_add(p->rest, p->g, p->n);
    for (int64_t i = 0; i < blocks_of(p); i++) encode(p->rest + i * BLOCK, floats_of(p, i), to + i);
    for (int r = 0; r <= ranks; r++) {
        c->parts[r] = first_of(c, p, r) * (int64_t)sizeof(struct block);
        from[r] = mine * r * (int64_t)sizeof(struct block);
    }
    return group_all_to_all(c->group, how, p->wire, c->parts, inbox_of(p), from, DTYPE_U8);
}

/* The sum of a block of my part, over the ranks in their order; it also takes what the last one
 * lost. */
static void sum_block(struct compress *c, struct packet *p, int64_t block, int64_t mine) {
    float x[BLOCK];
    int64_t n = floats_of(p, block), at = block - first_of(c, p, c->t->rank);
    const struct block *in = inbox_of(p) + at;
    decode(in, x, n);
    for (int r = 1; r < c->t->standing.ranks; r++) add(in + r * mine, x, n);
    encode(x, n, (struct block *)p->back + block);
    floats_add(p->rest + block * BLOCK, x, n);
}

static enum error int8_turn(struct compress *c, struct packet *p, struct dispatch how) {
    int64_t begin = first_of(c, p, c->t->rank), end = first_of(c, p, c->t->rank + 1);
    for (int64_t i = begin; i < end; i++) sum_block(c, p, i, end - begin);
    for (int r = 0; r <= c->t->standing.ranks; r++) c->parts[r] = first_of(c, p, r) * (int64_t)sizeof(struct block);
    return group_all_gather(c->group, how, p->back, c->parts, DTYPE_U8);
}

static void int8_receive(struct compress *c, struct packet *p) {
    const struct block *from = p->back;
    (void)c;
    for (int64_t i = 0; i < blocks_of(p); i++) decode(from + i, p->g + i * BLOCK, floats_of(p, i));
}

const struct compress_ops compress_int8 = {
    .feedback = true, .open = int8_open, .send = int8_send, .turn = int8_turn, .receive = int8_receive};
