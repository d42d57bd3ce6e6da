/* The processes of ddp: who starts them, and how each finds the others. */
#pragma once
#include "engine/train/trainer.h"

/* In a process that ddp_start_ranks has started: the whole life of its rank. */
MUST_CHECK enum error ddp_rank(const struct job *job);
/* In a process that another launcher has started as a rank: likewise. */
MUST_CHECK enum error ddp_joined(const struct job *job);
/* Starts this node's ranks, with the other nodes if there are any, and again after a loss as often
 * as run.restarts says. The exit code is of ranks that have said themselves what was wrong. */
MUST_CHECK enum error ddp_start_ranks(const struct job *job, int *exit_code);
