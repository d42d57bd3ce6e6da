/* The launcher of the ranks (engine run on one host or on several, or another launcher), and how the ranks reach each
 * other. */
#include "engine/base/leaves.h"
#include "engine/base/links.h"
#include "engine/base/plugin.h"
#include "engine/device/runtime.h"
#include "engine/settings/resolve.h"

#include <string.h>

static bool resolve_is_init_url(const char *init) {
    return !strncmp(init, "tcp://", 6) || !strncmp(init, "file://", 7);
}

/* run.init, run.rank and run.world_size say it, or the environment (launched) has. */
static void launch_read_init(struct resolve *r) {
    struct run_launched *l = &r->c->launched;
    const struct place_config *p = &r->c->run;
    const struct node *init = resolve_find(r, "run.init");
    if (resolve_is_init_url(p->init)) {
        if (p->rank >= 0) l->rank = (int)p->rank, l->local = -1;
        if (p->world_size > 0) l->size = (int)p->world_size, l->locals = 0;
        if ((p->rank < 0 || p->world_size <= 0) && !l->by) {
            config_error(r->e, init, false,
                         "'run.init' is %.64s, but the number of this rank and of all ranks is not set\nset run.rank "
                         "and run.world_size, or RANK and WORLD_SIZE",
                         p->init);
            return;
        }
        l->by = p->init[0] == 't' ? "run.init tcp://" : "run.init file://";
        l->master = p->init[0] == 't' ? p->init + 6 : p->init;
    } else if (!strcmp(p->init, "none")) {
        if (l->by || l->problem) *l = (struct run_launched){0};
    } else if (l->problem && (!strcmp(p->init, "auto") || !strcmp(p->init, "env://"))) {
        config_error(r->e, init, false, "the environment: %s", l->problem);
    } else if (!strcmp(p->init, "env://")) {
        if (!l->by)
            config_error(r->e, init, false,
                         "'run.init' is env://, but RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are not all set");
    } else if (strcmp(p->init, "auto") != 0) {
        config_error(r->e, init, false,
                     "'run.init' must be auto, none, env://, tcp://HOST:PORT or file:///PATH, got \"%.64s\"", p->init);
    }
}

static void check_launched(struct resolve *r) {
    const struct run_launched *l = &r->c->launched;
    const struct node *nodes = resolve_find(r, "run.nodes"), *restarts = resolve_find(r, "run.restarts");
    if (!l->by) return;
    if (l->size < 1 || l->size > RANKS_MOST || l->rank < 0 || l->rank >= l->size)
        config_error(r->e, resolve_find(r, "run.rank"), false, "rank %d of %d (%s): from 1 to %d ranks", l->rank,
                     l->size, l->by, RANKS_MOST);
    if (l->size > 1 && r->c->sharing.place != PLACE_PROCESSES)
        config_error(r->e, resolve_find(r, "mode"), false,
                     "mode '%s' is one process, but %s has started %d (%s)\nuse mode ddp, start it "
                     "once, or set run.init: none",
                     r->c->mode, l->by, l->size, l->variables ? l->variables : "run.world_size");
    if (r->c->run.nodes > 1)
        config_error(r->e, nodes, false,
                     "%lld nodes, but %s has started the ranks already (%s)\nleave run.nodes away, "
                     "or set run.init: none",
                     (long long)r->c->run.nodes, l->by, l->variables ? l->variables : "run.init");
    if (r->c->run.restarts > 0)
        config_error(r->e, restarts, false, "'run.restarts' is for ranks that 'engine run' starts; here %s does",
                     l->by);
}

static void check_nodes(struct resolve *r) {
    const struct place_config *p = &r->c->run;
    const struct node *nodes = resolve_find(r, "run.nodes");
    if (p->node_rank >= p->nodes)
        config_error(r->e, resolve_find(r, "run.node_rank"), false, "node %lld of %lld (%s)", (long long)p->node_rank,
                     (long long)p->nodes, resolve_place(r, nodes));
    if (p->nodes > 1 && r->c->sharing.place != PLACE_PROCESSES)
        config_error(r->e, nodes, false, "%lld nodes, but mode '%s' runs on one\nuse mode ddp", (long long)p->nodes,
                     r->c->mode);
    resolve_clash(r, p->restarts > 0 && r->c->sharing.place != PLACE_PROCESSES, "run.restarts",
                  "'run.restarts' starts processes again, but mode '{mode}' has none\nuse mode ddp");
}

