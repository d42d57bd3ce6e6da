/* Samples that cannot be read. Each is tried once, by as many threads as the process has cores, and the process
 * remembers the answer: who opens the same files again, as validation and other ranks do, need not try them again. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/error.h"

#include <stdint.h>

struct unreadable { /* lives as long as the process; the same pointer for the same files */
    int64_t count;
    struct unreadable_sample {
        int64_t index;
        char *why; /* with the file's name */
    } * sample;    /* in order */
};
/* Thread-safe. ERR_DATA: sample i is unreadable, and the message says why; any other error ends the search. */
typedef enum error unreadable_try_fn(void *ctx, int64_t i);
/* Tries n samples. key: a digest of what they are, so that an equal key has the same answer. */
MUST_CHECK enum error unreadable_find(const char key[SHA256_TEXT], int64_t n, unreadable_try_fn *try, void *ctx,
                                      const struct unreadable **out);
