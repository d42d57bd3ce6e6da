/* What dp and ddp share of a process group: opening one from the configuration, and the exchanges
 * that are not the step itself. */
#pragma once
#include "engine/train/trainer.h"
#include "transport/group.h"

struct team {
    struct group *group;
    char line[256]; /* for the banner */
};
/* p holds what the mode decides: link, size, idle, the algorithm that 'auto' means; the rest is the
 * configuration's. */
MUST_CHECK enum error team_open(struct team *m, struct trainer *t, struct group_params p);
void team_close(struct team *m);
/* values and buffers from rank 0 to all; optimizer state too when every rank steps its own. */
MUST_CHECK enum error team_share_start(struct team *m, struct trainer *t, bool state);
MUST_CHECK enum error team_sum(struct team *m, double *v, int n);
MUST_CHECK enum error team_share_buffers(struct team *m, struct trainer *t, int root);
void team_stats(const struct team *m, struct mode_stats *out);
