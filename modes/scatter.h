/* dp.scatter: server. Rank 0 loads the whole global batch and sends every rank its shards, as
 * PyTorch's DataParallel does: the samples go through the server's port too. */
#pragma once
#include "engine/train/trainer.h"
#include "transport/group.h"

struct scatter;
/* Puts itself in the place of the trainer's loader on every rank. */
MUST_CHECK enum error scatter_open(struct trainer *t, struct group *g, struct scatter **out);
/* The part of a server that computes nothing: sends the next batch. */
MUST_CHECK enum error scatter_serve(struct scatter *s);
void scatter_close(struct scatter *s);
