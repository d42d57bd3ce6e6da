/* Starting ranks on this host and bringing them together: as threads of this process, or as processes that run this program
 * again (posix_spawn, never fork). Starters watch what they started. */
#pragma once
#include "engine/base/error.h"
#include <stdio.h>

/* Where the ranks of one group find each other, made before they start. Thread ranks share the object; process ranks
 * inherit its descriptor and join by meeting_join. */
struct meeting;
MUST_CHECK enum error meeting_create(int size, struct meeting **out);           /* for threads */
MUST_CHECK enum error meeting_create_shared(int size, struct meeting **out);    /* for processes; a memfd */
MUST_CHECK enum error meeting_join(int fd, int size, struct meeting **out);     /* in a started process */
void meeting_free(struct meeting *m);

/* Runs fn(user, rank) in 'size' threads and waits for all. Gives the first failure (by time), with its message in this
 * thread's error. */
typedef enum error (*rank_fn)(void *user, int rank);
MUST_CHECK enum error launch_threads(int size, rank_fn fn, void *user);

struct launch_params {
    int size;
    const char *const *argv;   /* what every rank runs: argv of this program, NULL-terminated */
    struct meeting *meeting;   /* its descriptor is inherited; a started process finds it by launch_self */
    const char *log_folder;    /* rank*.log go here; NULL: none */
    FILE *log;                 /* where prefixed lines of the ranks' output go too */
    double grace;              /* seconds from SIGTERM to SIGKILL when stopping the rest */
};
struct launch_result {
    int first;          /* rank that failed first, -1: none */
    int exit_code;      /* its exit code, or -1 */
    int signal;         /* that killed it, or 0 */
    double seconds;     /* from its death to the end of the last rank */
    char lines[2048];   /* the last lines it wrote */
};
/* Starts the processes and watches them until all have ended: their output is copied line by line to their log and, with
 * "[rank r] " before it, to p->log. Standard output and error of this process are inherited by rank 0 as its console
 * (launch_self). When one dies by a signal or with a non-zero code, the others end within a second of it (SIGTERM, then
 * SIGKILL after grace). SIGINT and SIGTERM that this process gets are passed on to all. No child outlives this process: each
 * asks the kernel to be killed with its parent. ERR_PEER when a rank was lost by a signal; a rank's own exit code otherwise
 * is for the caller to pass on. */
MUST_CHECK enum error launch_processes(const struct launch_params *p, struct launch_result *out);

/* In a started process: who it is. false when this process was not started by launch_processes. */
struct launch_self {
    int rank, size, meeting_fd, console_out, console_err;
};
bool launch_self(struct launch_self *out);
