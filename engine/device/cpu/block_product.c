/* Chooses the instruction level. */
#include "engine/device/cpu/block_product.h"
#include "engine/device/cpu/multiply_add.h"

#define TILE_HEADER "engine/device/cpu/block_product_tile.h"
#include "engine/device/cpu/tile_levels.h"

void block_product(const struct product *p) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        product_avx512(p);
        return;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        product_avx2(p);
        return;
    }
#endif
    product_basic(p);
}
