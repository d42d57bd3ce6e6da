/* The instructions of x86 (SSE4.2) and of ARMv8 (CRC), which are asked for when the program runs. */
#include "engine/base/digest_fast.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* The instruction takes three cycles, but one can begin in each: so three lanes of a text are computed at a time. A crc
 * is linear: that of two lanes is the first's, over which as many zeros went as the second has bytes, and the second's. */
enum { LANE = 2048, WORD = 8 };
static uint32_t over_zeros[4][256]; /* of each byte of a crc, what LANE zeros make of it; written once, by zeros_make */

__attribute__((target("sse4.2"))) static void zeros_make(void) {
    for (int bit = 0; bit < 32; bit++) {
        uint64_t c = 1u << bit;
        for (int i = 0; i < LANE; i += WORD) c = _mm_crc32_u64(c, 0);
        for (int v = 0; v < 256; v++)
            if (v >> bit % 8 & 1) over_zeros[bit / 8][v] ^= (uint32_t)c;
    }
}

static uint32_t crc_join(uint64_t a, uint64_t b) {
    return over_zeros[0][a & 255] ^ over_zeros[1][a >> 8 & 255] ^ over_zeros[2][a >> 16 & 255] ^
           over_zeros[3][a >> 24] ^ (uint32_t)b;
}

__attribute__((target("sse4.2"))) static inline uint64_t crc_word(uint64_t crc, const uint8_t *p) {
    uint64_t word;
    memcpy(&word, p, WORD);
    return _mm_crc32_u64(crc, word);
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p, size_t n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    uint64_t c = crc;
    if (n >= 3 * LANE) pthread_once(&once, zeros_make);
    for (; n >= 3 * LANE; p += 3 * LANE, n -= 3 * LANE) {
        uint64_t second = 0, third = 0;
        for (int i = 0; i < LANE; i += WORD) {
            c = crc_word(c, p + i);
            second = crc_word(second, p + LANE + i);
            third = crc_word(third, p + 2 * LANE + i);
        }
        c = crc_join(crc_join(c, second), third);
    }
    for (; n >= WORD; p += WORD, n -= WORD) c = crc_word(c, p);
    crc = (uint32_t)c;
    while (n--) crc = _mm_crc32_u8(crc, *p++);
    return crc;
}

crc32c_fn *crc32c_fast(void) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42 : NULL;
}

/* clang's headers before version 16 give these functions to whole files alone. */
#elif defined(__aarch64__) && defined(__linux__) && (!defined(__clang__) || __clang_major__ >= 16)
#include <arm_acle.h>
#include <sys/auxv.h>

__attribute__((target("+crc"))) static uint32_t crc32c_arm(uint32_t crc, const uint8_t *p, size_t n) {
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        crc = __crc32cd(crc, word);
    }
    while (n--) crc = __crc32cb(crc, *p++);
    return crc;
}

crc32c_fn *crc32c_fast(void) {
    return getauxval(AT_HWCAP) & HWCAP_CRC32 ? crc32c_arm : NULL;
}

#else
crc32c_fn *crc32c_fast(void) {
    return NULL;
}
#endif
