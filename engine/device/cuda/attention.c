/* Attention on a GPU: y and each row's log-sum forward; backward delta (sum of dy y of each row), then dq by one
 * kernel and dk, dv by another. Two kernels work the scores out twice (7 products instead of 5), but need neither
 * atomics nor memory for partial sums of dq: every result has one owner, who sums in order, so its bits depend on its
 * own sample alone. All work in the op's interleaved layout.
 *   bf16, fp16   attention_tile.h's "tensor": tensor cores, f32 sums, p and ds rounded for their products
 *   f32, tf32    "simt": exact products */
#include "engine/device/cuda/attention_launch.h"
#include "engine/device/cuda/cuda.h"

static struct attention_call call_of(const struct op *op, const struct op_args *a) {
    const struct op_desc *d = &op->desc;
    int heads = d->attention.heads, size = (int)(shape_last(&d->y) / heads);
    struct attention_call c = {.type = element_of(d->precision),
                               .x = a->x[0],
                               .y = a->y,
                               .dy = a->dy,
                               .dx = a->dx[0],
                               .lse = a->saved,
                               .delta = a->scratch,
                               .samples = d->n,
                               .positions = (int)d->x.dim[0],
                               .heads = heads,
                               .size = size,
                               .shared = cuda_of(op)->shared,
                               .causal = d->attention.causal};
    uintptr_t all = (uintptr_t)c.x | (uintptr_t)c.y | (uintptr_t)c.dy | (uintptr_t)c.dx;
    c.aligned = all % 16 == 0 && size % (c.type == ELEMENT_F32 ? 4 : 8) == 0;
    return c;
}

static bool attention_takes(const struct op_desc *d) {
    int64_t size = shape_last(&d->y) / d->attention.heads, positions = d->x.dim[0];
    if (d->attention.context || size > ATTENTION_SIZE_MOST || positions > INT32_MAX / 2) return false;
    if (d->first && cuda_is_half(d)) return false; /* x would be f32 */
    /* a launch has at most 2^31 - 1 blocks */
    int64_t blocks = (positions + ATTENTION_ROWS_LEAST - 1) / ATTENTION_ROWS_LEAST;
    return d->n <= INT32_MAX / d->attention.heads / blocks;
}

static enum error attention_plan(struct op *op) {
    const struct op_desc *d = &op->desc;
    struct op_args none = {0};
    struct attention_call c = call_of(op, &none);
    TRY(cuda_enter(cuda_of(op))); /* what follows is about the current GPU */
    CU(attention_forward_prepare(c.type, c.size, c.shared), "attention");
    CU(attention_queries_prepare(c.type, c.size, c.shared), "attention");
    CU(attention_keys_prepare(c.type, c.size, c.shared), "attention");
    op->saved_bytes = op->scratch_bytes = (size_t)(d->n * d->attention.heads * d->x.dim[0]) * sizeof(float);
    return ERR_NONE;
}

static enum error attention_forward(struct op *op, const struct op_args *a) {
    struct attention_call c = call_of(op, a);
    CU(attention_forward_launch(&c, cuda_stream(op)), "attention");
    return ERR_NONE;
}

static enum error attention_backward(struct op *op, const struct op_args *a) {
    struct attention_call c = call_of(op, a);
    cudaStream_t s = cuda_stream(op);
    if (!c.dx) return ERR_NONE;
    CU(attention_delta_launch(&c, s), "attention: delta");
    CU(attention_queries_launch(&c, s), "attention: gradient of queries");
    CU(attention_keys_launch(&c, s), "attention: gradients of keys and values");
    return ERR_NONE;
}

const struct op_impl cuda_attention = {
    .name = "flash",
    .takes = attention_takes,
    .plan = attention_plan,
    .forward = attention_forward,
    .backward = attention_backward,
};
