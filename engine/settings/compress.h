/* What a configuration says of the compression of gradients: comm.compress. How it is done stands
 * in modes/share/compress_*.c, a file a kind. */
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
