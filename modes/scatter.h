/* dp.scatter: server. Rank 0 loads the whole global batch and sends every rank its shards, as
 * PyTorch's DataParallel does: the samples go through the server's port too. */
#pragma once
#include "engine/train/trainer.h"
#include "transport/group.h"

struct scatter;
MUST_CHECK enum error scatter_open(struct trainer *t, struct group *g, struct scatter **out);
/* The part of a server that computes nothing: sends the next batch. */
MUST_CHECK enum error scatter_serve(struct scatter *s);
/* Replaces the loader: gets this rank's shards of the next batch. */
MUST_CHECK enum error scatter_next(struct scatter *s, const struct step_batch **out);
void scatter_close(struct scatter *s);
