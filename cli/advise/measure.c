/* What 'engine advise' measures: a step on one device in each precision, this machine's links, and then some of the
 * ways that it has simulated. */
#include "cli/advise/advise.h"

#include "engine/base/file.h"
#include "engine/base/plugin.h"
#include "engine/base/process.h"
#include "engine/train/stop.h"
#include "lab/predict/link_fit.h"
#include "modes/share/share.h"

#include <math.h>
#include <string.h>

static const double SECONDS = 1.5, LIMIT = 300; /* of a measurement, about; and at most */
static const double QUANTILE = 0.25;            /* of its steps: what others do lengthens some and shortens none */
enum { STEPS_LEAST = 12, STEPS_MOST = 300, PROBE = 6 };

/* ---- the configuration ---------------------------------------------------------------------- */

static enum error measure_settings_load(struct advising *g) {
    run_settings_free(&g->settings);
    g->settings = (struct run_settings){0};
    enum error err = cli_load(&g->config, &g->settings);
    g->printed = err != ERR_NONE;
    return err;
}

/* The first key that the advice leaves out: one that is not simulated, or one by which a run
 * learns otherwise than by the gradient of the whole batch. */
static struct unsimulated measure_left_out(const struct run_config *c) {
    struct unsimulated u = measured_unknown(c);
    if (u.key || !c->sharing.key) return u;
    return (struct unsimulated){c->sharing.key, c->sharing.share->without};
}

/* A plug-in is tried beside the other algorithms where those are; its order is its own. */
static enum error measure_take_own(struct advising *g) {
    const char *path = g->settings.config.comm.algorithm;
    if (!plugin_is_path(path)) return ERR_NONE;
    TRY(way_open(path, &g->ask.own));
    TRY(cli_set(&g->config, "comm.algorithm=auto"));
    return measure_settings_load(g);
}

static enum error measure_leave_out(struct advising *g) {
    for (struct unsimulated u; (u = measure_left_out(&g->settings.config)).key;) {
        advise_note(&g->notes, "The advice leaves out %s: it is for %s=%s.", u.key, u.key, u.without);
        TRY(cli_set(&g->config, pool_printf(g->pool, "%s=%s", u.key, u.without)));
        TRY(measure_settings_load(g));
    }
    return ERR_NONE;
}

/* ---- devices, cores and memory -------------------------------------------------------------- */

static bool measure_has_units(const struct advising *g) {
    return device_find(g->settings.config.devices.kind)->units != NULL;
}

static void measure_put_devices(struct advise_ask *ask, const int64_t *list, int n) {
    ask->devices[0] = 1, ask->ndevices = 1;
    for (int64_t last = 1;;) { /* ascending, each once */
        int64_t next = INT64_MAX;
        for (int i = 0; i < n; i++)
            if (list[i] > last && list[i] < next) next = list[i];
        if (next == INT64_MAX || ask->ndevices == ADVISE_DEVICES) return;
        ask->devices[ask->ndevices++] = last = next;
    }
}

/* Chooses the counts of devices where none are given: up to 64 over described ports, else as many as this machine has. No
 * device goes without a sample. */
static enum error measure_choose_devices(struct advising *g, int64_t here) {
    const struct run_config *c = &g->settings.config;
    int64_t usual[LIST_MOST], most = g->emulated ? 64 : here;
    int n = 0;
    for (int i = 0; i < g->o->ndevices; i++)
        if (!g->ask.weak && g->o->devices[i] > c->batch.size)
            return FAIL(
                ERR_USAGE,
                "--devices: %lld devices share a batch of %lld samples\n--scaling weak lets the batch grow with "
                "the devices",
                (long long)g->o->devices[i], (long long)c->batch.size);
    for (int64_t k = 1; k <= most && (g->ask.weak || k <= c->batch.size); k *= 2) usual[n++] = k;
    if (g->o->ndevices)
        measure_put_devices(&g->ask, g->o->devices, g->o->ndevices);
    else
        measure_put_devices(&g->ask, usual, n);
    return ERR_NONE;
}

static int64_t measure_devices_largest(const struct advise_ask *ask, int64_t most) {
    int64_t n = 1;
    for (int i = 0; i < ask->ndevices; i++)
        if (ask->devices[i] <= most) n = ask->devices[i];
    return n;
}

/* Threads that nobody has chosen are as many as let the most devices of the list run here side by side. */
static enum error measure_choose_threads(struct advising *g) {
    const struct node *threads = node_get(g->settings.tree, "threads");
    int cores = device_host_cores();
    if (measure_has_units(g) || !threads || strcmp(threads->source, "auto") != 0) return ERR_NONE;
    TRY(cli_set(&g->config,
                pool_printf(g->pool, "threads=%lld", (long long)(cores / measure_devices_largest(&g->ask, cores)))));
    return measure_settings_load(g);
}

