/* Digests by the processor's own instructions: what digest.c runs where it can. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef uint32_t crc32c_fn(uint32_t crc, const uint8_t *p, size_t n); /* all bits of crc are inverted */
typedef void sha_blocks_fn(uint32_t s[8], const uint8_t *p, size_t blocks);
/* NULL: the processor that runs this has no instructions for it. */
crc32c_fn *crc32c_fast(void);
sha_blocks_fn *sha_blocks_fast(void);

extern const uint32_t sha_k[64]; /* FIPS 180-4, 4.2.2; in digest.c */
