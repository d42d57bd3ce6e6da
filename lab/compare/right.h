/* Which validation samples a run classified rightly at its end (validation.safetensors), and how two runs differ in
 * them: whether b of one's and c of the other's is chance is McNemar's question. The file may hold anything. */
#pragma once
#include "engine/base/memory.h"

#include <stdint.h>

struct right {
    const char *dir;
    int64_t samples, step;
    uint32_t data;           /* a digest of the samples */
    const unsigned char *is; /* (samples), 0 or 1 */
};
/* What the run in 'dir' has left, into the pool. ERR_INPUT: it left none, as it was stopped, has no classes, or is
 * older than the file; ERR_DATA: it is not of that form. */
MUST_CHECK enum error right_read(const char *dir, struct pool *pool, struct right *out);

struct right_counts {
    int64_t samples, both, first, second; /* first, second: what only that one has right */
};
/* ERR_DATA: they were measured on other samples. */
MUST_CHECK enum error right_compare(const struct right *a, const struct right *b, struct right_counts *out);
