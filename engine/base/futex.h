/* Sleeping on a word of memory, which may be shared between processes. */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Sleeps while *word is 'seen', until it is woken or the seconds are over (below 0: without end). It may return
 * early. False: the time is over. */
bool futex_wait(_Atomic uint32_t *word, uint32_t seen, double seconds);
void futex_wake(_Atomic uint32_t *word, int most);
