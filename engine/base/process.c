#include "engine/base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLAGS = 9, EXITING = 4 }; /* the field of the kernel's flags, and that of a process that is about to end */

unsigned long long process_start(int pid, char *state) {
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return 0;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *at = strrchr(text, ')'); /* behind the name, which may hold anything */
    if (!at || !at[1] || !at[2] || strchr("ZXx", at[2])) return 0;
    if (state) *state = at[2];
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at && field + 1 == FLAGS && strtoul(at, NULL, 10) & EXITING) return 0;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}
