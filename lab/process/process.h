/* Processes that an experiment or a lab starts: one, or one for each host, which run and end together. They form a
 * process group of their own: processes that they start are ended with them. */
#pragma once
#include "engine/base/memory.h"

#include <sys/resource.h>

struct process {
    const char *program;          /* a path, or a name that PATH has */
    const char *const *args;      /* the words after it, ended by NULL */
    const char *folder;           /* to work in; NULL: this one's */
    const char *out, *err;        /* files that take what it says, "/dev/null"; NULL: where this one's go */
    const char *const *variables; /* "NAME=value", on top of this one's environment, ended by NULL; NULL: none */
    const char *input; /* what it reads; there is no more, but no end either, until it is to end. NULL: nothing */
};
struct process_limits { /* in seconds; 0: none */
    double timeout;     /* so long may they run */
    double grace;       /* and so long may they go on once they are asked to stop; then they are killed */
};
struct process_end {
    int code;  /* 0 where all ended well, else the exit code of the first that did not, or 128 and its signal */
    int which; /* the first that did not end well; 0 */
    bool late; /* the timeout has ended them */
    struct rusage used;
};
enum { PROCESSES_MOST = 64 };
/* Waits for the end of all n. Where one does not end well the others are asked to stop. SIGINT or SIGTERM (stop.h) asks
 * them, too, and they are waited for all the same. */
MUST_CHECK enum error processes_run(const struct process *p, int n, struct process_limits limits, struct pool *pool,
                                    struct process_end *end);
/* From the first call on, processes that others leave become this one's; each call kills those that it has. For a caller
 * without other children. */
MUST_CHECK enum error processes_kill_left(void);
/* One, without limits. */
MUST_CHECK enum error process_run(const struct process *p, struct pool *pool, int *code);
/* A program by its own path: /proc/self/exe, given to a launcher, would be the launcher. NULL: no memory. */
const char *process_path(const char *program, struct pool *pool);
/* The error that an engine's exit code says. */
enum error process_error(int code);
/* One engine, with p->err a file: ERR_NONE where it has ended with 0, else its own error in its own words. ERR_RESULT where
 * this process was asked to stop meanwhile, ERR_TIMEOUT where it has not ended within that number of seconds (0: no limit). */
MUST_CHECK enum error process_engine(const struct process *p, double timeout, struct pool *pool);
