/* engine simulate: one measured step, on devices and networks that are not there. */
#include "cli/simulate.h"

#include "lab/port_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- one row -------------------------------------------------------------------------------- */

struct way { /* of sharing */
    bool server;
    enum simulated_server kind;
    enum scheme scheme;
};

static bool overlaps(const struct simulate_options *o, const struct run_config *c, bool server) {
    if (o->overlap >= 0) return o->overlap;
    return server ? c->dp.overlap == DP_OVERLAP_ON : c->ddp.overlap;
}

/* Stragglers are another few in every step; on many devices a step has enough of them. */
static int steps_of(const struct simulate_options *o, int64_t devices) {
    if (o->steps) return (int)o->steps;
    return o->slow_share > 0 ? (devices <= 256 ? 20 : 3) : 1;
}

/* In ring order a device has one sum, whatever its shards are. */
static int leaves_of(const struct run_config *c) {
    return c->comm.order == COMM_ORDER_RING ? 0 : (int)c->batch.shards;
}

static struct simulate_plan plan_of(const struct simulate_options *o, const struct run_config *c, const struct way *w,
                                    int64_t devices) {
    return (struct simulate_plan){.net = {.devices = (int)devices,
                                          .per_host = (int)(devices < o->per_host ? devices : o->per_host),
                                          .per_rack = (int)o->per_rack,
                                          .oversubscription = o->oversubscription,
                                          .outside = o->outside,
                                          .inside = o->inside},
                                  .near = !o->insided,
                                  .leaves = leaves_of(c),
                                  .server = w->server,
                                  .kind = w->kind,
                                  .scheme = w->scheme,
                                  .ring_order = c->comm.order == COMM_ORDER_RING,
                                  .overlap = overlaps(o, c, w->server),
                                  .cores = (int)o->cores,
                                  .moving = o->bench ? 0 : SIMULATE_MOVING, /* what was measured has it */
                                  .slow_by = o->slow_by,
                                  .slow_share = o->slow_share,
                                  .seed = (uint64_t)o->seed,
                                  .steps = steps_of(o, devices)};
}

static void name_way(const struct way *w, const struct simulated *s, struct simulate_row *row) {
    static const char *const servers[] = {"server", "server apart", "sharded server"};
    row->mode = w->server ? "dp" : "ddp";
    if (w->server)
        snprintf(row->way, sizeof row->way, "%s", servers[w->kind]);
    else
        snprintf(row->way, sizeof row->way, "%s%s", scheme_name(s->scheme), w->scheme == SCHEMES ? " (auto)" : "");
}

static double state_of(const struct run_config *c, const struct way *w, int64_t devices) {
    bool slices = w->server ? w->kind == SERVED_SHARDED : c->optimizer.shard;
    return slices ? 1.0 / (double)devices : 1;
}

/* Cutting of buckets: dp has one for all where nothing is to leave early and every device serves. */
static enum error fill_row(const struct simulate_options *o, const struct simulate_source *s, const struct way *w,
                           struct simulate_row *row) {
    static struct step_shape shape; /* large */
    const struct run_config *c = &s->settings.config;
    const struct bucket_config *b = &c->ddp.bucket;
    int leaves = cost_leaves((int)c->batch.shards, (int)row->devices); /* of which a device has the longest run */
    double share = o->strong ? leaves_longest(leaves, (int)row->devices) : s->step.work;
    struct simulate_plan plan = plan_of(o, c, w, row->devices);
    if (!w->server && c->optimizer.shard) plan.server = true, plan.kind = SERVED_SHARDED;
    bool one = w->server && w->kind == SERVED_SHARDED && !plan.overlap;
    int64_t cap = row->bucket ? row->bucket : b->cap, first = row->bucket ? cap : b->first;
    TRY(measured_shape(&s->step, share, one ? INT64_MAX : first < cap ? first : cap, one ? INT64_MAX : cap, &shape));
    TRY(simulate(&shape, &plan, &row->result));
    row->formula = simulate_formula(&shape, &plan);
    row->buckets = shape.buckets;
    row->memory = measured_memory(&s->step, share, state_of(c, w, row->devices));
    double alone =
        (s->step.load + s->step.forward + s->step.backward) * (o->strong ? 1 : s->step.work) + s->step.update;
    double grown = o->strong ? 1 : (double)row->devices;
    row->speed_up = grown * alone / row->result.step;
    row->efficiency = row->speed_up / (double)row->devices;
    name_way(w, &row->result, row);
    return ERR_NONE;
}

/* The server of mode dp, which the configuration need not be of. */
static enum simulated_server server_of(const struct run_config *c) {
    static const enum simulated_server of[] = {[SERVER_SHARED] = SERVED_SHARED,
                                               [SERVER_DEDICATED] = SERVED_APART,
                                               [SERVER_SHARDED] = SERVED_SHARDED,
                                               [SERVER_CPU] = SERVED_APART};
    return of[c->dp.server];
}

/* ---- all rows ------------------------------------------------------------------------------- */

