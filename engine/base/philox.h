/* Philox 4x32-10: four random words from a key and a counter. This header is separate so that it can also be compiled
 * for other processors, with a macro for the kind of function. */
#pragma once
#include <stdint.h>

#ifndef PHILOX_FUNCTION
#define PHILOX_FUNCTION static inline
#endif

PHILOX_FUNCTION void philox_words(const uint32_t key[2], uint64_t a, uint64_t b, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)a, c1 = (uint32_t)(a >> 32), c2 = (uint32_t)b, c3 = (uint32_t)(b >> 32);
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}
