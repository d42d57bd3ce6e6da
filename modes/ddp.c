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
 *   ddp.sync          processes step alone, and average now and then       share/average.c
 *                     ... with a neighbour only                            share/neighbour.c
 *                     ... as a plug-in says                                share/own.c
 *   ddp.reduce        gradients become something else than their sum       share/mixed.c, adasum.c */
#include "engine/base/plugin.h"
#include "engine/settings/resolve.h"
#include "modes/modes.h"
#include "modes/share/share.h"

#include <string.h>

/* ---- which way is asked for ---- */

enum ddp_way { MEAN_OF_ALL, MEAN_WITH_NEIGHBOUR, MEETINGS_OWN, ADASUM, GRADIENTS_OWN, SLICES, ALL_REDUCE };

static const struct mode_way ddp_ways[] = {
    [MEAN_OF_ALL] = {.name = "mean of all weights", .share = &share_average},
    [MEAN_WITH_NEIGHBOUR] = {.name = "mean with a neighbour", .share = &share_neighbour},
    [MEETINGS_OWN] = {.name = "meetings of a plug-in", .share = &share_own},
    [ADASUM] = {.name = "Adasum", .share = &share_adasum},
    [GRADIENTS_OWN] = {.name = "gradients of a plug-in", .share = &share_mixed},
    [SLICES] = {.name = "slices",
                .words = "optimizer.shard",
                .set = "optimizer.shard=true",
                .unset = "optimizer.shard=false",
                .share = &share_slices,
                .order = 5},
    [ALL_REDUCE] = {.name = "", .share = &share_all_reduce, .order = 3},
    {0}};

static enum ddp_way ddp_way_asked(const struct run_config *c) {
    const char *with = c->ddp.sync.with, *reduce = c->ddp.reduce.with;
    if (c->ddp.sync.every > 1 && !strcmp(with, "all")) return MEAN_OF_ALL;
    if (!strcmp(with, "neighbour")) return MEAN_WITH_NEIGHBOUR;
    if (plugin_is_path(with)) return MEETINGS_OWN;
    if (c->optimizer.shard) return SLICES;
    if (!strcmp(reduce, "adasum")) return ADASUM;
    return plugin_is_path(reduce) ? GRADIENTS_OWN : ALL_REDUCE;
}

static const struct mode_way *ddp_way(const struct run_config *c) {
    return &ddp_ways[ddp_way_asked(c)];
}

/* ---- the mode ---- */

static enum error ddp_choose(struct resolve *r, const struct mode_row *mode) {
    static const char *const whom[] = {"all", "neighbour", NULL}, *const reductions[] = {"sum", "adasum", NULL};
    if (!plugin_is_path(r->c->ddp.sync.with)) resolve_check_name(r, "ddp.sync.with", whom, NULL, NULL);
    if (!plugin_is_path(r->c->ddp.reduce.with)) resolve_check_name(r, "ddp.reduce.with", reductions, NULL, NULL);
    return mode_take(r, mode);
}

static bool ddp_overlaps(const struct run_config *c) {
    return c->ddp.overlap;
}

const struct mode_row mode_ddp = {
    .name = "ddp",
    .also = "DistributedDataParallel|distributed_data_parallel|distributed|horovod",
    .summary = "a process a device; gradients all-reduced in buckets beside backward",
    .place = PLACE_PROCESSES,
    .choose = ddp_choose,
    .check = shares_check,
    .launch = processes_launch,
    .step = &mode_step,
    .overlaps = ddp_overlaps,
    .ways = ddp_ways,
    .way = ddp_way,
};
