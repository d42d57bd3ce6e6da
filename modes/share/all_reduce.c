/* Every rank adds up the gradients of all, and makes the same update: equal sums and equal
 * optimizers keep the weights equal, so they never travel after the start.
 *
 *   gradients   all-reduce, by bucket
 *   update      on every rank
 *
 * Bytes: every rank sends and receives 2(W-1)/W of the gradients, however many ranks there are; only
 * the number of messages grows with W. */
#include "modes/share/share.h"

const struct share_row share_all_reduce = {
    .plan = {.nbefore = 1, .before = {{MOVE_ALL_REDUCE, .doing = ""}}, .update = UPDATE_BY_ALL}, .subtrees = true};
