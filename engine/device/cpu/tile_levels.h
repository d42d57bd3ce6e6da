/* Includes TILE_HEADER, the innermost loops of a product, once for each instruction level. */
#if defined(__x86_64__)
#define TILE(x) x##_avx512
#define TILE_TARGET __attribute__((target("avx512f")))
#define TILE_LANES 16
#define TILE_ROWS 8
#include TILE_HEADER
#define TILE(x) x##_avx2
#define TILE_TARGET __attribute__((target("avx2,fma")))
#define TILE_LANES 8
#define TILE_ROWS 4
#include TILE_HEADER
#endif
#define TILE(x) x##_basic
#define TILE_TARGET
#define TILE_LANES 4
#define TILE_ROWS 4
#include TILE_HEADER
#undef TILE_HEADER
