/* What dp and ddp share of a process group: opening one from the configuration, and the exchanges
 * that are not the step itself. */
#pragma once
#include "engine/train/trainer.h"
#include "transport/group.h"

struct team {
    struct group *group;
    struct recorder *recorder;
    bool aborted;
    char line[480]; /* for the banner */
};
/* t->place is the struct group_params that the launch has prepared: who and where the ranks are.
 * The rest is the configuration's, but for the algorithm that 'auto' means and ranks that only
 * serve. */
MUST_CHECK enum error team_open(struct team *m, struct trainer *t, const char *automatic, int idle);
void team_abort(struct team *m, const char *reason);
void team_close(struct team *m);
/* values and buffers from rank 0 to all; optimizer state too when every rank steps its own. */
MUST_CHECK enum error team_share_start(struct team *m, struct trainer *t, bool state);
MUST_CHECK enum error team_sum(struct team *m, double *v, int n);
MUST_CHECK enum error team_share_buffers(struct team *m, struct trainer *t, int root);
/* mode_ops.watch. */
MUST_CHECK enum error team_watch(struct team *m, struct trainer *t, struct trace_clock *clock);
/* For the trace, by group_label: what the group's next call carries of bucket b. */
#define LABEL_GRADIENTS(b) ((b) + 1)
#define LABEL_WEIGHTS(b) (-(b)-1)
void team_stats(const struct team *m, struct mode_stats *out);

/* Works that were begun and not waited for, the oldest first. A group has room for so many, which a
 * step of many buckets must not exceed. Zeroed: none. */
struct flight {
    int64_t begun, done;
    struct work *work[GROUP_WORKS];
};
/* Where the handle of the next work goes; where there is no room, the oldest is waited for. */
MUST_CHECK enum error flight_next(struct flight *f, struct work ***out);
MUST_CHECK enum error flight_land(struct flight *f); /* waits for all */