static enum error measure_count_here(struct advising *g) {
    const struct run_config *c = &g->settings.config;
    int units = 0, cores = device_host_cores();
    if (measure_has_units(g)) TRY(device_find(c->devices.kind)->units(&units));
    g->here = measure_has_units(g) ? units : cores > c->threads ? cores / c->threads : 1;
    g->check = measure_devices_largest(&g->ask, g->here);
    if (g->check < 2) g->check = 0;
    g->ask.cores = g->emulated || measure_has_units(g) ? 0 : (int)g->here;
    return ERR_NONE;
}

/* Decides the bytes that each device has: a unit its own; otherwise this machine's, shared by the most devices of the
 * list, or the whole of it for each described device. */
static void measure_decide_memory(struct advising *g) {
    struct device_unit unit;
    const struct device_ops *kind = device_find(g->settings.config.devices.kind);
    double all = (double)host_memory();
    int64_t most = g->ask.devices[g->ask.ndevices - 1];
    g->ask.memory = measure_has_units(g) && kind->unit_about(0, &unit) ? (double)unit.memory
                    : g->emulated                                      ? all
                                                                       : all / (double)most;
    if (g->o->memory) g->ask.memory = (double)g->o->memory;
}

/* ---- modes ---------------------------------------------------------------------------------- */

/* The way of a mode that is the simplest, on two devices. */
static struct advise_way measure_plain_way(int m) {
    const struct mode_row *mode = advise_mode(m);
    struct advise_way w = {.devices = 2, .mode = m, .way = {.mode = mode, .of = mode->ways, .scheme = SCHEMES}};
    for (const struct mode_way *way = mode->ways; way->name; way++)
        if (way->order && (!w.way.of->order || way->order < w.way.of->order)) w.way.of = way;
    w.way.count = w.way.of->counts ? 2 - w.way.of->servers : 0;
    return w;
}

static enum error measure_try_mode(const struct advising *g, int m) {
    const struct run_config *of = &g->settings.config;
    const struct advise_way w = measure_plain_way(m);
    struct cli_config c = g->config;
    struct run_settings s;
    const char *sets[ADVISE_SETS + 1];
    int n;
    if (way_is_staged(&w.way) && device_find(of->devices.kind)->runtime->apart)
        return FAIL(ERR_CONFIG, "it sends activations from the host's memory, and the devices are %s",
                    of->devices.kind);
    if (measure_has_units(g)) return ERR_NONE; /* there may be only one here */
    TRY(advise_sets(&g->ask, &w, g->pool, sets, &n));
    sets[n++] = pool_printf(g->pool, "devices=%s:%lld", of->devices.kind, (long long)advise_computing(&g->ask, &w));
    TRY(cli_set_all(&c, sets, (size_t)n));
    enum error err = step_source_read(&c, &s);
    run_settings_free(&s);
    return err;
}

/* A mode that cannot be had beside the configuration's other keys is left out, and said. */
static enum error measure_modes(struct advising *g) {
    for (int m = 0; m < advise_modes(); m++) {
        enum error err = m == advise_alone() ? ERR_NONE : measure_try_mode(g, m);
        if (err != ERR_NONE && err != ERR_CONFIG) return err;
        g->ask.without[m] = err != ERR_NONE;
        if (err != ERR_NONE) advise_note(&g->notes, "Mode %s is left out: %s.", advise_mode(m)->name, error_message());
    }
    return ERR_NONE;
}

/* ---- ports ---------------------------------------------------------------------------------- */

/* Among as many ranks as are checked, or two. Modes with the same link have one measurement. */
static enum error measure_link(struct advising *g, int m) {
    int64_t ranks = g->check ? g->check : 2;
    const char *mode = advise_mode(m)->name;
    struct cli_config c = g->config;
    struct run_settings s;
    struct link_fit fit;
    const char *sets[] = {pool_printf(g->pool, "mode=%s", mode),
                          pool_printf(g->pool, "devices=%s:%lld", g->settings.config.devices.kind, (long long)ranks)};
    TRY(cli_set_all(&c, sets, 2));
    enum error err = step_source_read(&c, &s);
    const struct link l = err == ERR_NONE ? link_of(&s.config) : (struct link){0};
    const char *path = pool_printf(g->pool, "%s/link-%s-%s-%d.json", g->dir, l.name ? l.name : "none",
                                   err == ERR_NONE ? l.algorithm : "", l.ranks);
    if (err == ERR_NONE && !path) err = ERR_MEMORY;
    bool known = err == ERR_NONE && file_exists(path);
    if (err == ERR_NONE && !known) {
        advising_progress(g, "measuring link %s among %d ranks", l.name, l.ranks);
        err = link_measure(&l, ENGINE_ITSELF, path, g->pool);
    }
    if (err == ERR_NONE) err = link_read(&l, path, g->pool, &fit);
    run_settings_free(&s);
    if (err != ERR_NONE) return error_prefix(err, "the link of %s: ", mode);
    g->ask.port[m] = fit.wire;
    if (known) return ERR_NONE;
    g->ports = pool_printf(g->pool, "%s%s%s (half of its calls within %.0f %%)", g->ports ? g->ports : "",
                           g->ports ? "; " : "", fit.words, fit.off * 100);
    return g->ports ? ERR_NONE : ERR_MEMORY;
}

