/* Starting ranks on this host and bringing them together: as threads of this process, or as processes that run this
 * program again (posix_spawn, never fork). Starters watch what they started. */
#pragma once
#include "engine/base/error.h"
#include "transport/link/meeting.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Runs fn(user, rank) in 'size' threads and waits for all. Gives the first failure (by time) that is
 * not just another's (ERR_PEER), with its message in this thread's error. */
typedef enum error (*rank_fn)(void *user, int rank);
MUST_CHECK enum error launch_threads(int size, rank_fn fn, void *user);

struct launch_params {
    int size;         /* ranks that are started here: first, first + 1, ..., after the first 'servers' of them */
    int first, world; /* world: the number of all ranks; 0: all are started here, and first is 0 */
    int servers, first_server; /* these are first_server, first_server + 1, ... */
    /* Environment variables of each rank: name, value, ..., NULL. Names that are in our environment are
     * replaced. NULL: nothing. */
    const char *const *variables;
    const char *program;     /* what every rank runs, looked for in PATH; NULL: this program */
    const char *const *argv; /* its arguments, NULL-terminated */
    struct meeting *meeting; /* its descriptor is inherited; a started process finds it by
                                launch_self. NULL: none */
    bool once;               /* an error that one rank has reported is not logged again for the others */
    const char *log_folder;  /* rankN.log in it get all that rank N writes, as it is; NULL: none */
    FILE *log;               /* where prefixed lines of the ranks' output go; NULL: nowhere */
    int (*stop)(void);       /* the signal by which a user wanted to stop before the launch took signals
                          over, 0: none; asked once. NULL: none */
    /* Seconds that the rest have to end by themselves once a rank is lost, and one more while all
     * that have ended say that they lost another; 0: 0.5 */
    double grace;
    double last; /* seconds that the others have to end once rank 0 has done what it was to do; 0: for ever */
    int again;   /* the code with which ranks end to be started again, all of them, which is no failure; 0: none */
    /* Asked when the grace is over, and then again and again: whether one of them is at work that must not be cut
     * short. known: which rank was lost, so that others may still be in the midst of a step; else all have waited for
     * it. NULL: never */
    bool (*busy)(void *user, bool known);
    /* Asked now and then: whether the ranks elsewhere have ended, and those here, which have not, hang. Then they are
     * killed. NULL: never */
    bool (*over)(void *user);
    void *user; /* of both */
    int *lost;  /* (size) for launch_result.lost; NULL: nobody asks */
};
struct launch_result {
    int first;      /* rank that failed first, -1: none */
    int exit_code;  /* its exit code, or -1. Where none failed: 0, or 130 or 143 when ranks stopped
                       because they were told to */
    int signal;     /* that killed it, or 0 */
    int stuck;      /* the first rank that did not use its grace to end and was killed, -1: none. It is 'first', too,
                       where all here hung when the ranks elsewhere had ended */
    double seconds; /* from its death to the end of the last rank */
    int asked;      /* the signal by which a user wanted them to stop, or 0 */
    bool again;     /* they ended to be started again, and nobody wanted to stop them */
    int64_t seen;   /* by clock_ns, when the first rank had failed, or ended like that */
    /* Of those started here, counted from 0: who failed by itself; where all that failed had lost another, who did not
     * end with them, since the others waited for it. Nobody, where that is on another host. */
    const int *lost;
    int nlost;
    char lines[2048]; /* the last lines it wrote, without control characters */
};
/* Starts the processes and watches them until all have ended; a rank must call launch_self before all else. What they
 * write to standard output and error is copied to their log and, line by line with "[rank r] " before it, to p->log.
 * Rank 0 has this process's standard output and error as its console (launch_self); standard input is empty for all.
 *
 * When one dies by a signal or with a non-zero code, the others, who learn of it from their group, have 'grace' to end;
 * then they are killed. The ranks are a process group of their own, so a terminal's Ctrl-C reaches this process alone:
 * the first SIGINT or SIGTERM (as which SIGHUP and SIGUSR1 count) is passed on, once; a SIGINT after that kills all. A
 * rank that ends with 130 or 143 was asked to stop by somebody else: then all are. No child outlives this process:
 * each asks the kernel to be killed with it (with the calling thread, in fact).
 *
 * ERR_PEER when a rank was lost by a signal; a rank's own exit code otherwise is for the caller to pass on. *out is
 * always filled. One launch at a time. */
MUST_CHECK enum error launch_processes(const struct launch_params *p, struct launch_result *out);

/* In a process that launch_processes started: who it is. Call it first in main, before there are threads. */
struct launch_self {
    int rank, size;
    int local, locals;            /* of those that its starter has started */
    int meeting_fd;               /* -1: none */
    int console_out, console_err; /* -1 but for rank 0 */
    bool own;                     /* its starter is the same program, of which it is a part; else 'engine launch' */
};
/* *started is false when launch_processes did not start this process, nor a shell or script of which this process is a
 * part. ERR_PEER when the starter is gone already, ERR_USAGE when the environment lies. */
MUST_CHECK enum error launch_self(struct launch_self *out, bool *started);
