/* The runs and experiments below a folder, by their files. Nothing there is changed or locked against its writers,
 * and unreadable files are reported as such. */
#pragma once
#include "lab/results/listed.h"

/* Folders are searched to some depth, links are not followed. cells: also the runs of experiments. ERR_INPUT: there is
 * no such folder. */
MUST_CHECK enum error runs_list(const char *folder, bool cells, struct pool *pool, struct listing *out);
/* The same with cells, for who asks again and again: rows whose files have not changed are taken from the listing before,
 * which is {0} at first. It is read, not kept: the new one has its own texts. */
MUST_CHECK enum error runs_list_again(const char *folder, const struct listing *before, struct pool *pool,
                                      struct listing *out);
/* The folder itself, which is known to be a run's. Of one that goes on no loss and the like is told: asking for its state
 * again and again shall cost little. */
MUST_CHECK enum error runs_one(const char *dir, struct pool *pool, struct listed *out);
/* Whether the folder holds a run's files. */
bool runs_is_one(const char *dir);
/* Whether it holds those of a run or of an experiment. */
bool runs_is_any(const char *dir);
