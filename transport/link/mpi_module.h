/* Finding the MPI module and starting it. */
#pragma once
#include "engine/base/error.h"
#include "transport/link/mpi/module.h"

/* MPI as this process has it. It is loaded and started once and stays: no MPI library can be started twice. */
struct mpi {
    const struct mpi_calls *calls;
    int rank, size; /* of all that were started together */
};
/* Loads the module and starts MPI, unless it is started already. ERR_DEVICE: it is not available here; ERR_USAGE: no
 * launcher of MPI has started this process. */
MUST_CHECK enum error mpi_start(const struct mpi **out);
/* Whether the module is there and fits; starts nothing. */
MUST_CHECK enum error mpi_probe(void);
