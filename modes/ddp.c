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

static bool averages_with_all(const struct run_config *c) {
    return c->ddp.sync.every > 1 && !strcmp(c->ddp.sync.with, "all");
}

static bool averages_with_neighbour(const struct run_config *c) {
    return !strcmp(c->ddp.sync.with, "neighbour");
}

static bool meets_by_plugin(const struct run_config *c) {
    return plugin_is_path(c->ddp.sync.with);
}

static bool reduces_by_adasum(const struct run_config *c) {
    return !strcmp(c->ddp.reduce.with, "adasum") && !c->optimizer.shard;
}

static bool reduces_by_plugin(const struct run_config *c) {
    return plugin_is_path(c->ddp.reduce.with) && !c->optimizer.shard;
}

static bool shards_optimizer(const struct run_config *c) {
    return c->optimizer.shard;
}

static const struct mode_way ddp_ways[] = {
    {.name = "mean of all weights", .asked = averages_with_all, .share = &share_average},
    {.name = "mean with a neighbour", .asked = averages_with_neighbour, .share = &share_neighbour},
    {.name = "meetings of a plug-in", .asked = meets_by_plugin, .share = &share_own},
    {.name = "Adasum", .asked = reduces_by_adasum, .share = &share_adasum},
    {.name = "gradients of a plug-in", .asked = reduces_by_plugin, .share = &share_mixed},
    {.name = "slices",
     .words = "optimizer.shard",
     .set = "optimizer.shard=true",
     .unset = "optimizer.shard=false",
     .asked = shards_optimizer,
     .share = &share_slices,
     .order = 5},
    {.name = "", .asked = mode_way_is_left, .share = &share_all_reduce, .order = 3},
    {0}};

/* ---- the mode ---- */

static enum error ddp_choose(struct resolve *r) {
    static const char *const whom[] = {"all", "neighbour", NULL}, *const reductions[] = {"sum", "adasum", NULL};
    if (!plugin_is_path(r->c->ddp.sync.with)) resolve_check_name(r, "ddp.sync.with", whom, NULL, NULL);
    if (!plugin_is_path(r->c->ddp.reduce.with)) resolve_check_name(r, "ddp.reduce.with", reductions, NULL, NULL);
    mode_take(r, &mode_ddp);
    return ERR_NONE;
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
};
