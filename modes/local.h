/* Local SGD: ddp whose ranks step alone, each by the gradient of its own samples, and every k steps
 * replace their weights by the mean of all ranks' (ddp.sync).
 *
 *   rank 0   step  step ... step  \            / step  step ... step  \
 *   rank 1   step  step ... step   > average  <  step  step ... step   > average
 *   rank 2   step  step ... step  /            \ step  step ... step  /
 *            k steps, no message                 k steps, no message
 *
 * A meeting is an all-reduce of the weights, bucket by bucket and in place: 2(W-1)/W of K bytes for
 * each rank, as one step of ddp takes for its gradients, so 2(W-1)/W K/k a step, and 1/k of the
 * messages. With state 'average' the optimizer's state, one or two times K, is averaged as well.
 * The sums of the k steps (loss, correct, samples) follow in a message of 24 k bytes: what is told
 * of a step is about the whole batch, but is known only at the next meeting.
 *
 * It is another algorithm than ddp, with other results: in between, weights drift apart, and the
 * mean of what W ranks have learned in k steps is not what one would have learned by k steps of
 * their mean gradient. Order of additions and meetings are functions of the configuration, so a run
 * has the same bits each time. Ranks meet after steps k, 2k, 3k, ..., and wherever trainer_meets
 * says so. Buffers (batchnorm's statistics) stay rank 0's, as everywhere. */
#pragma once
#include "modes/bucket.h"
#include "modes/team.h"

struct local;
/* NULL, where the configuration has all ranks meet in every step. */
MUST_CHECK enum error local_open(struct trainer *t, struct team *team, const struct buckets *cut,
                                 struct local **out);
void local_close(struct local *l);
/* mode_ops.step */
MUST_CHECK enum error local_step(struct local *l);
/* ", weights averaged every 8 steps, optimizer state too" */
void local_describe(const struct local *l, char *out, size_t size);
