/* crc32c by the processor's own instruction: what digest.c runs where it can. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef uint32_t crc32c_fn(uint32_t crc, const uint8_t *p, size_t n); /* all bits of crc are inverted */
/* NULL: the processor that runs this has no instruction for it. */
crc32c_fn *crc32c_fast(void);
