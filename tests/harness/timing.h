/* Claims about speed are checked by the job 'timing' alone (tests/ci/timing), on a machine that does nothing else. The suite also runs
 * on busy machines: there a limit is so generous that only a hang exceeds it. */
#pragma once
#include <stdbool.h>

/* Whether this is the job 'timing', which sets ENGINE_TEST_TIMING. */
bool timing_checked(void);
/* The longest that something may take: these seconds in the job 'timing', a minute more elsewhere. */
double timing_limit(double seconds);
