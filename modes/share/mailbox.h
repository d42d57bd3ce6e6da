/* Who has something for whom, among the threads of one process: the server of modes/async.c learns
 * here in which order gradients are ready, and the workers when their weights are coming. The bytes
 * themselves travel through the group.
 *
 * Waits have the group's deadline: for a worker since it has received, or might have begun to; for
 * the server since anybody last saw it do anything. Who waits here, and not in a call of the group,
 * may so wait for as long as the server needs for the others. */
#pragma once
#include "engine/base/error.h"

#include <stdint.h>

struct mailbox;
enum { MAILBOX_ANY = -1 };

MUST_CHECK enum error mailbox_create(int workers, double timeout, struct mailbox **out);
void mailbox_free(struct mailbox *m);

/* ---- workers ---- */
/* The gradient of this worker's next step is ready. */
void mailbox_post(struct mailbox *m, int worker);
/* Until the server takes it, and so receives it next: what is sent sooner would have its deadline run
 * while others are served. */
MUST_CHECK enum error mailbox_await_taking(struct mailbox *m, int worker);
/* Until it has been answered, and all that were answered before it have received. */
MUST_CHECK enum error mailbox_await(struct mailbox *m, int worker);
/* It has its weights: it computes now, and the next one's leave. */
void mailbox_received(struct mailbox *m, int worker);
/* Where all meet: until all have received what this one has. */
MUST_CHECK enum error mailbox_await_all(struct mailbox *m, int worker);

/* ---- the server ---- */
/* All workers begin to compute now, 'step' being their next. */
void mailbox_begin(struct mailbox *m, int64_t step);
/* Until a gradient is ready: the one that has been so for longest, or that of one worker. It is
 * then the server's. ERR_TIMEOUT names a worker that does not come. */
MUST_CHECK enum error mailbox_take(struct mailbox *m, int worker, int *out);
/* The server is at work on something else: nobody's wait for it is in vain. */
void mailbox_alive(struct mailbox *m);
/* The weights for that worker are on their way, behind those of who was answered before. */
void mailbox_answer(struct mailbox *m, int worker);

/* ---- anybody ---- */
/* A rank has failed, and has told its group: who waits here, or would, gets ERR_PEER (without words
 * of its own: those are the group's). */
void mailbox_break(struct mailbox *m);
