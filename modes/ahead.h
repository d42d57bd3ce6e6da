/* Weights that come ahead of their use: the gathers of moves that end before a layer (enum move_end), on a lane of their
 * own, and the waits for them. Where ranks do not keep the weights that others update (exchange_plan.kept), these go
 * again after their use. */
#pragma once
#include "modes/step.h"

struct ahead;
/* After m->cut and m->part are set; where this rank computes, its graph asks here for weights (standing.source). */
MUST_CHECK enum error ahead_open(struct mode *m, struct ahead **out);
void ahead_close(struct ahead *a); /* NULL is fine */
/* The buckets in the order in which forward needs them. */
const int *ahead_order(const struct ahead *a);
/* This rank's part of bucket b is updated. Where weights are kept, the others' begin to come. */
MUST_CHECK enum error ahead_updated(struct ahead *a, int b);
/* All parts are updated: the first of what is not kept begins to come. Where nothing runs beside computing, all is there. */
MUST_CHECK enum error ahead_began(struct ahead *a);
/* What has begun to come is there. */
MUST_CHECK enum error ahead_land(struct ahead *a);
/* No weights are on their way any more, and nobody reads this rank's: of what is not kept it has its own alone. */
MUST_CHECK enum error ahead_settle(struct ahead *a);
/* Rank 0 has all of an arena until the next step begins, or the next forward. */
MUST_CHECK enum error ahead_collect(struct ahead *a, float *arena);
/* Rank 0 has all of it, each rank then its parts: nobody else ever reads the rest of it here. */
MUST_CHECK enum error ahead_scatter(struct ahead *a, float *arena);
