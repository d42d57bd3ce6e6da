/* Types of elements, operations, orders of addition, and kinds of calls. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum dtype {
    DTYPE_F32,
    DTYPE_F64,
    DTYPE_F16,  /* a uint16_t: IEEE's half */
    DTYPE_BF16, /* a uint16_t: the upper half of an f32 */
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPES
};
/* Every single operation rounds to the type, to nearest even; integers wrap. AVERAGE is the sum, then divided once by
 * the number of ranks that gave (integers: toward zero). AND, OR and XOR are for integers. */
enum redop { REDOP_SUM, REDOP_PROD, REDOP_MIN, REDOP_MAX, REDOP_AVERAGE, REDOP_AND, REDOP_OR, REDOP_XOR, REDOPS };
enum order { ORDER_TREE, ORDER_RING }; /* in which the ranks' floats are added: see algo/order.h */
size_t dtype_size(enum dtype t);
const char *dtype_name(enum dtype t);
bool redop_suits(enum redop op, enum dtype t);
const char *redop_name(enum redop op);

/*  kind            in words           */
#define KINDS_OF_CALL(X)                                                                                               \
    X(ALL_REDUCE, "all_reduce")                                                                                        \
    X(REDUCE, "reduce")                                                                                                \
    X(BROADCAST, "broadcast")                                                                                          \
    X(REDUCE_SCATTER, "reduce_scatter")                                                                                \
    X(ALL_GATHER, "all_gather")                                                                                        \
    X(SCATTER, "scatter")                                                                                              \
    X(GATHER, "gather")                                                                                                \
    X(ALL_TO_ALL, "all_to_all")                                                                                        \
    X(SEND, "send")                                                                                                    \
    X(RECV, "recv")                                                                                                    \
    X(BARRIER, "barrier")                                                                                              \
    X(ALLOC, "alloc")                                                                                                  \
    X(OPEN, "open")
enum kind {
#define X(name, text) KIND_##name,
    KINDS_OF_CALL(X)
#undef X
        KINDS,
    COLLECTIVES = KIND_SEND /* the kinds before it move data among all ranks */
};
const char *kind_name(enum kind k); /* "all_reduce" */

/* A call in which a share mixes floats (engine/plugin.h, group_mix). */
struct plugin;
struct mixing {
    const struct plugin *by;
    int64_t meeting;
    float *room;           /* as many as the call's floats; calls of one lane may have one */
    const int64_t *tensor; /* engine_call.tensor; 0 tensors: all is one */
    int tensors;
};
static inline bool kind_adds(enum kind k) {
    return k == KIND_ALL_REDUCE || k == KIND_REDUCE || k == KIND_REDUCE_SCATTER;
}
/* Whether only the root gives, or only the root receives. */
static inline bool kind_from_root(enum kind k) {
    return k == KIND_BROADCAST || k == KIND_SCATTER;
}
static inline bool kind_to_root(enum kind k) {
    return k == KIND_REDUCE || k == KIND_GATHER;
}
static inline bool kind_has_root(enum kind k) {
    return kind_from_root(k) || kind_to_root(k);
}
/* Whether each rank gives its own part. */
static inline bool kind_gathers(enum kind k) {
    return k == KIND_GATHER || k == KIND_ALL_GATHER;
}
static inline bool kind_has_parts(enum kind k) {
    return k == KIND_REDUCE_SCATTER || k == KIND_SCATTER || kind_gathers(k);
}
static inline bool kind_has_peer(enum kind k) {
    return k == KIND_SEND || k == KIND_RECV;
}
