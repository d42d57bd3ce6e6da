/* All ranks of a run: opening their group from the configuration, and the exchanges that are not the
 * step itself. A rank that is alone has no group, and nothing to exchange: zeroed. */
#pragma once
#include "engine/train/trainer.h"
#include "modes/place/place.h"

struct team {
    struct group *group; /* NULL: this rank is alone */
    struct group
        *peers; /* those of its ranks that have the same part of the model, where they do not have all of it, and
                            are several; else NULL */
    struct recorder *recorder;
    bool aborted;
    bool subtrees;  /* it adds those of the ranks' runs of leaves along the tree */
    char line[480]; /* for the banner */
};
MUST_CHECK enum error team_open(struct team *m, struct trainer *t, const struct place *place);
void team_abort(struct team *m, const char *reason);
void team_close(struct team *m);
/* Values, their average and buffers from rank 0 to all; the optimizer's state, where every rank steps its own. */
MUST_CHECK enum error team_share_start(struct team *m, struct trainer *t);
MUST_CHECK enum error team_share_state(struct team *m, struct trainer *t);
MUST_CHECK enum error team_sum(struct team *m, double *v, int n);
MUST_CHECK enum error team_share_buffers(struct team *m, struct trainer *t, int root);
/* step_ops.watch. */
MUST_CHECK enum error team_watch(struct team *m, struct trainer *t, struct trace_clock *clock);
/* The label of a call in the trace: what it carries of bucket b. */
#define LABEL_GRADIENTS(b) ((b) + 1)
#define LABEL_WEIGHTS(b) (-(b)-1)
/* Adds what the groups have carried. */
void team_stats(const struct team *m, struct mode_stats *out);

/* Works that were begun and not waited for, the oldest first. A group has room for GROUP_WORKS,
 * which a step of many buckets must not exceed. Zeroed: none. */
struct flight {
    int64_t begun, done;
    struct work *work[GROUP_WORKS];
};
/* The place for the handle of the next work; if there is no room, it waits for the oldest one. */
MUST_CHECK enum error flight_next(struct flight *f, struct work ***out);
MUST_CHECK enum error flight_land(struct flight *f);           /* waits for all */
MUST_CHECK enum error flight_wait(struct flight *f, int last); /* but for the last so many */
