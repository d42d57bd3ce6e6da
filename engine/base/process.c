#include "engine/base/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLAGS = 9, EXITING = 4 }; /* the field of the kernel's flags, and that of a process that is about to end */

enum { STAT = 1024 };

/* What comes after the name, which may hold anything: ") S 4711 ..."; NULL: there is no such process. */
static const char *process_stat(int pid, char text[STAT]) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f) return NULL;
    text[fread(text, 1, STAT - 1, f)] = '\0';
    fclose(f);
    const char *at = strrchr(text, ')');
    return at && at[1] && at[2] ? at : NULL;
}

int process_parent(int pid) {
    char text[STAT];
    const char *at = process_stat(pid, text);
    return at ? (int)strtol(at + 3, NULL, 10) : 0;
}

unsigned long long process_start(int pid, char *state) {
    char text[STAT];
    const char *at = process_stat(pid, text);
    if (!at || strchr("ZXx", at[2])) return 0;
    if (state) *state = at[2];
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at && field + 1 == FLAGS && strtoul(at, NULL, 10) & EXITING) return 0;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

void process_who(char out[128]) {
    char host[65] = "";
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "this host");
    snprintf(out, 128, "%s, pid %d", host, (int)getpid());
}

size_t host_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : 0;
}
