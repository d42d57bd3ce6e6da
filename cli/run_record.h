/* Which run a directory holds: run.json, {"run_id", "job", "restarts"}. A directory is one run's. */
#pragma once
#include "cli/cli.h"

/* Whose checkpoints are the directory's own, for checkpoint_find: its run's; "" (those that name no
 * run) where that has saved none yet; NULL (any) where no run is recorded. */
const char *run_record_id(const char *dir, struct pool *pool);
/* Completes p->run_id and p->fresh. Where a run seems to begin, its directory's own goes on if what is
 * resumed is the newest checkpoint there, or if the launcher says that this is another start of the
 * job that made it: then from that run's last checkpoint (p->resume). ERR_CREATE: one begins, but
 * checkpoints of another are there. */
MUST_CHECK enum error run_record_choose(const struct run_settings *s, struct run_place *p);
/* Removes what an earlier run has left that could be taken for this one's; warns of what stays. */
MUST_CHECK enum error run_record_clear(const char *dir, struct pool *pool);
MUST_CHECK enum error run_record_write(const struct run_place *p, struct pool *pool);
