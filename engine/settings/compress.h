/* The configuration of compressed gradients: comm.compress. The implementation is in modes/share/compress_*.c, one
 * file for each kind. */
#pragma once
#include "engine/config/plugged.h"

enum compress_kind {
#define COMPRESS(name) COMPRESS_##name,
#include "engine/settings/compress.def"
    COMPRESS_KINDS
};
struct compress_config { /* of all kinds */
    double ratio;        /* topk, randomk: share of the values that travels */
    int64_t rank;        /* powersgd: of the factors */
    struct plugged_config plugged;
};
extern const struct config_variants compress_variants;
/* The kind's name; a plug-in's path. */
const char *compress_name(const struct config_variant *compress);
