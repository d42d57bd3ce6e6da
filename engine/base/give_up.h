/* A process that cannot clean up, because something that it would have to wait for does not answer: a GPU that hangs.
 * All that it can do is to say what was wrong, and to end without waiting. */
#pragma once
#include "engine/base/error.h"

/* Called after a failure of the calling thread, which has to be told: the process has 'seconds' to tell it and to end
 * by itself. After them a thread of its own tells it and ends the process, with the failure's exit code. The first call
 * counts. From then on nobody waits for what does not answer, and nobody frees it. */
void give_up(enum error err, double seconds);
bool given_up(void);
MUST_CHECK enum error given_up_error(void); /* that failure, as the calling thread's; ERR_NONE: none */
/* Ends the process with that code, and at once, if it was given up: what runs at exit could wait as well. */
void given_up_exit(int code);
