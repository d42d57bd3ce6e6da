/* dp.staleness: a parameter server that does not wait for all (see the essay in async.c). */
#pragma once
#include "modes/mailbox.h"
#include "modes/team.h"

struct async;
/* g, box: of all ranks, rank 0 being the server; they outlive it. */
MUST_CHECK enum error async_open(struct trainer *t, struct group *g, struct mailbox *box,
                                 struct async **out);
void async_close(struct async *a); /* NULL is fine */
/* mode_ops.step, but that values and sums are the same on all ranks only where trainer_meets says
 * that they meet, and at the end. */
MUST_CHECK enum error async_step(struct async *a);
/* The server: until no weights are under way. */
MUST_CHECK enum error async_settle(struct async *a);
void async_stats(const struct async *a, struct mode_stats *out);
/* For the banner: "each gradient by itself over thread, SERVER, staleness 4 (gradients in turn)" */
void async_describe(const struct async *a, const char *server, char *out, size_t size);
