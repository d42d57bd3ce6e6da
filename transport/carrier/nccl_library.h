/* NCCL, loaded when a group first wants it; its functions are called through a table, under their
 * own names: nccl.AllReduce. */
#pragma once
#include "engine/base/error.h"

#include <nccl.h>

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
