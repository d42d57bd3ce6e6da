#include "transport/base/types.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[DTYPES] = {
    [DTYPE_F32] = {"f32", 4}, [DTYPE_F64] = {"f64", 8}, [DTYPE_F16] = {"f16", 2}, [DTYPE_BF16] = {"bf16", 2},
    [DTYPE_I32] = {"i32", 4}, [DTYPE_I64] = {"i64", 8}, [DTYPE_U8] = {"u8", 1}};
static const char *const redops[REDOPS] = {"sum", "prod", "min", "max", "average", "and", "or", "xor"};

size_t dtype_size(enum dtype t) {
    return dtypes[t].size;
}

const char *dtype_name(enum dtype t) {
    return dtypes[t].name;
}

const char *redop_name(enum redop op) {
    return redops[op];
}

const char *kind_name(enum kind k) {
    static const char *const names[KINDS] = {
#define X(name, text) [KIND_##name] = text,
        KINDS_OF_CALL(X)
#undef X
    };
    return names[k];
}