/* The configuration says where the secret is and never holds it, since the configuration is written
 * to the run's files and to reports, and the words of a command are seen by all users of a host. So
 * the message shows neither the line nor the word. */
static void refuse_secret(struct resolve *r, const struct node *token) {
    struct node place = *token;
    place.file = NULL;
    if (token->line == 0) place.source = "--set run.token=...";
    config_error(r->e, &place, false,
                 "'run.token' must be auto, none, env:NAME or file:PATH, and not the secret itself, which would be "
                 "written to the run's files\nexport the secret as ENGINE_TOKEN and set run.token: auto; or put it "
                 "into a file, chmod 600 it, and set run.token: file:PATH");
}

static void check_token(struct resolve *r) {
    const char *spec = r->c->run.token;
    const struct node *node = resolve_find(r, "run.token");
    bool empty = node->given && !strcmp(node->given, "file:"), file = !strncmp(spec, "file:", 5) && !empty;
    if (!file && strcmp(spec, "auto") != 0 && strcmp(spec, "none") != 0 && (strncmp(spec, "env:", 4) != 0 || !spec[4]))
        refuse_secret(r, node);
    resolve_clash(r, r->c->comm.secure >= SECURE_SEALED && !strcmp(spec, "none"), "comm.secure",
                  "'comm.secure' is {comm.secure}, but everybody knows the secret of run.token: none ({at run.token})\n"
                  "export a secret as ENGINE_TOKEN and set run.token: auto; or comm.secure: auto");
}

enum error resolve_processes(struct resolve *r) {
    launch_read_init(r);
    check_launched(r);
    check_nodes(r);
    check_token(r);
    return ERR_NONE;
}

/* ---- how many devices ---- */

/* Of two nodes that clash the one given last is to blame: --set's, then the lower in the file. */
static const struct node *node_given_later(const struct node *a, const struct node *b) {
    if (!resolve_is_given(a) || !resolve_is_given(b)) return resolve_is_given(a) ? a : b;
    if (resolve_is_set(a) != resolve_is_set(b)) return resolve_is_set(a) ? a : b;
    return a->line > b->line ? a : b;
}

static void check_single(struct resolve *r) {
    const struct node *devices = resolve_find(r, "devices"), *mode = resolve_find(r, "mode");
    if (r->c->devices.count <= 1 || r->c->sharing.place != PLACE_ALONE) return;
    resolve_clash(r, node_given_later(mode, devices) == mode, "mode",
                  "mode 'single' runs on one device, but 'devices' is {devices} ({at devices})");
    if (node_given_later(mode, devices) == devices)
        config_error(r->e, devices, false, "%d devices, but mode 'single' runs on one (%s)\nuse mode dp or ddp",
                     r->c->devices.count, resolve_place(r, mode));
}

/* Mode single of --set, of a run on several devices: on the first of them. */
static enum error devices_take_first(struct resolve *r) {
    struct device_choice *d = &r->c->devices;
    if (!r->c->asks || d->count <= 1 || r->c->sharing.place != PLACE_ALONE ||
        resolve_is_set(resolve_find(r, "devices")))
        return ERR_NONE;
    d->count = 1;
    d->listed = d->listed > 0;
    r->c->devices_text = pool_printf(r->pool, "%s:%d", d->kind, d->listed ? d->unit[0] : 1);
    return resolve_decide(r, "devices", r->c->devices_text);
}

enum error resolve_single(struct resolve *r) {
    TRY(devices_take_first(r));
    check_single(r);
    return ERR_NONE;
}

int resolve_devices_most(const struct resolve *r) {
    return RUN_DEVICES_MAX - r->c->sharing.servers;
}

