/* The inside of the carrier "nccl": the library, and what nccl.c and nccl_moves.c share. */
#pragma once
#include "transport/carrier/carrier.h"

#include <nccl.h>
#include <pthread.h>

/* NCCL, loaded when a group first wants it; its functions are called through a table, under their own names:
 * nccl.AllReduce. */
#define NCCL_FUNCTIONS(X)                                                                                              \
    X(GetVersion)                                                                                                      \
    X(GetUniqueId)                                                                                                     \
    X(CommInitRankConfig)                                                                                              \
    X(CommGetAsyncError)                                                                                               \
    X(CommFinalize)                                                                                                    \
    X(CommDestroy)                                                                                                     \
    X(CommAbort)                                                                                                       \
    X(GetErrorString)                                                                                                  \
    X(GetLastError)                                                                                                    \
    X(GroupStart)                                                                                                      \
    X(GroupEnd)                                                                                                        \
    X(AllReduce)                                                                                                       \
    X(Reduce)                                                                                                          \
    X(Broadcast)                                                                                                       \
    X(AllGather)                                                                                                       \
    X(ReduceScatter)                                                                                                   \
    X(Send)                                                                                                            \
    X(Recv)
struct nccl_library {
#define X(name) __typeof__(nccl##name) *name;
    NCCL_FUNCTIONS(X)
#undef X
};
extern struct nccl_library nccl;
/* Once a process; any thread. */
MUST_CHECK enum error nccl_load(void);
/* ncclCommAbort; false: it has not ended within some seconds, since a kernel does not, and never may. */
bool nccl_abort(ncclComm_t comm);
/* "2.28.9"; where: the file that it came from, n bytes of it; NULL: not asked. */
void nccl_version(char out[32], char *where, size_t n);

/* What the running call exchanges: parts as in calls of a kind, or of each rank's term number 'term' the piece that begins
 * 'from' elements into what every rank adds, at most so many elements. */
struct nccl_swap {
    enum kind kind;
    int term;
    int64_t from, most;
};

struct nccl_carrier { /* a probe has no group */
    struct carrier carrier;
    pthread_mutex_t mutex; /* a communicator is used by one thread at a time, and perhaps aborted by
                              another: comm is looked at under it alone */
    ncclComm_t comm;       /* NULL: none yet, or no more */
    double timeout;        /* of NCCL, to take what it is given */
    bool bitwise;
    struct slots slots;
    struct nccl_swap swap;
};
/* Gives one call to NCCL: 'fn' under the mutex, and then until NCCL has taken it. what: its name, for messages. */
typedef ncclResult_t (*nccl_fn)(struct nccl_carrier *n, const struct collective *c, cudaStream_t stream);
MUST_CHECK enum error nccl_issue(struct nccl_carrier *n, const struct collective *c, enum device_lane l,
                                 const char *what, nccl_fn fn);
/* nccl_moves.c: what each kind is made of. */
bool nccl_takes(const struct carrier *cr, const struct collective *c);
MUST_CHECK enum error nccl_move(struct nccl_carrier *n, struct collective *c, enum device_lane l);
