/* Processes of this host, as /proc shows them, and its memory. */
#pragma once
#include <stddef.h>

/* When the process started, in ticks since boot: with its number this names one process for ever. 0: there is none, or
 * it has ended. state: where the letter that /proc gives goes ('T': stopped), or NULL. */
unsigned long long process_start(int pid, char *state);
/* The process that has started it, or that has taken it over since; 0: none in sight, or there is no such process. */
int process_parent(int pid);
/* "hostname, pid N" of this process. */
void process_who(char out[128]);
size_t host_memory(void); /* bytes; 0: not known */
