/* The instructions of x86 (SSE4.2, SHA) and of ARMv8 (CRC, SHA2), which are asked for when the program runs. */
#include "engine/base/digest_fast.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
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

/* The instruction does two rounds on the state split as (a,b,e,f) and (c,d,g,h); w[0..3] is a
 * window of 16 schedule words that rolls by four each turn. */
__attribute__((target("sha,sse4.1"))) static void sha_blocks_ni(uint32_t s[8], const uint8_t *p, size_t blocks) {
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0bll, 0x0405060700010203ll);
    __m128i abcd = _mm_loadu_si128((const __m128i *)(const void *)s);
    __m128i efgh = _mm_loadu_si128((const __m128i *)(const void *)(s + 4));
    abcd = _mm_shuffle_epi32(abcd, 0xB1); /* badc, low lane first: the order the instruction wants */
    efgh = _mm_shuffle_epi32(efgh, 0x1B);
    __m128i abef = _mm_alignr_epi8(abcd, efgh, 8), cdgh = _mm_blend_epi16(efgh, abcd, 0xF0);
    for (; blocks--; p += 64) {
        __m128i w[4], abef_old = abef, cdgh_old = cdgh;
        for (int i = 0; i < 16; i++) {
            __m128i now;
            if (i < 4) {
                now = _mm_loadu_si128((const __m128i *)(const void *)(p + i * 16));
                now = _mm_shuffle_epi8(now, big_endian);
            } else {
                const __m128i *o = w; /* o[i & 3] is the oldest four words */
                __m128i last = o[(i + 3) & 3];
                now = _mm_sha256msg1_epu32(o[i & 3], o[(i + 1) & 3]);
                now = _mm_add_epi32(now, _mm_alignr_epi8(last, o[(i + 2) & 3], 4));
                now = _mm_sha256msg2_epu32(now, last);
            }
            w[i & 3] = now;
            now = _mm_add_epi32(now, _mm_load_si128((const __m128i *)(const void *)(sha_k + i * 4)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, now);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(now, 0x0E));
        }
        abef = _mm_add_epi32(abef, abef_old);
        cdgh = _mm_add_epi32(cdgh, cdgh_old);
    }
    abef = _mm_shuffle_epi32(abef, 0x1B);
    cdgh = _mm_shuffle_epi32(cdgh, 0xB1);
    _mm_storeu_si128((__m128i *)(void *)s, _mm_blend_epi16(abef, cdgh, 0xF0));
    _mm_storeu_si128((__m128i *)(void *)(s + 4), _mm_alignr_epi8(cdgh, abef, 8));
}

crc32c_fn *crc32c_fast(void) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42 : NULL;
}

static int has_sha(void) { /* no name for it in __builtin_cpu_supports of our compilers */
    unsigned a, b = 0, c, d;
    return __builtin_cpu_supports("sse4.1") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

sha_blocks_fn *sha_blocks_fast(void) {
    static _Atomic int known; /* 0 not asked yet, 1 no, 2 yes: asking costs a trap in a virtual machine */
    if (!known) known = 1 + has_sha();
    return known == 2 ? sha_blocks_ni : NULL;
}

/* clang's headers before version 16 give these functions to whole files alone. */
#elif defined(__aarch64__) && defined(__linux__) && (!defined(__clang__) || __clang_major__ >= 16)
#include <arm_acle.h>
#include <arm_neon.h>
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

/* The instructions do four rounds on the state as (a,b,c,d) and (e,f,g,h); w[0..3] is a window of 16
 * schedule words that rolls by four each turn. */
__attribute__((target("+crypto"))) static void sha_blocks_arm(uint32_t s[8], const uint8_t *p, size_t blocks) {
    uint32x4_t abcd = vld1q_u32(s), efgh = vld1q_u32(s + 4);
    for (; blocks--; p += 64) {
        uint32x4_t w[4], abcd_old = abcd, efgh_old = efgh;
        for (int i = 0; i < 16; i++) {
            uint32x4_t now, before = abcd;
            if (i < 4)
                now = vreinterpretq_u32_u8(vrev32q_u8(vld1q_u8(p + i * 16)));
            else
                now = vsha256su1q_u32(vsha256su0q_u32(w[i & 3], w[(i + 1) & 3]), w[(i + 2) & 3], w[(i + 3) & 3]);
            w[i & 3] = now;
            now = vaddq_u32(now, vld1q_u32(sha_k + i * 4));
            abcd = vsha256hq_u32(abcd, efgh, now);
            efgh = vsha256h2q_u32(efgh, before, now);
        }
        abcd = vaddq_u32(abcd, abcd_old);
        efgh = vaddq_u32(efgh, efgh_old);
    }
    vst1q_u32(s, abcd);
    vst1q_u32(s + 4, efgh);
}

crc32c_fn *crc32c_fast(void) {
    return getauxval(AT_HWCAP) & HWCAP_CRC32 ? crc32c_arm : NULL;
}

sha_blocks_fn *sha_blocks_fast(void) {
    return getauxval(AT_HWCAP) & HWCAP_SHA2 ? sha_blocks_arm : NULL;
}

#else
crc32c_fn *crc32c_fast(void) {
    return NULL;
}

sha_blocks_fn *sha_blocks_fast(void) {
    return NULL;
}
#endif