void resolve_check_count(struct resolve *r) {
    const struct device_choice *d = &r->c->devices;
    int64_t nodes = r->c->run.nodes;
    int most = resolve_devices_most(r);
    const char *server = most < RUN_DEVICES_MAX ? " beside the server" : "";
    if (d->count <= most) return;
    if (nodes > 1)
        config_error(r->e, resolve_find(r, "devices"), false,
                     "%d devices on each of %lld nodes (%s) are %d, but a run has at most %d%s", d->local,
                     (long long)nodes, resolve_place(r, resolve_find(r, "run.nodes")), d->count, most, server);
    else
        config_error(r->e, resolve_find(r, "devices"), false, "%d devices, but a run has at most %d%s", d->count, most,
                     server);
}

/* ---- going on with fewer ---- */

bool resolve_is_rank(const struct resolve *r) {
    return r->c->launched.size > 0 && !r->c->launched.by;
}

/* Whether an algorithm adds whatever subtrees a device has, or asks for none (ring). */
static bool algorithm_takes_any_number(const char *algorithm) {
    static const char *const names[] = {"auto", "direct", "star", "ring"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(algorithm, names[i])) return true;
    return false;
}

/* The others are for devices whose shards are one subtree each, halving_doubling for a power of two of them. */
void resolve_algorithm(struct resolve *r) {
    const struct run_config *c = r->c;
    const char *name = c->comm.algorithm;
    int shards = (int)c->batch.shards, devices = c->devices.count;
    bool even = !strcmp(name, "halving_doubling"), fits = !even || is_power_of_two(devices);
    if (algorithm_takes_any_number(name) || !strcmp(name, "native") || c->sharing.place == PLACE_ALONE ||
        devices > shards)
        return;
    const struct node *at = resolve_find(r, "comm.algorithm");
    bool own = plugin_is_path(name), apart = device_find(c->devices.kind)->runtime->apart;
    resolve_clash(
        r, own && (c->sharing.place != PLACE_PROCESSES || apart), "comm.algorithm",
        "plug-in '{comm.algorithm}' all-reduces the host's memory between processes, but mode is '{mode}' and "
        "devices are '{devices}'\nuse mode ddp on cpu, or comm.algorithm: auto");
    if (own && r->algorithm && plugin_prepare(r->algorithm, devices) != ERR_NONE)
        config_error(r->e, at, false, "%s\n%s", error_message(), error_hint());
    resolve_clash(r, !own && c->comm.order == COMM_ORDER_RING, "comm.algorithm",
                  "algorithm '{comm.algorithm}' cannot add in order 'ring' ({at comm.order})\n"
                  "use ring, direct or star");
    if (c->comm.order == COMM_ORDER_RING) return;
    for (int w = 0; fits && w < devices; w++)
        fits = leaves_subtrees(leaves_cut(shards, devices, w), leaves_cut(shards, devices, w + 1)) == 1;
    if (!fits)
        config_error(r->e, at, false,
                     "algorithm '%s' is not for %d devices (%s) that share %d shards: it needs %s\n"
                     "use auto, direct or star",
                     name, devices, resolve_place(r, resolve_find(r, "devices")), shards,
                     even ? "a power of two of devices"
                          : "one subtree of the shards for each, as a power of two of devices has");
}

/* Where every rank has all weights and all of the optimizer's state, and nothing of either changes before the
 * gradients of a step have landed, a rank whose step has failed still holds the step before. On an asynchronous device
 * too: the update is asked for when the host has waited for all buckets, and what is saved is read after it. */
static bool run_outlives_loss(const struct run_config *c) {
    const struct sharing *s = &c->sharing;
    const struct exchange_plan *p = &s->plan;
    bool whole = s->place == PLACE_PROCESSES && p->update == UPDATE_BY_ALL && !p->alone && !s->compressed;
    return c->run.elastic.min > 0 && whole;
}

