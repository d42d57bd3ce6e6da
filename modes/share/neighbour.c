/* Gossip: ranks step alone, and every k steps each replaces its weights by the mean of its own and a neighbour's
 * (ddp.sync.with: neighbour). Ranks stand in a circle, and pairs change from meeting to meeting:
 *
 *   meeting 0    0-1  2-3  4-5
 *   meeting 1    5-0  1-2  3-4
 *
 * so what one rank has learned reaches the others in W/2 meetings, weaker each time. Of an odd number of ranks one has
 * no neighbour in a meeting. A rank sends and receives K bytes in a meeting, at once, however many ranks there are; an
 * all-reduce takes 2(W-1)/W K each way. Both of a pair add the same two numbers, so both have the same bits.
 *
 * All ranks take the mean of all wherever they have to have the same weights (trainer_meets). The sums of the steps
 * (24 k bytes) go to all ranks in each meeting, so that the losses of the whole batch are known. The rest is as in
 * average.c; that it learns otherwise is what one may want to see. */
#include "modes/share/share.h"

/* The rank that this one meets; itself: none. */
static int neighbour_of(int rank, int ranks, int64_t meeting) {
    int even = (rank + (int)(meeting % 2)) % 2, other = even ? rank - 1 : rank + 1;
    if (ranks % 2 == 0) return (other + ranks) % ranks;
    return other < 0 || other >= ranks ? rank : other;
}

enum error neighbour_mean(struct mode *m, const struct span *span) {
    int me = m->t->rank, other = neighbour_of(me, m->standing->ranks, m->t->at.step / m->how->every);
    int64_t n = span->end - span->begin;
    float *mine = span->arena + span->begin;
    if (other == me) return ERR_NONE;
    TRY(group_swap(m->team.group, GROUP_INLINE, mine, m->spare, n, DTYPE_F32, other));
    for (int64_t i = 0; i < n; i++) mine[i] = (mine[i] + m->spare[i]) * 0.5f;
    return ERR_NONE;
}

const struct share_row share_neighbour = {.plan = {.update = UPDATE_BY_ALL,
                                                   .nafter = 1,
                                                   .after = {{MOVE_NEIGHBOUR, .doing = "mean with a neighbour"}},
                                                   .alone = true},
                                          .keys = {"ddp.sync"},
                                          .without = "1",
                                          .ops = AVERAGE_OPS};
