/* ps: parameter servers as processes, on one host or several. Workers compute; each of k servers has a part of every
 * partition of the weights, adds its gradients, and updates it:
 *
 *   backward of the last layer ... of the first layer
 *        |ready                      |ready
 *        partition 0                 last partition
 *        |- part 0 -> server 0       ...
 *        `- part 1 -> server 1            -> the servers update, part by part -> every worker has all weights
 *
 * That is share/slices.c with k owners. Bytes: a worker sends K and receives K, whatever the number of workers; a server
 * receives W K / k and sends as many. So with k = W servers, each on a port of its own, every port carries half of what
 * an all-reduce of W ranks puts on it, 2 (W - 1) / W K each way; with fewer the servers' ports are the hot ones, and
 * with one it is dp's dedicated server.
 *
 *   ps.place: apart      servers are the first ranks, which compute nothing
 *   ps.place: workers    k of the workers are servers, too: with k = W it is ddp's optimizer.shard
 *
 * ps.staleness: one server apart does not wait for all workers, but updates for each gradient by itself: share/stale.c. */
#include "engine/base/limits.h"
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"
#include "modes/modes.h"
#include "modes/share/share.h"

#include <string.h>

/* ---- which way is asked for ---- */

/* Whether a part of the update needs nothing of the others. */
static bool can_stream(const struct run_config *c) {
    return c->optimizer.clip == 0 && !optim_of(&c->optimizer.kind)->nnorms && c->train.noise_scale.unit == SPAN_OFF &&
           !device_find(c->devices.kind)->runtime->apart;
}

/* Compressed gradients are those of ddp, in its buckets. */
static void on_workers(const struct run_config *c, struct sharing *s) {
    s->owners = (int)c->ps.servers;
    if (!s->compressed) s->cut = (struct cutting){1, c->ps.partition, .anywhere = true};
}

static void apart(const struct run_config *c, struct sharing *s) {
    s->owners = (int)c->ps.servers;
    s->streams = c->ps.overlap && can_stream(c) && !s->compressed;
    /* Where weights stream, servers, too, receive the first bucket, of one block. */
    s->cut = (struct cutting){s->streams ? 1 : c->ps.partition, c->ps.partition, .anywhere = true};
    s->servers = s->owners;
    s->on_host = true;
    s->hosts = c->ps.hosts;
}

static const struct mode_way ps_ways[] = {[PS_APART] = {.name = "servers apart",
                                                        .words = "servers apart",
                                                        .set = "ps.place=apart",
                                                        .share = &share_slices,
                                                        .servers = 1,
                                                        .counts = "ps.servers",
                                                        .fill = apart,
                                                        .order = 7},
                                          [PS_WORKERS] = {.name = "servers on workers",
                                                          .words = "servers on workers",
                                                          .share = &share_slices,
                                                          .fill = on_workers},
                                          {0}};

static const struct mode_way *ps_way(const struct run_config *c) {
    return &ps_ways[c->ps.place];
}

/* ---- the mode ---- */

/* ps.servers: each, of devices whose number is given. */
static enum error decide_servers(struct resolve *r) {
    int64_t devices = r->c->devices.count * r->c->run.nodes, *servers = &r->c->ps.servers;
    if (*servers > 0) return ERR_NONE;
    *servers = devices > 0 ? devices : 1;
    if (!devices || r->c->launched.by || *servers > RANKS_MOST / 2)
        config_error(r->e, resolve_find(r, "ps.servers"), false,
                     "a server for each device, but the number of devices (%s) is not given\nset devices, or "
                     "ps.servers to a number",
                     resolve_place(r, resolve_find(r, "devices")));
    const char *text = pool_printf(r->pool, "%lld", (long long)*servers);
    return text ? resolve_decide(r, "ps.servers", text) : ERR_MEMORY;
}

static enum error ps_choose(struct resolve *r, const struct mode_row *mode) {
    struct sharing *s = &r->c->sharing;
    TRY(decide_servers(r));
    TRY(mode_take(r, mode));
    s->title =
        pool_printf(r->pool, "%d server%s%s", s->owners, s->owners == 1 ? "" : "s", s->servers ? "" : " on workers");
    if (r->c->ps.staleness) share_take_stale(r, "ps.staleness", r->c->ps.staleness);
    return s->title ? ERR_NONE : ERR_MEMORY;
}

