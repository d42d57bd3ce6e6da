/* fsdp: fully sharded data parallel. A process a device; of every unit of the weights each has a part, with the gradients
 * and the optimizer's state of it, and of all else only what it computes with just now:
 *
 *   forward    gather 1 | layer 1 | layer 2 | ...             units are gathered ahead of their layers (ahead.c),
 *                gather 2, 3 ...                              and go after them
 *   backward   layer N | layer N - 1 | ...                    they are gathered again
 *                gradients of N -> each rank the sum of its part, which is all that it keeps
 *   update     each its parts
 *
 * Of K bytes of weights on W devices, with an optimizer of S slots (adam: 2), a device has at a time
 *
 *   reshard     weights              gradients            state       bytes through its port
 *   forward     K/W + a few units    K/W + a few units    S K/W       3 (W - 1)/W K each way: 3/2 of ddp's
 *   backward    K                    the same             S K/W       2 (W - 1)/W K: as ddp
 *   never       K                    the same             S K/W       2 (W - 1)/W K
 *   (ddp)       K                    K                    S K         2 (W - 1)/W K
 *
 * A device that makes several passes of a step (batch.accumulate) gathers for each.
 * Everything else is share/full.c. The sums are ddp's, in the same order, so the weights are ddp's, too. */
#include "engine/settings/resolve.h"
#include "modes/modes.h"
#include "modes/share/share.h"

static void in_units(const struct run_config *c, struct sharing *s) {
    s->cut = (struct cutting){c->fsdp.unit, c->fsdp.unit};
}

static const struct mode_way fsdp_ways[] = {[RESHARD_FORWARD] = {.name = "fully sharded",
                                                                 .words = "weights freed after forward",
                                                                 .set = "fsdp.reshard=forward",
                                                                 .share = &share_full,
                                                                 .fill = in_units,
                                                                 .order = 9},
                                            [RESHARD_BACKWARD] = {.name = "sharded, a pass whole",
                                                                  .set = "fsdp.reshard=backward",
                                                                  .share = &share_full_passing,
                                                                  .fill = in_units},
                                            [RESHARD_NEVER] = {.name = "sharded but weights",
                                                               .words = "weights kept",
                                                               .set = "fsdp.reshard=never",
                                                               .share = &share_full_keeping,
                                                               .fill = in_units,
                                                               .order = 8},
                                            {0}};

static const struct mode_way *fsdp_way(const struct run_config *c) {
    return &fsdp_ways[c->fsdp.reshard];
}

static bool fsdp_overlaps(const struct run_config *c) {
    return c->fsdp.overlap;
}

static void fsdp_check(struct resolve *r) {
    shares_check(r);
    resolve_clash(r, r->c->optimizer.shard, "optimizer.shard",
                  "'optimizer.shard' is for mode ddp: mode fsdp shares the optimizer's state anyway\nleave it out");
}

const struct mode_row mode_fsdp = {
    .name = "fsdp",
    .also = "FullyShardedDataParallel|fully_sharded_data_parallel|fully_shard|zero|zero3",
    .summary = "a process a device; weights, gradients and optimizer state in slices, gathered layer by layer",
    .place = PLACE_PROCESSES,
    .choose = mode_take,
    .check = fsdp_check,
    .launch = processes_launch,
    .step = &mode_step,
    .overlaps = fsdp_overlaps,
    .ways = fsdp_ways,
    .way = fsdp_way,
};
