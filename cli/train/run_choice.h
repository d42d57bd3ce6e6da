/* Decides whether a start is a new run or continues one. */
#pragma once
#include "cli/line/cli.h"

/* Completes p->run_id and p->fresh. Where a run seems to begin, its directory's own goes on if what is
 * resumed is the newest checkpoint there, or if the launcher says that this is another start of the
 * job that made it: then from that run's last checkpoint (p->resume). ERR_CREATE: one begins, but
 * checkpoints of another are there. */
MUST_CHECK enum error run_choice_make(const struct run_settings *s, struct run_place *p);
/* Removes what an earlier run has left that could be taken for this one's; warns of what stays. */
MUST_CHECK enum error run_choice_clear(const char *dir, struct pool *pool);
/* Writes run.json; where the run is not known here, nothing. */
MUST_CHECK enum error run_choice_write(const struct run_place *p, struct pool *pool);
/* Records in run.json that this start has failed, with the message, for later readers of the directory. */
void run_choice_failed(const struct run_place *p, int code, const char *words, struct pool *pool);