static bool ps_overlaps(const struct run_config *c) {
    return c->ps.overlap;
}

static void ps_check(struct resolve *r) {
    const struct node *servers = resolve_find(r, "ps.servers");
    const char *algorithm = r->c->comm.algorithm;
    bool plain = !strcmp(algorithm, "auto") || !strcmp(algorithm, "direct") || !strcmp(algorithm, "star");
    shares_check(r);
    resolve_clash(r, r->c->ps.staleness && r->c->ps.place == PS_WORKERS, "ps.staleness",
                  "a server that does not wait ({at ps.staleness}) computes nothing else, but ps.place is 'workers' "
                  "({at ps.place})\nuse ps.place: apart, or ps.staleness: 0");
    resolve_clash(
        r, r->c->ps.staleness && r->c->ps.servers > 1, "ps.staleness",
        "ps.staleness: of {ps.servers} servers ({at ps.servers}) each would apply the gradients in an order of "
        "its own, and no worker would get weights of one state\nuse ps.servers: 1, or ps.staleness: 0");
    if (r->c->ps.place == PS_WORKERS && r->c->ps.servers > r->c->devices.count && !r->c->run.elastic.min)
        config_error(r->e, servers, false, "%lld servers on workers, but there %s %d (%s)\nuse ps.place: apart",
                     (long long)r->c->ps.servers, r->c->devices.count == 1 ? "is" : "are", r->c->devices.count,
                     resolve_place(r, resolve_find(r, "devices")));
    resolve_clash(r, r->c->ps.staleness && r->c->run.elastic.min > 0, "run.elastic.min",
                  "'run.elastic' needs steps that do not depend on the number of devices, but here each gradient is an "
                  "update of its own (ps.staleness, {at ps.staleness})\nuse run.restarts, or ps.staleness: 0");
    resolve_clash(r, r->c->ps.hosts != SERVERS_FIRST && r->c->ps.place == PS_WORKERS, "ps.hosts",
                  "ps.hosts '{ps.hosts}' is for servers apart, but these are on workers ({at ps.place})\n"
                  "use ps.place: apart, or leave ps.hosts out");
    resolve_clash(r, r->c->ps.hosts != SERVERS_FIRST && r->c->launched.by, "ps.hosts",
                  "ps.hosts: where processes are is another launcher's choice, of which the first are the servers\n"
                  "leave it out, and order the launcher's hosts");
    resolve_clash(
        r, r->c->ps.hosts != SERVERS_FIRST && r->c->run.elastic.nodes > 0, "ps.hosts",
        "ps.hosts '{ps.hosts}' needs each host, but run.elastic.nodes ({at run.elastic.nodes}) lets the run go "
        "on without some\nuse ps.hosts: first");
    resolve_clash(r, r->c->ps.hosts == SERVERS_OWN && r->c->ps.servers >= r->c->run.nodes, "ps.hosts",
                  "{ps.servers} servers on hosts of their own, of {run.nodes} ({at run.nodes}), leave none to compute\n"
                  "use more hosts, fewer servers, or ps.hosts: spread");
    resolve_clash(r, r->c->sync_batchnorm && r->c->sharing.servers, "sync_batchnorm",
                  "sync_batchnorm is shared among all ranks, but servers apart compute nothing ({at ps.place})\n"
                  "use ps.place: workers");
    resolve_clash(r, r->c->optimizer.shard, "optimizer.shard",
                  "'optimizer.shard' is for mode ddp: in mode ps the servers have the optimizer's state\n"
                  "leave it out, and set ps.servers");
    resolve_clash(r, !plain, "comm.algorithm",
                  "algorithm '{comm.algorithm}' is for gradients that all ranks add; in mode ps servers do\nuse auto");
    resolve_clash(r, plain && r->c->comm.order == COMM_ORDER_RING, "comm.order",
                  "order 'ring' adds in a circle of ranks, which servers do not form\nuse order tree");
}

const struct mode_row mode_ps = {
    .name = "ps",
    .also = "parameter_servers|byteps|ps_lite",
    .summary = "parameter servers as processes; workers send them gradients and receive weights",
    .place = PLACE_PROCESSES,
    .choose = ps_choose,
    .check = ps_check,
    .launch = processes_launch,
    .step = &mode_step,
    .overlaps = ps_overlaps,
    .ways = ps_ways,
    .way = ps_way,
};