/* What cannot go on without a device, or would learn otherwise. */
void resolve_elastic(struct resolve *r) {
    const struct node *hosts = resolve_find(r, "run.elastic.nodes"), *devices = resolve_find(r, "devices");
    struct elastic_config *elastic = &r->c->run.elastic;
    const char *path = elastic->min ? "run.elastic.min" : "run.elastic.nodes";
    const struct node *at = resolve_find(r, path);
    if (elastic->nodes && !elastic->min) elastic->min = 1;
    int64_t min = elastic->min, nodes = r->c->run.nodes;
    const char *by = r->c->launched.by;
    r->c->sharing.rescues = run_outlives_loss(r->c);
    if (!min || r->c->asks || resolve_is_rank(r)) return;
    resolve_clash(
        r, r->c->sharing.place != PLACE_PROCESSES, path,
        "'run.elastic' continues without a device's process, but mode '{mode}' has no processes\nuse mode ddp");
    if (r->c->sharing.place == PLACE_PROCESSES && min > r->c->devices.count &&
        nodes == 1) /* others may have more devices than this one */
        config_error(r->e, at, false, "'run.elastic.min' is %lld, but the run begins with %d device%s (%s)",
                     (long long)min, r->c->devices.count, r->c->devices.count == 1 ? "" : "s",
                     by ? by : resolve_place(r, devices));
    if (elastic->nodes > nodes)
        config_error(r->e, hosts, false, "'run.elastic.nodes' is %lld, but run.nodes %lld (%s)",
                     (long long)elastic->nodes, (long long)nodes, resolve_place(r, resolve_find(r, "run.nodes")));
    resolve_clash(r, r->c->sharing.plan.alone, path,
                  "'run.elastic' needs steps that do not depend on the number of devices, but here each device steps "
                  "by its own samples (ddp.sync.every, {at ddp.sync.every})\nuse ddp.sync: 1");
    resolve_clash(r, !algorithm_takes_any_number(r->c->comm.algorithm), path,
                  "'run.elastic' continues with any number of devices, but comm.algorithm '{comm.algorithm}' "
                  "({at comm.algorithm}) does not support every number\nuse auto, direct or star");
    if (by && !resolve_is_given(resolve_find(r, "batch.shards")))
        config_error(r->e, at, false,
                     "%s may start another number of ranks the next time, but the number of shards must stay the "
                     "same\nset batch.shards",
                     by);
}

/* ---- links ---- */

/* What the ranks can reach each other by. */
static void check_link(struct resolve *r) {
    const struct link_row *link = &link_rows[r->c->comm.link];
    bool ddp = r->c->sharing.place == PLACE_PROCESSES, threads = ddp && link->joins == JOINS_THREADS;
    bool started = ddp && link->launched && !r->c->launched.by;
    resolve_clash(r, threads, "comm.link",
                  "link '{comm.link}' joins threads, but mode 'ddp' ({at mode}) runs processes\nuse link shm or auto");
    resolve_clash(r, r->c->sharing.place == PLACE_THREADS && link->joins > JOINS_THREADS, "comm.link",
                  "link '{comm.link}' joins processes, but mode 'dp' ({at mode}) runs threads\n"
                  "use link thread or auto");
    resolve_clash(r, started, "comm.link",
                  "link '{comm.link}' joins ranks that an MPI launcher has started, but here 'engine run' starts them\n"
                  "mpirun -np 4 engine run CONFIG, or use link auto");
    resolve_clash(r, r->c->run.nodes > 1 && link->joins == JOINS_PROCESSES && !started, "comm.link",
                  "link '{comm.link}' stays on one host, but there are {run.nodes} nodes ({at run.nodes})\n"
                  "use link hosts, tcp or auto");
}

/* Ranks that another launcher has started find out where they are when they have met. */
enum error resolve_link(struct resolve *r) {
    struct comm_config *c = &r->c->comm;
    struct emulation more = c->emulate.as; /* than a latency, which each host adds by its own clock */
    more.latency = 0;
    check_link(r);
    resolve_clash(r, (emulation_on(&more) || c->emulate.links.count) && (r->c->run.nodes > 1 || r->c->launched.by),
                  "comm.emulate",
                  "emulated links need one clock: they stay on one host, with ranks that 'engine run' starts");
    if (c->link != COMM_LINK_AUTO || (r->c->launched.by && r->c->sharing.place == PLACE_PROCESSES)) return ERR_NONE;
    bool ddp = r->c->sharing.place == PLACE_PROCESSES, many = r->c->run.nodes > 1;
    c->link = !ddp ? COMM_LINK_THREAD : many ? COMM_LINK_HOSTS : COMM_LINK_SHM;
    return resolve_decide(r, "comm.link", link_rows[c->link].name);
}
