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

static enum error half_open(struct compress *c, struct packet *p) {
    return compress_alloc(c, (size_t)p->n * sizeof(uint16_t), &p->wire);
}

static enum error halves_add(struct compress *c, struct packet *p, enum dtype type, struct dispatch how) {
    return group_all_reduce(c->group, how, p->wire, p->n, type, REDOP_SUM);
}

/* What a rank's own part has become of the sum. */
#define OWN(type)                                                                                                      \
    static void type##_pushed(struct compress *c, struct packet *p) {                                                  \
        int64_t at = p->part[c->t->rank];                                                                              \
        from_##type((uint16_t *)p->wire + at, p->g + at, p->part[c->t->rank + 1] - at);                                \
    }
OWN(bf16)
OWN(f16)

static enum error bf16_push(struct compress *c, struct packet *p, struct dispatch how) {
    to_bf16(p->g, p->wire, p->n);
    return group_reduce_scatter(c->group, how, p->wire, p->part, DTYPE_BF16, REDOP_SUM);
}

static enum error fp16_push(struct compress *c, struct packet *p, struct dispatch how) {
    to_f16(p->g, p->wire, p->n);
    return group_reduce_scatter(c->group, how, p->wire, p->part, DTYPE_F16, REDOP_SUM);
}

static enum error bf16_send(struct compress *c, struct packet *p, struct dispatch how) {
    to_bf16(p->g, p->wire, p->n);
    return halves_add(c, p, DTYPE_BF16, how);
}

static void bf16_receive(struct compress *c, struct packet *p) {
    (void)c;
    from_bf16(p->wire, p->g, p->n);
}

static enum error fp16_send(struct compress *c, struct packet *p, struct dispatch how) {
    to_f16(p->g, p->wire, p->n);
    return halves_add(c, p, DTYPE_F16, how);
}

static void fp16_receive(struct compress *c, struct packet *p) {
    (void)c;
    from_f16(p->wire, p->g, p->n);
}

const struct compress_ops compress_bf16 = {
    .open = half_open, .send = bf16_send, .receive = bf16_receive, .push = bf16_push, .pushed = bf16_pushed};
const struct compress_ops compress_fp16 = {
    .open = half_open, .send = fp16_send, .receive = fp16_receive, .push = fp16_push, .pushed = f16_pushed};
