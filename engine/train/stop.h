/* Being asked to stop. The first SIGINT or SIGTERM sets a flag that ranks look at between steps; a
 * SIGINT after it ends the process at once. SIGUSR1, by which batch systems warn (sbatch --signal), is
 * as a SIGTERM, and so is SIGHUP, of a terminal that is closed, unless it was ignored when the process
 * started (nohup). */
#pragma once
#include <stdbool.h>

void stop_install(void);
/* While on, the first signal ends the process at once as well: for waits with nothing to save. Ends
 * it now if one has come already. leaves: a file that is removed then; NULL: none. It stays valid
 * until the next call. */
void stop_at_once(bool on, const char *leaves);
/* A group of processes that is killed when a second signal ends this one at once; 0: none. */
void stop_kills(int group);
/* Another rank got this signal: this rank must end as if it had got it, too. */
void stop_with_others(int signal);
int stop_signal(void); /* 0, SIGINT or SIGTERM */
/* 130 or 143 for a signal. */
int stop_exit_code(int signal);
