/* Gradients in 16 bits: each is rounded to nearest, the sum is made in the same type, rounded after
 * every addition. An all-reduce of half the bytes and no state. bf16 has the range of f32 and 8 bits
 * of precision; fp16 has 11 bits, but a gradient below 6e-8 becomes zero and one above 65504
 * infinite. */
#include "engine/base/half.h"
#include "engine/base/vector.h"
#include "modes/share/compress.h"

/* A function of a type and its two directions, since a call through a pointer is no loop. */
#define CONVERT(type)                                                                                                  \
    VECTORISED static void to_##type(const float *restrict x, uint16_t *restrict h, int64_t n) {                       \
        for (int64_t i = 0; i < n; i++) h[i] = narrow_##type(x[i]);                                                    \
    }                                                                                                                  \
    VECTORISED static void from_##type(const uint16_t *restrict h, float *restrict x, int64_t n) {                     \
        for (int64_t i = 0; i < n; i++) x[i] = widen_##type(h[i]);                                                     \
    }
CONVERT(bf16)
CONVERT(f16)

static void half_narrow(const struct compress *c, struct packet *p) {
    (c->ops->type == DTYPE_BF16 ? to_bf16 : to_f16)(p->g, p->wire, p->n);
}

static void half_widen(const struct compress *c, struct packet *p, int64_t from, int64_t to) {
    (c->ops->type == DTYPE_BF16 ? from_bf16 : from_f16)((uint16_t *)p->wire + from, p->g + from, to - from);
}

static enum error half_open(struct compress *c, struct packet *p) {
    return compress_alloc(c, (size_t)p->n * sizeof(uint16_t), &p->wire);
}

static enum error half_send(struct compress *c, struct packet *p, struct dispatch how) {
    half_narrow(c, p);
    return group_all_reduce(c->group, how, p->wire, p->n, c->ops->type, REDOP_SUM);
}

static void half_receive(struct compress *c, struct packet *p) {
    half_widen(c, p, 0, p->n);
}

static enum error half_push(struct compress *c, struct packet *p, struct dispatch how) {
    half_narrow(c, p);
    return group_reduce_scatter(c->group, how, p->wire, p->part, c->ops->type, REDOP_SUM);
}

static void half_pushed(struct compress *c, struct packet *p) {
    half_widen(c, p, p->part[c->t->rank], p->part[c->t->rank + 1]);
}

#define HALF(of)                                                                                                       \
    {                                                                                                                  \
        .type = (of), .open = half_open, .send = half_send, .receive = half_receive, .push = half_push,                \
        .pushed = half_pushed                                                                                          \
    }
const struct compress_ops compress_bf16 = HALF(DTYPE_BF16), compress_fp16 = HALF(DTYPE_F16);
