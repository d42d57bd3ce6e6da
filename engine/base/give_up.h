/* A process that cannot clean up, because something that it would have to wait for does not answer: a GPU that hangs.
 * All that it can do is to say what was wrong, and to end without waiting. */
#pragma once
#include "engine/base/error.h"

/* Call it after a failure of the calling thread that must be reported: the process has 'seconds' to report it and to
 * end by itself. After that a separate thread reports the failure and ends the process with its exit code. Only the
 * first call counts. From then on no thread waits for others that do not answer, and none frees memory. */
void give_up(enum error err, double seconds);
bool given_up(void);
MUST_CHECK enum error given_up_error(void); /* that failure, as the calling thread's; ERR_NONE: none */
/* Ends the process with that code, and at once, if it was given up: what runs at exit could wait as well. */
void given_up_exit(int code);
