/* ddp: distributed data parallel. One process a device, each with weights and an optimizer of its
 * own. Gradients are summed over the processes in buckets, while backward still computes the layers
 * before them, and every process makes the same update:
 *
 *   backward of the last layer ... of the first layer
 *        |ready                |ready                 |
 *        bucket 0 full         bucket 1 full          last bucket
 *        `- all-reduce         `- all-reduce          `- all-reduce -> wait for all -> update
 *
 * That is share/all_reduce.c. Other ways for gradients to become the update:
 *
 *   optimizer.shard   every process steps its own slices of the arena      share/slices.c
 *   comm.compress     gradients travel in fewer bytes                      share/compressed.c
 *   ddp.sync          processes step alone, and average now and then       share/average.c */
#include "engine/settings/resolve.h"
#include "modes/share/share.h"

static enum error choose(struct resolve *r) {
    const struct run_config *c = r->c;
    struct sharing *s = &r->c->sharing;
    s->share = c->ddp.sync.every > 1 ? SHARE_AVERAGE : c->optimizer.shard ? SHARE_SLICES : SHARE_ALL_REDUCE;
    s->overlap = c->ddp.overlap;
    return ERR_NONE;
}

const struct mode_ops mode_ddp = {
    .name = "ddp",
    .also = "DistributedDataParallel|distributed_data_parallel|distributed|horovod",
    .summary = "a process a device; gradients all-reduced in buckets beside backward",
    .place = PLACE_PROCESSES,
    .choose = choose,
    .check = shares_check,
    .launch = processes_launch,
    MODE_STEP,
};
