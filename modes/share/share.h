/* How gradients become an update. A share is a table of functions, chosen once, when a run opens, by
 * struct sharing; step.c alone calls it, on every rank. Ranks that only serve (sharing.servers) are
 * called like the others, but have computed nothing.
 *
 *   open         the group, if there is one, is open; the arenas are not there yet
 *   start        once, before the first step: values and buffers are the same on all ranks
 *   leave, land  in each step, where gradients leave by buckets
 *   update       in each step, after them
 *   collect      between steps, where a checkpoint is saved
 *   spread       between steps, where the averaged weights are asked for
 *   close        at the end of the run, however it ends */
#pragma once
#include "modes/step.h"

struct resolve;
struct share_ops { /* every function but update may be NULL: there is nothing to do */
    /* For the configuration of any run, in any mode: adds errors about keys that ask for this share if it is not
     * possible. */
    void (*check)(struct resolve *r);
    /* Allocates what the share keeps, m->share. May set m->cut (else the buckets of the
     * configuration) and the trainer's slices. Collective where it allocates what peers read. */
    enum error (*open)(struct mode *m);
    void (*close)(struct mode *m); /* after an open that has failed, too */
    /* Collective. Rank 0 has the optimizer's state, in the trainer's slots or (where ranks have
     * slices) in its 'whole': all leave with what is theirs. */
    enum error (*start)(struct mode *m);
    /* The gradients of bucket b, summed over this rank's shards, are final: begins what makes them
     * the sum over all ranks, on m->lane. Comes for b = 0, 1, ... once a step, on every rank the
     * same. NULL, as is land: gradients do not leave by buckets. */
    enum error (*leave)(struct mode *m, int b);
    /* All have left. Returns when the gradients that this rank updates by are sums. */
    enum error (*land)(struct mode *m);
    /* Updates the weights and has them where they are needed: returns with the step's values and
     * trainer.sums on this rank, as mode_ops.step says. */
    enum error (*update)(struct mode *m);
    /* If ranks have slices: rank 0's trainer.whole receives the state of all ranks. */
    enum error (*collect)(struct mode *m);
    /* Where each rank averages the weights that it steps (trainer.average): all receive the whole. */
    enum error (*spread)(struct mode *m);
    /* A rank's subtrees may leave each by itself: as dispatch.apart says, trainer.arena.apart. */
    bool subtrees;
    /* Waits until nothing that it has begun is under way. */
    enum error (*settle)(struct mode *m);
    /* Adds its own counts to the group's bytes. */
    void (*stats)(const struct mode *m, struct mode_stats *out);
    /* Completes the banner's line, which says already what moves gradients in how many buckets. */
    void (*describe)(const struct mode *m, char *line, size_t size);
};
extern const struct share_ops share_none, share_server, share_all_reduce, share_slices, share_compressed, share_average,
    share_stale;
/* The one of a run. */
const struct share_ops *share_find(const struct sharing *how);
/* mode_ops.check: of all shares. */
void shares_check(struct resolve *r);
