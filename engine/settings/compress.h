/* The configuration of compressed gradients: comm.compress. The implementation is in modes/share/compress_*.c, one
 * file for each kind. */
#pragma once
#include "engine/config/schema.h"

enum compress_kind {
#define COMPRESS(name) COMPRESS_##name,
#include "engine/settings/compress.def"
#undef COMPRESS
    COMPRESS_KINDS
};
struct compress_config { /* of all kinds */
    double ratio;        /* topk: share of the values that travels */
    int64_t rank;        /* powersgd: of the factors */
};
extern const struct config_variants compress_variants;
