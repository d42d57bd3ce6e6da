/* The place of the ranks of a run: in this thread, as threads of this process, or as processes. A place starts the
 * ranks, each of which calls trainer_run with what it needs to find the others. */
#pragma once
#include "engine/train/trainer.h"
#include "transport/group.h"

struct place {
    struct group_params group; /* who and where the ranks are; the rest is the configuration's */
    const char *algorithm;     /* what comm.algorithm: auto means here */
};
extern const struct place place_alone;
/* mode_row.launch */
MUST_CHECK enum error alone_launch(const struct job *job, int *exit_code);
MUST_CHECK enum error threads_launch(const struct job *job, int *exit_code);
MUST_CHECK enum error processes_launch(const struct job *job, int *exit_code);