/* Ranks that reach each other's memory take what is best there, whatever their ports would say. */
static enum error measure_links(struct advising *g) {
    if (measure_has_units(g))
        return FAIL(ERR_USAGE, "links of %s are not measured\ndescribe them with --link RATE,LATENCY",
                    g->settings.config.devices.kind);
    g->ask.fitted = true;
    g->ask.usual = g->settings.config.comm.order == COMM_ORDER_RING ? SCHEMES : SCHEME_direct;
    for (int m = 0; m < advise_modes(); m++)
        if (m != advise_alone() && !g->ask.without[m]) TRY(measure_link(g, m));
    return ERR_NONE;
}

static enum error measure_describe_ports(struct advising *g) {
    const struct run_config *c = &g->settings.config;
    const struct network_plan described = network_described(&c->comm.emulate.as, c->devices.count, run_all_ranks(c));
    const struct wire w = g->o->linked ? g->o->link : described.outside;
    char text[64];
    if (!g->o->linked && emulation_on(&described.links))
        advise_note(&g->notes,
                    "The advice takes all links to be like the slowest of those that comm.emulate describes.");
    for (int m = 0; m < advise_modes(); m++) g->ask.port[m] = w;
    g->ports = pool_printf(g->pool, "ports of %s", list_wire_text(&w, text));
    return g->ports ? ERR_NONE : ERR_MEMORY;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int measure_steps_for(double seconds) {
    double n = seconds > 0 ? SECONDS / seconds : STEPS_MOST;
    return (int)fmax(STEPS_LEAST, fmin(STEPS_MOST, n));
}

static enum error measure_open_source(struct advising *g, const char *precision, int steps, struct step_source *out) {
    struct cli_config c = g->config;
    TRY(cli_set(&c, pool_printf(g->pool, "precision=%s", precision)));
    const struct step_ask ask = {
        .path = g->o->path, .config = &c, .quantile = QUANTILE, .steps = steps, .limit = LIMIT, .quiet = true};
    return step_source_open(&ask, out);
}

/* A few steps say how many are a second's worth. */
static enum error measure_in(struct advising *g, const char *precision) {
    struct step_source *s = &g->source[g->nsources];
    advising_progress(g, "measuring a step on one device in %s", precision);
    enum error err = measure_open_source(g, precision, PROBE, s);
    const struct measured_step *m = &s->step;
    int steps = err == ERR_NONE ? measure_steps_for(m->load + m->forward + m->backward + m->update) : 0;
    step_source_close(s);
    if (err == ERR_NONE) {
        err = measure_open_source(g, precision, steps, s);
        if (err != ERR_NONE) step_source_close(s);
    }
    if (err != ERR_NONE) return err;
    g->ask.measured[g->nsources].precision = precision;
    g->ask.measured[g->nsources].step = &s->step;
    g->ask.nmeasured = ++g->nsources;
    return ERR_NONE;
}

/* A precision that this machine cannot compute in is left out, and said. */
static enum error measure_steps(struct advising *g) {
    const struct run_config *c = &g->settings.config;
    unsigned can = device_find(c->devices.kind)->precisions;
    TRY(measure_in(g, precision_name(c->precision)));
    for (int p = 0; p <= PRECISION_TF32; p++) {
        if (p == c->precision || !(can & 1u << p)) continue;
        if (measure_in(g, precision_name(p)) == ERR_NONE) continue;
        if (stop_signal()) return FAIL(ERR_RESULT, "stopped");
        advise_note(&g->notes, "%s was not measured: %s.", precision_name(p), error_message());
    }
    return ERR_NONE;
}

/* ---- all of it ------------------------------------------------------------------------------ */

enum error advise_measure(struct advising *g) {
    g->ask = (struct advise_ask){.weak = g->o->weak, .usual = SCHEMES};
    TRY(measure_settings_load(g));
    TRY(measure_take_own(g));
    TRY(measure_leave_out(g));
    g->emulated = g->o->linked || emulation_on(&g->settings.config.comm.emulate.as);
    if (g->ask.own && g->emulated)
        advise_note(&g->notes,
                    "comm.algorithm is a plug-in: it is tried beside the engine's algorithms, by the messages "
                    "that it asks for. Where it adds in an order of its own, that is another training, too.");
    else if (g->ask.own)
        advise_note(&g->notes, "The advice leaves out comm.algorithm: over links that are measured it is for "
                               "comm.algorithm=auto.");
    int units = 0;
    if (measure_has_units(g)) TRY(device_find(g->settings.config.devices.kind)->units(&units));
    TRY(measure_choose_devices(g, measure_has_units(g) ? units : device_host_cores()));
    TRY(measure_choose_threads(g));
    TRY(measure_count_here(g));
    measure_decide_memory(g);
    g->ask.config = &g->settings.config;
    if (g->ask.ndevices > 1) TRY(measure_modes(g));
    if (g->emulated) TRY(measure_describe_ports(g));
    TRY(measure_steps(g));
    return g->emulated || g->ask.ndevices == 1 ? ERR_NONE : measure_links(g);
}

/* ---- what can be checked -------------------------------------------------------------------- */

static enum error measure_set_way(const struct advising *g, const struct advise_way *w, struct cli_config *out) {
    const struct run_config *c = &g->settings.config;
    const struct wire *port = &g->ask.port[w->mode];
    const char *sets[ADVISE_SETS + 3];
    int n;
    int64_t computing = advise_computing(&g->ask, w);
    TRY(advise_sets(&g->ask, w, g->pool, sets, &n));
    sets[n++] = pool_printf(g->pool, "devices=%s:%lld", c->devices.kind, (long long)computing);
    if (g->ask.weak)
        sets[n++] = pool_printf(g->pool, "batch={size: %lld, shards: %lld, accumulate: %lld}",
                                (long long)(c->batch.size * computing / c->devices.count), (long long)c->batch.shards,
                                (long long)c->batch.accumulate);
    if (g->emulated)
        sets[n++] = port->beta > 0 ? pool_printf(g->pool, "comm.emulate={bandwidth: %.0f, latency: %.9gs}",
                                                 1 / port->beta, port->alpha)
                                   : pool_printf(g->pool, "comm.emulate={latency: %.9gs}", port->alpha);
    return cli_set_all(out, sets, (size_t)n);
}

static enum error measure_check_loaded(struct advising *g, const struct run_settings *s, int steps,
                                       struct advise_check *out) {
    struct run_result r;
    struct simulated simulated;
    double formula;
    int64_t n;
    bool described = g->emulated && (g->ask.port[out->mode].beta > 0 || g->ask.port[out->mode].alpha > 0);
    int cores = measure_has_units(g) ? 0 : (int)g->here;
    const struct trial t = {ENGINE_ITSELF, s, LIMIT};
    TRY(measured_predict(&g->source[0].step, &s->config, described ? NULL : &g->ask.port[out->mode], cores, &simulated,
                         &formula));
    TRY(trial_run(&t, g->pool, &r));
    out->predicted = simulated.step;
    out->measured = run_result_quantile_ms(&r, steps / 4, QUANTILE, &n) * 1e-3;
    return isnan(out->measured) ? FAIL(ERR_DATA, "the run wrote no steps") : ERR_NONE;
}

static enum error measure_check_way(struct advising *g, const struct advise_row *row, struct advise_check *out) {
    struct cli_config c = g->config;
    struct run_settings s;
    int steps = measure_steps_for(row->answer.result.step);
    *out = (struct advise_check){.label = advise_text(&g->advice, &row->as),
                                 .mode = row->as.mode,
                                 .samples = row->rate * row->answer.result.step};
    advising_progress(g, "checking: %s", out->label);
    TRY(measure_set_way(g, &row->as, &c));
    const char *dir = pool_printf(g->pool, "%s/check-%s", g->dir, advise_mode(row->as.mode)->name);
    if (!dir) return ERR_MEMORY;
    TRY(step_source_short(steps, dir, g->pool, &c));
    enum error err = step_source_read(&c, &s);
    if (err == ERR_NONE) err = measure_check_loaded(g, &s, steps, out);
    run_settings_free(&s);
    if (stop_signal()) return FAIL(ERR_RESULT, "stopped");
    if (err != ERR_NONE) out->why = pool_printf(g->pool, "%s", error_message());
    return err == ERR_NONE || out->why ? ERR_NONE : ERR_MEMORY;
}

enum error advise_check_here(struct advising *g) {
    struct advice *a = &g->advice;
    for (int d = 0; d < g->ask.ndevices && g->check; d++)
        for (int m = 0; m < advise_modes(); m++) {
            int best = a->at[d].best[m];
            if (g->ask.devices[d] != g->check || best < 0 || m == advise_alone()) continue;
            TRY(measure_check_way(g, &a->row[best], &a->check[a->nchecks]));
            a->nchecks++;
        }
    return ERR_NONE;
}