static int ways_of(const struct simulate_options *o, const struct run_config *c, struct way *out) {
    static const enum simulated_server servers[] = {SERVED_SHARED, SERVED_APART, SERVED_SHARDED};
    enum simulated_server own = server_of(c);
    if (o->server >= 0) own = (enum simulated_server)o->server;
    int n = 0;
    for (int i = 0; i < 3 && o->modes[0]; i++)
        if (o->server == SERVERS_ALL || servers[i] == own) out[n++] = (struct way){true, servers[i], SCHEMES};
    if (o->modes[1] && !o->all_schemes) out[n++] = (struct way){false, SERVED_SHARED, o->scheme};
    for (enum scheme s = 0; s < SCHEMES && n < WAYS && o->modes[1] && o->all_schemes; s++)
        if (scheme_is_known(s)) out[n++] = (struct way){false, SERVED_SHARED, s};
    return n;
}

/* Whether it is a way to add there; for hierarchical hosts must be full, and several. */
static bool suits(const struct simulate_options *o, const struct run_config *c, const struct way *w, int64_t devices) {
    int64_t per = o->per_host;
    const struct ground g = {(int)devices, (int)((devices + per - 1) / per), o->outside, !o->insided, leaves_of(c)};
    if (w->server || w->scheme == SCHEMES) return true;
    if (w->scheme == SCHEME_hierarchical && (devices <= per || devices % per != 0)) return false;
    return isfinite(cost_share(w->scheme, &g, 1));
}

static enum error fill_rows(const struct simulate_options *o, const struct simulate_source *s,
                            struct simulate_row *rows, int *n) {
    struct way ways[WAYS];
    int nways = ways_of(o, &s->settings.config, ways);
    for (int d = 0; d < o->ndevices; d++)
        for (int b = 0; b < (o->nbuckets ? o->nbuckets : 1); b++)
            for (int w = 0; w < nways; w++) {
                struct simulate_row *row = &rows[*n];
                if (o->all_schemes && !suits(o, &s->settings.config, &ways[w], o->devices[d])) continue;
                *row = (struct simulate_row){
                    .devices = o->devices[d], .bucket = o->nbuckets ? o->buckets[b] : 0, .line = b * nways + w};
                TRY(fill_row(o, s, &ways[w], row));
                ++*n;
            }
    return ERR_NONE;
}

/* What was not asked for is as configured, or as is usual. */
static enum error complete(struct simulate_options *o, const struct run_config *c) {
    static const int64_t usual[] = {1, 2, 4, 8, 16, 64, 256, 1024, 4096};
    const struct emulate_config *e = &c->comm.emulate;
    bool emulated = e->bandwidth > 0 || e->latency > 0;
    if (!o->linked)
        o->outside = emulated ? (struct wire){e->latency, e->bandwidth > 0 ? 1 / e->bandwidth : 0}
                              : (struct wire){20e-6, 1 / 1.25e9};
    if (o->bench) TRY(port_fit_read(o->bench, &o->outside, &o->fit_error));
    bool given = o->ndevices > 0;
    for (size_t i = 0; !given && i < sizeof usual / sizeof *usual; i++)
        if (!o->strong || usual[i] <= c->batch.size) o->devices[o->ndevices++] = usual[i];
    for (int i = 0; i < o->ndevices && o->strong; i++)
        if (o->devices[i] > c->batch.size)
            return FAIL(ERR_USAGE,
                        "%lld devices share a batch of %lld samples\n--scaling weak lets the batch "
                        "grow with the devices",
                        (long long)o->devices[i], (long long)c->batch.size);
    return ERR_NONE;
}

static enum error answer(struct simulate_options *o, const struct simulate_source *s) {
    int n = 0;
    TRY(measured_refuse(&s->settings.config));
    TRY(complete(o, &s->settings.config));
    struct simulate_row *rows = calloc((size_t)o->ndevices * (size_t)(o->nbuckets + 1) * 16, sizeof *rows);
    if (!rows) return FAIL(ERR_MEMORY, "cannot allocate a table");
    enum error err = fill_rows(o, s, rows, &n);
    if (err == ERR_NONE) err = simulate_show(o, s, rows, n, stdout);
    free(rows);
    return err;
}

static int run(const struct cli *cli) {
    struct simulate_options *o = cli->options;
    struct simulate_source s;
    if (o->bench && o->linked) return cli_usage(cli, "--link and --bench both say what ports are like");
    enum error err = simulate_source_open(o, &s);
    int code = error_exit_code(err);
    if (err == ERR_NONE) code = cli_end(answer(o, &s));
    simulate_source_close(&s);
    return code;
}

const struct command command_simulate = {
    .name = "simulate",
    .summary = "replays a measured step on up to 4,096 devices: step time, efficiency, busiest port",
    .options = simulate_table,
    .notes = "Exit codes: 0; 64 usage; 65 bad data; 66 no such file or run; 78 bad configuration\n",
    .size = sizeof(struct simulate_options),
    .standard = &simulate_standard,
    .run = run,
};
