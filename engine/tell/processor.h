/* The name of this machine's processor. */
#pragma once
#include <stddef.h>

/* The processor's name by /proc/cpuinfo, or a file like it: its "model name"; on ARM, which has none, what each kind of core is called
 * ("Cortex-A76 + Cortex-A55"), or its numbers where no name is known here; where the file has neither, 'machine'
 * (uname's). Gives out. */
const char *processor_name(const char *cpuinfo, const char *machine, char *out, size_t n);
const char *processor_here(char *out, size_t n);
