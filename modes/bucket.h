/* Buckets: the gradient arena cut into ranges that travel as one message each. dp and ddp cut
 * alike, so that an order of addition that depends on the cut (ring) is the same in both. */
#pragma once
#include "engine/model/model.h"
#include "engine/settings/sharing.h"

struct buckets {
    int count;
    int64_t *edge; /* bucket b is [edge[b], edge[b + 1]) in floats; edge[0] = 0, edge[count] = the
                      arena's end */
};
/* The first bucket ends with the first parameter at which it holds 'first' bytes, so that
 * communication starts early; the others at 'cap' bytes. A parameter is never split: one larger
 * than the cap is a bucket of its own size. Where cuts lie anywhere, buckets have as many blocks as hold so many bytes. */
MUST_CHECK enum error buckets_init(struct buckets *b, const struct model *m, const struct cutting *c);
/* Every end but the last moves down to a multiple of this many floats; buckets that are then empty go. A
 * parameter may be split. */
void buckets_align(struct buckets *b, int64_t multiple);
/* How many of them begin before that place. */
int buckets_before(const struct buckets *b, int64_t place);
/* The buckets that a parameter lies in, from lo to hi. */
struct bucket_range {
    int lo, hi;
};
struct bucket_range buckets_of_param(const struct buckets *b, const struct tensor_info *param);
void buckets_fini(struct buckets *b);
