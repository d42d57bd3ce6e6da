/* Being asked to stop. The first SIGINT or SIGTERM sets a flag that ranks look at between steps;
 * the second ends the process at once. */
#pragma once

void stop_install(void);
int stop_signal(void); /* 0, SIGINT or SIGTERM */
/* 130 or 143 for a signal. */
int stop_exit_code(int signal);
