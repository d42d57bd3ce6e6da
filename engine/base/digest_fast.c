/* The instructions of x86 (SSE4.2) and of ARMv8 (CRC), which are asked for when the program runs. */
#include "engine/base/digest_fast.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p, size_t n) {
    uint64_t c = crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        c = _mm_crc32_u64(c, word);
    }
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
