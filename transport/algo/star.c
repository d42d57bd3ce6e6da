/* Algorithm "star": a reduce to rank 0, which sums everything in the group's order, and a broadcast from it.
 *
 *     rank 0:  receive (N-1) K bytes, sum, send (N-1) K bytes
 *     others:  send K bytes, receive K bytes
 *
 * Two steps, but all bytes cross rank 0's port and all additions are its own: this is the parameter server's traffic,
 * to compare the other algorithms with. */
#include "transport/algo/plain.h"

static enum error star_all_reduce(struct collective *c) {
    c->root = 0;
    TRY(plain_move(c, KIND_REDUCE));
    return plain_move(c, KIND_BROADCAST);
}

static double star_cost(const struct terrain *t, double bytes) {
    return plain_reduce_cost(t, bytes) + plain_broadcast_cost(t, bytes);
}

const struct algo_ops algo_star = {
    .name = "star",
    .why = "rank 0 sums what all send and sends the sum back",
    .orders = {[ORDER_TREE] = true, [ORDER_RING] = true},
    .several = true,
    .run = {[KIND_ALL_REDUCE] = star_all_reduce},
    .cost = {[KIND_ALL_REDUCE] = star_cost},
};
