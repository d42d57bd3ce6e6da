/* Pages of weights, or of gradients, that are not kept. A bucket that goes leaves its pages to one that comes: new ones would have to be
 * zeroed first, which costs as much as the weights that are copied to them. */
#pragma once
#include "modes/step.h"

struct spares {
    struct mode *m;
    float *arena; /* whose buckets they were */
    int *bucket;  /* which have gone, the longest first, and whose pages are still there: (m->cut->count) */
    int count;
};
/* The arena of all that follows; pages of another are given back. */
void spares_use(struct spares *s, float *arena);
/* Bucket b has gone. */
void spares_put(struct spares *s, int b);
/* Bucket b comes, and has its own pages, or those of the bucket that has gone the longest, as far as these reach. There are
 * never more in all than were in use at a time. */
MUST_CHECK enum error spares_take(struct spares *s, int b);

/* Gives the pages of bucket b back that are not this rank's to update. */
void bucket_release(const struct mode *m, float *arena, int b);
/* These pages, which no peer reads here, become this process's own: those cost less to get. */
MUST_CHECK enum error bucket_overlay(const struct mode *m, float *arena, int b);
