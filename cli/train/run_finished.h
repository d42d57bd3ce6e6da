/* A run that is asked to go on and has nothing left to do. */
#pragma once
#include "cli/line/cli.h"

/* Whether the run of the place has ended and the job would make no step more; then that is said, with --json by the
 * summary that is there, and nothing of it shall be touched. False where hosts or ranks would wait for this one. */
MUST_CHECK enum error run_finished(const struct job *job, const struct run_place *p, bool *finished);
