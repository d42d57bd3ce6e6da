/* Which worker may exchange with a server that does not wait, and when (stale.c): a protocol of words, each of them one
 * number in a message by tag (group_post). Gradients and weights travel by send and recv.
 *
 *   worker   READY     its gradient of the next step is ready
 *   server   TAKEN     it receives that gradient next: sent sooner, its deadline would run while others are served
 *            GIVEN     it sends the weights next, to one worker at a time
 *            MET       all workers have the weights of the step at which they meet
 *            ALIVE     it is busy with others
 *
 * The server says something to each worker that waits at least every fourth of the group's timeout, so a worker may wait
 * for as long as the server needs for the others, but a server that is silent for twice the timeout is late. A worker is
 * late that has had its weights for longer than the timeout and has no gradient ready. Each rank has its own end of it.
 * The server is rank 0, and worker w is rank w + 1. */
#pragma once
#include "transport/group.h"

struct mailbox;
enum { MAILBOX_ANY = -1 };

MUST_CHECK enum error mailbox_create(struct group *g, double timeout, struct mailbox **out);
void mailbox_free(struct mailbox *m); /* when its group is closed: a word may be on its way */

/* ---- workers ---- */
/* Says that the gradient of this worker's step is ready, and waits until the server takes it. */
MUST_CHECK enum error mailbox_offer(struct mailbox *m, int64_t step);
/* Waits until the weights are on their way to this worker. */
MUST_CHECK enum error mailbox_await_weights(struct mailbox *m);
/* Waits until all workers have theirs, where they meet. */
MUST_CHECK enum error mailbox_await_all(struct mailbox *m);

/* ---- the server ---- */
/* Notes that all workers begin to compute now, 'step' being their next. */
void mailbox_begin(struct mailbox *m, int64_t step);
/* Waits until a gradient is ready, and takes the one that has been so for longest, or that of one worker. The caller
 * receives it next. */
MUST_CHECK enum error mailbox_take(struct mailbox *m, int worker, int *out);
/* Sends n floats of weights to that worker, on the communication lane: they must not change until mailbox_settle. meets:
 * it then waits for the others. */
MUST_CHECK enum error mailbox_give(struct mailbox *m, int worker, const float *weights, int64_t n, bool meets);
/* Waits until all weights that were given have left. */
MUST_CHECK enum error mailbox_settle(struct mailbox *m);
/* All have the weights of a step at which they meet. */
MUST_CHECK enum error mailbox_meet(struct mailbox *m);
