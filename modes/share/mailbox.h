/* Who has something for whom, among the threads of one process: the server of share/stale.c learns
 * here in which order gradients are ready, and the workers when their weights are coming. The bytes
 * themselves travel through the group, and all waits are the group's (group_await): of a worker
 * since it has received, or might have begun to; of the server since anybody last saw it do
 * anything. So a worker that waits here, and not in a call of the group, may wait for as long as the
 * server needs for the others. g is the calling rank's; rank 0 serves, rank w + 1 is worker w. */
#pragma once
#include "transport/group.h"

struct mailbox;
enum { MAILBOX_ANY = -1 };

MUST_CHECK enum error mailbox_create(int workers, struct mailbox **out);
void mailbox_free(struct mailbox *m);

/* ---- workers ---- */
/* The gradient of this worker's next step is ready. */
void mailbox_post(struct mailbox *m, struct group *g, int worker);
/* Waits until the server takes the worker's gradient, and so receives it next: what is sent sooner would have its deadline run
 * while others are served. */
MUST_CHECK enum error mailbox_await_taking(struct mailbox *m, struct group *g, int worker);
/* Waits until the worker has been answered, and all that were answered before it have received. */
MUST_CHECK enum error mailbox_await(struct mailbox *m, struct group *g, int worker);
/* Notes that the worker has its weights: it computes now, and the next worker's leave. */
void mailbox_received(struct mailbox *m, struct group *g, int worker);
/* Waits until all have received what this rank has, where all meet. */
MUST_CHECK enum error mailbox_await_all(struct mailbox *m, struct group *g, int worker);

/* ---- the server ---- */
/* Notes that all workers begin to compute now, 'step' being their next. */
void mailbox_begin(struct mailbox *m, int64_t step);
/* Waits until a gradient is ready, and takes the one that has been so for longest, or that of one worker. It is
 * then the server's. */
MUST_CHECK enum error mailbox_take(struct mailbox *m, struct group *g, int worker, int *out);
/* The server works on something else: no wait for it is in vain. */
void mailbox_alive(struct mailbox *m);
/* The weights for that worker are on their way, after those of the workers that were answered before. */
void mailbox_answer(struct mailbox *m, struct group *g, int worker);
