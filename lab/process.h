/* Processes of the engine that an experiment or a lab starts, one at a time. */
#pragma once
#include "engine/base/memory.h"

#include <sys/resource.h>

struct process {
    const char *program;     /* a path, or a name that PATH has */
    const char *const *args; /* words behind it, ended by NULL */
    const char *folder;      /* to work in; NULL: this one's */
    const char *out, *err;   /* files that take what it says, "/dev/null"; NULL: where this one's go */
    double limit;            /* seconds after which it is ended, which is ERR_TIMEOUT; 0: none */
};
/* Waits for its end. *code: its exit code, 128 and the signal that ended it. SIGINT or SIGTERM (stop.h) asks it to stop,
 * too, and it is waited for all the same. used may be NULL. */
MUST_CHECK enum error process_run(const struct process *p, struct pool *pool, int *code, struct rusage *used);
/* The same of the engine, with p->err a file: ERR_NONE where it has ended with 0, else its own error in its own words.
 * ERR_RESULT where this process was asked to stop meanwhile. */
MUST_CHECK enum error process_engine(const struct process *p, struct pool *pool);
