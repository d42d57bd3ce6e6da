/* AMX's instructions, as macros that a test replaces by plain C (AMX_MODEL names its header). They have not run on a
 * processor that has them. */
#pragma once
#if defined(AMX_MODEL)
#include AMX_MODEL
#else
#include <immintrin.h>
#define TILES_CONFIGURE(config) _tile_loadconfig(config)
#define TILES_RELEASE() _tile_release()
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride) /* rows are 'stride' bytes apart */
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#endif
#include <stdint.h>

/* What the compiler has yet to store, at p too, is in memory then: some compilers take the instructions to read the first
 * bytes alone. */
#define TILES_SEE(p) __asm__ volatile("" : : "r"(p) : "memory")

enum { AMX_ROWS = 16, AMX_TILES = 8 };

/* A thread has its own tiles, each of at most 16 rows of 16 floats or pairs. */
static inline void amx_begin(const uint8_t rows[AMX_TILES], const uint8_t columns[AMX_TILES]) {
    _Alignas(64) struct {
        uint8_t palette, begin, unused[14];
        uint16_t bytes[16]; /* of a row */
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int t = 0; t < AMX_TILES; t++) config.bytes[t] = 4 * columns[t], config.rows[t] = rows[t];
    TILES_SEE(&config);
    TILES_CONFIGURE(&config);
}

static inline void amx_end(void) {
    TILES_RELEASE();
}
