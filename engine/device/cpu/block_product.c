/* Chooses the instruction level. This file is compiled with -ffp-contract=fast: the one expression
 * in it that can contract is the tile's. */
#include "engine/device/cpu/block_product.h"

#if defined(__x86_64__)
#define TILE(x) x##_avx512
#define TILE_TARGET __attribute__((target("avx512f")))
#define TILE_LANES 16
#define TILE_ROWS 8
#include "engine/device/cpu/block_product_tile.h"
#define TILE(x) x##_avx2
#define TILE_TARGET __attribute__((target("avx2,fma")))
#define TILE_LANES 8
#define TILE_ROWS 4
#include "engine/device/cpu/block_product_tile.h"
#endif
#define TILE(x) x##_basic
#define TILE_TARGET
#define TILE_LANES 4
#define TILE_ROWS 4
#include "engine/device/cpu/block_product_tile.h"

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
