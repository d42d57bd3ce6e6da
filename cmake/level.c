/* Prints the best level of instructions that this machine runs, for CMakeLists.txt (ENGINE_LEVELS=native); LEVELS is the list
 * of all, best first. */
#include "engine/device/cpu/reach.h"

#include <stdio.h>

int main(void) {
#define LEVEL(name)                                                                                                    \
    if (runs_##name()) return puts(#name) < 0;
    LEVELS
    return 1;
}
