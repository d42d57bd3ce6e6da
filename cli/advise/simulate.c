/* engine simulate: one measured step, on devices and networks that are not there. */
#include "cli/advise/simulate.h"

#include "engine/base/plugin.h"
#include "engine/train/stop.h"
#include "lab/predict/port_fit.h"
#include "lab/predict/staged.h"
#include "modes/share/share.h"

#include <stdlib.h>
#include <string.h>

/* ---- one row -------------------------------------------------------------------------------- */

/* Whether the ports are those that the configuration describes. */
static bool simulate_describes(const struct simulate_options *o, const struct run_config *c) {
    return !o->linked && !o->bench && emulation_on(&c->comm.emulate.as);
}

/* Stragglers are another few in every step, and so is what links delay; on many devices a step has enough of them. */
static int simulate_steps_of(const struct simulate_options *o, const struct run_config *c, int64_t devices) {
    if (o->steps) return (int)o->steps;
    if (simulate_describes(o, c) && emulation_draws(&c->comm.emulate.as)) return SIMULATE_DRAWN;
    return o->slow_share > 0 ? (devices <= 256 ? 20 : 3) : 1;
}

static struct sweep_place simulate_sweep_place_of(const struct simulate_options *o, const struct run_config *c,
                                                  int64_t devices, int64_t bucket) {
    struct sweep_place p = sweep_place(c, devices);
    p.plan.net = (struct network_plan){.devices = (int)devices,
                                       .per_host = (int)(devices < o->per_host ? devices : o->per_host),
                                       .per_rack = (int)o->per_rack,
                                       .oversubscription = o->oversubscription,
                                       .outside = o->outside,
                                       .inside = o->inside};
    if (simulate_describes(o, c)) p.plan.net.links = o->described.links;
    p.plan.near = !o->insided;
    p.plan.cores = (int)o->cores;
    p.plan.moving = o->bench ? 0 : SIMULATE_MOVING; /* what was measured has it */
    p.plan.slow_by = o->slow_by;
    p.plan.slow_share = o->slow_share;
    p.plan.seed = (uint64_t)o->seed;
    p.plan.steps = simulate_steps_of(o, c, devices);
    p.overlap = o->overlap;
    if (bucket) p.first = p.cap = bucket;
    p.strong = o->strong;
    return p;
}

static void simulate_name_way(const struct way *w, const struct simulated *s, struct simulate_row *row) {
    row->mode = w->mode->name;
    row->of = w->of;
    if (*w->of->name)
        snprintf(row->way, sizeof row->way, "%s", w->of->name);
    else
        snprintf(row->way, sizeof row->way, "%s%s", way_scheme_name(w, s->scheme),
                 w->scheme == SCHEMES ? " (auto)" : "");
}

/* ---- all rows ------------------------------------------------------------------------------- */

/* Where --server says which one, a mode with servers has that one or all of them; else the configured way. */
static bool simulate_is_asked(const struct simulate_options *o, const struct run_config *c, const struct mode_row *mode,
                              const struct mode_way *way) {
    static const char *const servers[] = {"dp.server=shared", "dp.server=dedicated", "dp.server=sharded"};
    if (o->server < 0 || !way->set || strncmp(way->set, "dp.server", 9) != 0) return way == mode->way(c);
    return o->server == SERVERS_ALL ? way->order > 0 : !strcmp(way->set, servers[o->server]);
}

static void simulate_add_way(const struct simulate_options *o, struct way w, struct way *out, int *n) {
    bool named = *w.of->name, own = w.own && !named;
    if (!o->all_schemes || named || own) {
        w.scheme = named ? SCHEMES : own ? SCHEME_OWN : o->scheme;
        if (*n < WAYS) out[(*n)++] = w;
        if (!own || !o->all_schemes) return;
    }
    for (w.scheme = 0; w.scheme < SCHEMES; w.scheme++)
        if (scheme_is_known(w.scheme) && *n < WAYS) out[(*n)++] = w;
}

/* Whether a way is tried where no mode is named: stages are where they are configured. */
static bool simulate_is_usual(const struct run_config *c, const struct mode_way *way) {
    const struct exchange_plan *plan = &way->share->plan;
    return (!plan->staged || c->sharing.plan.staged) && !run_cuts_matrices(c, plan);
}

static int simulate_ways_of(const struct simulate_options *o, const struct run_config *c, const struct algo_ops *own,
                            struct way *out) {
    int n = 0, nmodes;
    const struct mode_row *const *modes = mode_kinds(&nmodes);
    for (int m = 0; m < nmodes; m++)
        for (const struct mode_way *way = modes[m]->ways; way->name && o->modes[m]; way++)
            if (modes[m]->place != PLACE_ALONE && (o->named || simulate_is_usual(c, way)) &&
                simulate_is_asked(o, c, modes[m], way))
                simulate_add_way(o, (struct way){modes[m], way, SCHEMES, 0, own}, out, &n);
    return n;
}

/* Whether the layers can be cut into stages on so many devices, where that is what the way does. */
static bool simulate_fits(const struct way *w, const struct step_source *s, int64_t devices) {
    struct run_config c = s->settings.config;
    c.devices.count = (int)devices;
    return !way_is_staged(w) || staged_fit(&c, s->step.model) == ERR_NONE;
}

