/* What the program and its MPI module have in common. The module, libengine_mpi.so, is all that is linked with an MPI
 * library: of the engine it knows types alone; the link "mpi" (link/mpi.c) loads it when it is opened.
 * It exports one thing, a struct mpi_calls by the name engine_mpi.
 *
 * A space is a communicator, a flight is a request: numbers here, since each library has its own types for them. Calls
 * that can fail return false and leave words for it. Any thread. */
#pragma once
#include "transport/link/link.h"

#define MPI_MODULE_SYMBOL "engine_mpi"
enum { MPI_WORDS = 256 };

struct mpi_calls {
    uint32_t bytes;     /* of this struct */
    const char *engine; /* the version of the engine that it was built with */

    /* Starts MPI, unless it runs already. What has been started here ends when the process exits.
     * Fails where the library found is not the one that the module was built with, and where it
     * does not let two threads work at a time. */
    bool (*start)(int *rank, int *size, char words[MPI_WORDS]);
    /* Not to be ended at exit: it would wait for ranks that are lost. */
    void (*forsake)(void);

    /* Collective over the ranks (of all that MPI has) that are to be in it, in this order. */
    bool (*join)(const int *ranks, int n, int tag, uint64_t *space, char words[MPI_WORDS]);
    void (*part)(uint64_t space);

    /* Start and return. Between two ranks of a space, messages arrive in the order in which they
     * were sent. At most 1 GB each. */
    bool (*send)(uint64_t space, int peer, const void *data, size_t bytes, uint64_t *flight, char words[MPI_WORDS]);
    bool (*receive)(uint64_t space, int peer, void *data, size_t most, uint64_t *flight, char words[MPI_WORDS]);
    /* Whether it has landed; if so, the flight is no more, and *bytes came, if it was a receive. */
    bool (*landed)(uint64_t *flight, bool *done, size_t *bytes, char words[MPI_WORDS]);
    /* It is not wanted any more; to be asked for until it has landed. */
    void (*cancel)(uint64_t *flight);

    /* Starts a collective of the library's own, all ranks the same ones in the same order, on at most 2^30 elements at
     * buf, which all of them fill and whose result lands there: at all, but for a reduce only at root. */
    bool (*collect)(uint64_t space, const struct native_call *c, uint64_t *flight, char words[MPI_WORDS]);
};
