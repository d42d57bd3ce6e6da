/* dp: the parameter server. One process, a thread a device; one rank is the server and holds the
 * only optimizer.
 *
 *   every rank      computes its gradients
 *   gradients       -> server, which adds them
 *   server          updates the weights
 *   weights         -> every rank
 *
 * With dp.overlap the gradients of a bucket leave while backward still computes the layers before
 * it. Kinds of server (dp.server):
 *
 *   shared     rank 0 computes and serves                             share/server.c
 *   dedicated  one more rank, 0, only serves
 *   cpu        the same, in the host's memory, whatever the devices are
 *   sharded    every rank serves a slice of the arena: ddp's bytes,
 *              spread evenly                                          share/slices.c
 *
 * A server that does not wait for all (dp.staleness) is share/stale.c's. The samples reach the ranks
 * directly (each loads its own) or through the server's port as well (dp.scatter: server). */
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"
#include "modes/modes.h"
#include "modes/share/share.h"

/* ---- which way is asked for ---- */

#define SERVER(kind) .words = kind " server", .set = "dp.server=" kind
static const struct mode_way dp_ways[] = {
    [SERVER_SHARED] = {.name = "server", SERVER("shared"), .share = &share_server, .order = 2},
    [SERVER_DEDICATED] =
        {.name = "server apart", SERVER("dedicated"), .share = &share_server, .servers = 1, .order = 6},
    [SERVER_SHARDED] = {.name = "sharded server",
                        SERVER("sharded"),
                        .share = &share_slices,
                        .in_one = true, /* nothing is to leave early */
                        .order = 4},
    [SERVER_CPU] = {.name = "server apart", SERVER("cpu"), .share = &share_server, .servers = 1},
    {0}};

static const struct mode_way *dp_way(const struct run_config *c) {
    return &dp_ways[c->dp.server];
}

/* ---- the mode ---- */

static bool devices_run_beside(const struct resolve *r) {
    return device_find(r->c->devices.kind)->runtime->asynchronous;
}

/* Decides dp.overlap: auto, by whether devices compute beside the host. */
static enum error decide_overlap(struct resolve *r) {
    bool there = devices_run_beside(r);
    if (r->c->dp.overlap != DP_OVERLAP_AUTO) return ERR_NONE;
    r->c->dp.overlap = there ? DP_OVERLAP_ON : DP_OVERLAP_OFF;
    return resolve_decide(r, "dp.overlap", there ? "true" : "false");
}

static enum error dp_choose(struct resolve *r, const struct mode_row *mode) {
    static const char *const titles[] = {[SERVER_SHARED] = "server shared with device 0",
                                         [SERVER_DEDICATED] = "dedicated server",
                                         [SERVER_SHARDED] = "sharded server",
                                         [SERVER_CPU] = "server on the CPU"};
    const struct dp_config *c = &r->c->dp;
    struct sharing *s = &r->c->sharing;
    TRY(decide_overlap(r));
    TRY(mode_take(r, mode));
    if (c->staleness) share_take_stale(r, "dp.staleness", c->staleness);
    if (s->share == &share_server && c->overlap == DP_OVERLAP_ON && devices_run_beside(r))
        s->plan.after[0].whole = false; /* each bucket's weights travel while the next one is updated */
    s->title = titles[c->server];
    s->on_host = c->server == SERVER_CPU;
    s->brought = c->scatter == SCATTER_SERVER;
    return ERR_NONE;
}

static bool dp_overlaps(const struct run_config *c) {
    return c->dp.overlap == DP_OVERLAP_ON;
}

static void dp_check(struct resolve *r) {
    shares_check(r);
    resolve_clash(r, r->c->comm.order == COMM_ORDER_RING && r->c->sharing.share == &share_slices,
                  "comm.order|comm.algorithm",
                  "order 'ring' adds by bucket, which a sharded server ({at dp.server}) has not\n"
                  "use order tree, or dp.server shared");
}

const struct mode_row mode_dp = {
    .name = "dp",
    .also = "DataParallel|data_parallel|parameter_server",
    .summary = "parameter server: a thread a device, one server adds, updates and sends weights back",
    .place = PLACE_THREADS,
    .choose = dp_choose,
    .check = dp_check,
    .launch = threads_launch,
    .step = &mode_step,
    .overlaps = dp_overlaps,
    .ways = dp_ways,
    .way = dp_way,
};
