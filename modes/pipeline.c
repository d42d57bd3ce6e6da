/* pipeline: the layers are cut into p stages, each on a device of its own; the batch passes through them in micro-batches,
 * which are the shards. Time goes to the right, F3 is the forward of micro-batch 3, B3 its backward:
 *
 *   gpipe     all forwards, then all backwards       1f1b      backward as soon as it can be
 *   stage 0   F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3    F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
 *   stage 1      F0 F1 F2 F3 .  .  B0 B1 B2 B3          F0 F1 .  B0 F2 B1 F3 B2 .  B3
 *   stage 2         F0 F1 F2 F3 B0 B1 B2 B3                F0 B0 F1 B1 F2 B2 F3 B3
 *
 * An output goes to the next stage, and its gradient comes back:
 *
 *   stage 0 --output--> stage 1 --output--> stage 2, which has the loss
 *           <-gradient-         <-gradient-
 *
 * Of m micro-batches each stage waits as long as p - 1 of them take: of a step, (p - 1) / (m + p - 1), the bubble. That is
 * the same for both schedules; what differs is the memory: gpipe keeps the activations of m micro-batches, 1f1b those of
 * p - s at most on stage s. Bytes: at each border between stages, the activations of the whole batch there one way, and
 * as many back; weights and their gradients stay where they are, and so does the optimizer's state. So a stage holds a
 * p-th of the network.
 *
 * With k p devices there are k copies, which share the micro-batches; the gradients of a stage are added over its copies
 * as those of mode ddp are over all devices (share/stages.c). Weights that layers of two stages have (tied) lie on the
 * earlier one, which updates them; the later one sends it the gradient of each micro-batch, because there the earlier
 * layer's is added element by element, and receives the weights after each step. */
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"
#include "modes/modes.h"
#include "modes/share/stages.h"

static void pipeline_fill(const struct run_config *c, struct sharing *s) {
    s->stages = stages_count(&c->pipeline, c->devices.count);
}

static void gpipe_fill(const struct run_config *c, struct sharing *s) {
    pipeline_fill(c, s);
    s->ahead = true;
}

static const struct mode_way pipeline_ways[] = {[PIPELINE_GPIPE] = {.name = "gpipe",
                                                                    .words = "gpipe, stages",
                                                                    .set = "pipeline.schedule=gpipe",
                                                                    .unset = "pipeline.schedule=1f1b",
                                                                    .share = &share_stages,
                                                                    .counts = "pipeline.stages",
                                                                    .fill = gpipe_fill,
                                                                    .order = 11},
                                                [PIPELINE_1F1B] = {.name = "1f1b",
                                                                   .words = "stages",
                                                                   .share = &share_stages,
                                                                   .counts = "pipeline.stages",
                                                                   .fill = pipeline_fill,
                                                                   .order = 10},
                                                {0}};

static const struct mode_way *pipeline_way(const struct run_config *c) {
    return &pipeline_ways[c->pipeline.schedule];
}

static bool pipeline_overlaps(const struct run_config *c) {
    return c->ddp.overlap;
}

/* The number of devices is known now. */
static void pipeline_check(struct resolve *r) {
    struct run_config *c = r->c;
    const struct node *at = resolve_find(r, "pipeline.stages");
    int devices = c->devices.count;
    pipeline_fill(c, &c->sharing);
    shares_check(r);
    int stages = c->sharing.stages;
    if (stages < 2 || devices % stages)
        config_error(r->e, at, false,
                     "%d devices (%s) cannot be cut into stages by this: it takes two or more stages, whose number "
                     "divides that of the devices\nset pipeline.stages or devices, or use mode single",
                     devices, resolve_place(r, resolve_find(r, "devices")));
    resolve_clash(r, device_find(c->devices.kind)->runtime->apart, "devices",
                  "mode pipeline sends activations from the host's memory, and 'devices' is {devices}\n"
                  "use devices: cpu, or mode ddp");
    resolve_clash(r, c->sync_batchnorm, "sync_batchnorm",
                  "sync_batchnorm takes the moments of all shards at once, which pass through a pipeline one by one "
                  "({at mode})\nleave it out, or use mode ddp");
    resolve_clash(r, c->optimizer.shard, "optimizer.shard",
                  "'optimizer.shard' is for mode ddp: in mode pipeline each stage has its own part of the state\n"
                  "leave it out");
    resolve_clash(r, c->run.elastic.min > 0, "run.elastic.min",
                  "'run.elastic' goes on without a device, but in mode pipeline each has a stage of its own\n"
                  "use run.restarts, or mode ddp");
    resolve_clash(r, c->comm.order == COMM_ORDER_RING, "comm.order|comm.algorithm",
                  "order 'ring' adds in a circle of all ranks, which have different stages in mode pipeline\n"
                  "use order tree");
}

const struct mode_row mode_pipeline = {
    .name = "pipeline",
    .also = "gpipe|pipedream|pipeline_parallel|pp|1f1b",
    .summary = "the layers in stages, a process a device; micro-batches pass through them",
    .place = PLACE_PROCESSES,
    .choose = mode_take,
    .check = pipeline_check,
    .suits = stages_suit,
    .launch = processes_launch,
    .step = &mode_step,
    .overlaps = pipeline_overlaps,
    .ways = pipeline_ways,
    .way = pipeline_way,
};
