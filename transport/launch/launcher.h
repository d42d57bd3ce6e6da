/* Other launchers: which of them has started this process as one rank of many, by the variables
 * that they leave in the environment. In this order the first that is there is taken:
 *
 *   engine launch  ENGINE_STORE with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_*
 *   torchrun    TORCHELASTIC_RUN_ID with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_*
 *   env://      RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (and LOCAL_RANK, LOCAL_WORLD_SIZE if set)
 *   Indexed Job JOB_COMPLETION_INDEX (Kubernetes) with WORLD_SIZE, MASTER_ADDR, MASTER_PORT, which its YAML sets
 *   Open MPI    OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
 *   PMI         PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS (MPICH, Intel MPI)
 *   Slurm       SLURM_PROCID, ... of a step (srun) of more than one task
 *   PMI         PMI_RANK, PMI_SIZE
 *
 * Where the ranks meet is MASTER_ADDR:MASTER_PORT if these are set. Else, ranks of one host meet in
 * a file, and those of a Slurm step at its first node. */
#pragma once
#include "engine/base/memory.h"

struct launcher {
    const char *name;    /* "torchrun" */
    char variables[256]; /* those that were used: "RANK, WORLD_SIZE" */
    int rank, size;
    int local, locals; /* of those on this host; -1, 0: unknown */
    char master[300];  /* HOST:PORT, or "": unknown */
    char job[128];     /* distinguishes this run from others, or "" */
};
/* get: what looks a variable up; NULL: getenv. *found is false when there is none. ERR_USAGE: variables that lie,
 * contradict each other, or lack what is needed. */
MUST_CHECK enum error launcher_find(const char *(*get)(const char *name), struct launcher *out, bool *found);
struct launcher_ranks { /* as in struct launcher */
    const char *name, *job;
    int size, locals;
};
/* The URL of the store where its ranks meet: at master (HOST:PORT or a URL) unless it is "" or NULL; else,
 * when all are on this host, in a file that each of them can name. ERR_CONFIG when they are not. */
MUST_CHECK enum error launcher_place(const struct launcher_ranks *l, const char *master, struct pool *pool,
                                     const char **out);
/* A job whose processes a batch system or launcher starts again by the same command: torchrun
 * (--max-restarts) and Slurm (requeue) say which start this is. */
struct launcher_job {
    char name[256]; /* what is the same at all starts of the job, and of nothing else; "": none */
    int restarts;   /* before this one */
};
MUST_CHECK enum error launcher_job(const char *(*get)(const char *name), struct launcher_job *out);
/* Whether HOST:PORT is on the loopback, so that all who meet there are on one host. */
bool launcher_is_loopback(const char *master);