static enum error simulate_fill_rows(const struct simulate_options *o, const struct step_source *s,
                                     struct simulate_row *rows, int *n) {
    const struct run_config *c = &s->settings.config;
    struct way ways[WAYS];
    const struct algo_ops *own = NULL;
    if (o->own) TRY(way_open(o->own, &own));
    int nways = simulate_ways_of(o, c, own, ways);
    for (int d = 0; d < o->ndevices; d++)
        for (int b = 0; b < (o->nbuckets ? o->nbuckets : 1); b++)
            for (int w = 0; w < nways; w++) {
                struct simulate_row *row = &rows[*n];
                *row = (struct simulate_row){
                    .devices = o->devices[d], .bucket = o->nbuckets ? o->buckets[b] : 0, .line = b * nways + w};
                const struct sweep_place p = simulate_sweep_place_of(o, c, row->devices, row->bucket);
                bool fits = way_suits(&ways[w], &p);
                if (!fits && (o->all_schemes || (o->usual && ways[w].own))) continue;
                if (o->usual && !simulate_fits(&ways[w], s, row->devices)) continue;
                TRY(sweep_try(&s->step, &ways[w], &p, &row->answer));
                simulate_name_way(&ways[w], &row->answer.result, row);
                ++*n;
            }
    return ERR_NONE;
}

/* Takes the links that the configuration describes; entries of comm.emulate.links are about its own ranks. */
static enum error simulate_take_links(struct simulate_options *o, const struct run_config *c) {
    const struct emulation *e = &c->comm.emulate.as;
    int most = run_all_ranks(c), other;
    o->described = network_described(e, most, most);
    o->outside = o->described.outside;
    if (emulation_on(&o->described.links) && (o->per_host > 1 || o->per_rack))
        return FAIL(ERR_USAGE,
                    "--per-host and --per-rack are of hosts that are alike, and comm.emulate describes links one "
                    "by one\n--link describes the ports of such hosts");
    if (e->count && o->ndevices == 0) o->devices[o->ndevices++] = c->devices.count;
    for (int i = 0; i < o->ndevices && e->count; i++)
        if (emulation_find_wrong(e, (int)o->devices[i] + c->sharing.servers, &other) >= 0 && other == LINKS_OF_NOBODY)
            return FAIL(ERR_USAGE, "--devices: comm.emulate.links is about ranks that %lld devices do not have",
                        (long long)o->devices[i]);
    return ERR_NONE;
}

/* Fills in the options that were not given: as configured, or as is usual. */
static enum error simulate_options_complete(struct simulate_options *o, const struct run_config *c) {
    static const int64_t usual[] = {1, 2, 4, 8, 16, 64, 256, 1024, 4096};
    o->usual = o->ndevices == 0;
    if (simulate_describes(o, c))
        TRY(simulate_take_links(o, c));
    else if (!o->linked)
        o->outside = (struct wire){20e-6, 1 / 1.25e9};
    if (o->bench) TRY(port_fit_read(o->bench, &o->outside, &o->fit_error));
    bool none = o->ndevices == 0;
    for (size_t i = 0; none && i < sizeof usual / sizeof *usual; i++)
        if (!o->strong || usual[i] <= c->batch.size) o->devices[o->ndevices++] = usual[i];
    for (int i = 0; i < o->ndevices && o->strong; i++)
        if (o->devices[i] > c->batch.size)
            return FAIL(ERR_USAGE,
                        "%lld devices share a batch of %lld samples\n--scaling weak lets the batch "
                        "grow with the devices",
                        (long long)o->devices[i], (long long)c->batch.size);
    return ERR_NONE;
}

static enum error simulate_answer(struct simulate_options *o, const struct step_source *s) {
    int n = 0;
    const char *algorithm = s->settings.config.comm.algorithm;
    TRY(measured_refuse(&s->settings.config));
    TRY(simulate_options_complete(o, &s->settings.config));
    if (plugin_is_path(algorithm) && (!o->algorithm || o->all_schemes)) o->own = algorithm;
    struct simulate_row *rows = calloc((size_t)o->ndevices * (size_t)(o->nbuckets + 1) * WAYS, sizeof *rows);
    if (!rows) return FAIL(ERR_MEMORY, "cannot allocate a table");
    enum error err = simulate_fill_rows(o, s, rows, &n);
    if (err == ERR_NONE) err = simulate_show(o, s, rows, n, stdout);
    free(rows);
    return err;
}

static int simulate_command(const struct cli *cli) {
    enum { STEPS = 40 };
    struct simulate_options *o = cli->options;
    struct step_source s;
    if (o->bench && o->linked) return cli_usage(cli, "--link and --bench both describe the ports: give one of them");
    const struct step_ask ask = {
        .path = o->path, .config = &o->config, .cores = (int)o->cores, .quantile = o->quantile, .steps = STEPS};
    enum error err = step_source_open(&ask, &s);
    if (err == ERR_NONE) err = simulate_answer(o, &s);
    int code = stop_signal() ? stop_exit_code(stop_signal()) : s.printed ? error_exit_code(err) : cli_end(err);
    step_source_close(&s);
    return code;
}

const struct command command_simulate = {
    .name = "simulate",
    .summary = "replays a measured step on up to 4,096 devices: step time, efficiency, busiest port",
    .options = simulate_table,
    .notes = "Exit codes: 0; 64 usage; 65 bad data; 66 no such file or run; 78 bad configuration\n",
    .size = sizeof(struct simulate_options),
    .standard = &simulate_standard,
    .run = simulate_command,
};
