/* Who starts the ranks (engine run on one host or on several, or another launcher), and what they
 * reach each other by. */
#include "engine/train/resolve_impl.h"

#include "engine/device/device.h"

#include <string.h>

static bool is_init_url(const char *init) {
    return !strncmp(init, "tcp://", 6) || !strncmp(init, "file://", 7);
}

/* run.init, run.rank and run.world_size say it, or the environment (launched) has. */
static void read_init(struct resolve *r) {
    struct run_launched *l = &r->c->launched;
    const struct place_config *p = &r->c->run;
    const struct node *init = resolve_find(r, "run.init");
    if (is_init_url(p->init)) {
        if (p->rank >= 0) l->rank = (int)p->rank, l->local = -1;
        if (p->world_size > 0) l->size = (int)p->world_size, l->locals = 0;
        if ((p->rank < 0 || p->world_size <= 0) && !l->by) {
            config_error(r->e, init, false,
                         "'run.init' is %.64s, but which rank this is and of how many is not "
                         "told\nset run.rank and run.world_size, or RANK and WORLD_SIZE",
                         p->init);
            return;
        }
        l->by = p->init[0] == 't' ? "run.init tcp://" : "run.init file://";
        l->master = p->init[0] == 't' ? p->init + 6 : p->init;
    } else if (!strcmp(p->init, "none")) {
        *l = (struct run_launched){0};
    } else if (l->problem && (!strcmp(p->init, "auto") || !strcmp(p->init, "env://"))) {
        config_error(r->e, init, false, "the environment: %s", l->problem);
    } else if (!strcmp(p->init, "env://")) {
        if (!l->by)
            config_error(r->e, init, false,
                         "'run.init' is env://, but RANK, WORLD_SIZE, "
                         "MASTER_ADDR and MASTER_PORT are not all set");
    } else if (strcmp(p->init, "auto") != 0) {
        config_error(r->e, init, false,
                     "'run.init' must be auto, none, env://, tcp://HOST:PORT or file:///PATH, got "
                     "\"%.64s\"",
                     p->init);
    }
}

static void check_launched(struct resolve *r) {
    const struct run_launched *l = &r->c->launched;
    const struct node *nodes = resolve_find(r, "run.nodes"),
                      *restarts = resolve_find(r, "run.restarts");
    if (!l->by) return;
    if (l->size < 1 || l->size > 64 || l->rank < 0 || l->rank >= l->size)
        config_error(r->e, resolve_find(r, "run.rank"), false,
                     "rank %d of %d (%s): from 1 to 64 ranks", l->rank, l->size, l->by);
    if (l->size > 1 && !resolve_mode_is(r, "ddp"))
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
        config_error(r->e, restarts, false,
                     "'run.restarts' is for ranks that 'engine run' starts; here %s does", l->by);
}

static void check_nodes(struct resolve *r) {
    const struct place_config *p = &r->c->run;
    const struct node *nodes = resolve_find(r, "run.nodes");
    if (p->node_rank >= p->nodes)
        config_error(r->e, resolve_find(r, "run.node_rank"), false, "node %lld of %lld (%s)",
                     (long long)p->node_rank, (long long)p->nodes, resolve_place(r, nodes));
    if (p->nodes > 1 && !resolve_mode_is(r, "ddp"))
        config_error(r->e, nodes, false, "%lld nodes, but mode '%s' runs on one\nuse mode ddp",
                     (long long)p->nodes, r->c->mode);
    if (p->restarts > 0 && !resolve_mode_is(r, "ddp"))
        config_error(r->e, resolve_find(r, "run.restarts"), false,
                     "'run.restarts' starts processes again, but mode '%s' has none\nuse mode ddp",
                     r->c->mode);
}

enum error resolve_processes(struct resolve *r) {
    read_init(r);
    check_launched(r);
    check_nodes(r);
    return ERR_NONE;
}

/* What the ranks can reach each other by; NULL: anything that ddp can use. */
static const char *wrong_link(const struct resolve *r) {
    static const char *const names[] = {"auto", "thread", "shm", "tcp", "hosts", "mpi"};
    const char *name = names[r->c->comm.link];
    bool ddp = resolve_mode_is(r, "ddp"), many = r->c->run.nodes > 1;
    if (ddp && r->c->comm.link == COMM_LINK_THREAD)
        return pool_printf(r->pool,
                           "link 'thread' joins threads, but mode 'ddp' (%s) runs "
                           "processes\nuse link shm or auto",
                           resolve_place(r, resolve_find(r, "mode")));
    if (resolve_mode_is(r, "dp") && r->c->comm.link > COMM_LINK_THREAD)
        return pool_printf(r->pool,
                           "link '%s' joins processes, but mode 'dp' (%s) runs "
                           "threads\nuse link thread or auto",
                           name, resolve_place(r, resolve_find(r, "mode")));
    if (ddp && r->c->comm.link == COMM_LINK_MPI && !r->c->launched.by)
        return "link 'mpi' joins ranks that an MPI launcher has started, but here 'engine run' "
               "starts them\nmpirun -np 4 engine run CONFIG, or use link auto";
    if (many && r->c->comm.link == COMM_LINK_SHM)
        return pool_printf(r->pool,
                           "link 'shm' stays on one host, but there are %lld nodes "
                           "(%s)\nuse link hosts, tcp or auto",
                           (long long)r->c->run.nodes,
                           resolve_place(r, resolve_find(r, "run.nodes")));
    return "";
}

/* Ranks that another launcher has started find out where they are when they have met. */
enum error resolve_link(struct resolve *r) {
    struct comm_config *c = &r->c->comm;
    const char *wrong = wrong_link(r);
    if (!wrong) return ERR_MEMORY;
    if (*wrong) config_error(r->e, resolve_find(r, "comm.link"), false, "%s", wrong);
    if (c->emulate.bandwidth > 0 && (r->c->run.nodes > 1 || r->c->launched.by))
        config_error(r->e, resolve_find(r, "comm.emulate"), false,
                     "emulated links need one clock: they stay on one host, with ranks that "
                     "'engine run' starts");
    if (c->link != COMM_LINK_AUTO || (r->c->launched.by && resolve_mode_is(r, "ddp")))
        return ERR_NONE;
    bool ddp = resolve_mode_is(r, "ddp"), many = r->c->run.nodes > 1;
    c->link = !ddp ? COMM_LINK_THREAD : many ? COMM_LINK_HOSTS : COMM_LINK_SHM;
    return resolve_decide(r, "comm.link", !ddp ? "thread" : many ? "hosts" : "shm");
}

/* ---- devices of launched ranks ---- */

/* Launchers may show each process a unit of its own, which is then the first and only one to it. */
static bool sees_its_own(const struct device_choice *d) {
    const struct device_ops *ops = device_find(d->kind);
    int units = 0;
    return d->listed == 1 && ops->units && ops->units(&units) == ERR_NONE && units == 1;
}

enum error resolve_launched_devices(struct resolve *r) {
    const struct run_launched *l = &r->c->launched;
    struct device_choice *d = &r->c->devices;
    int here = l->locals > 0 ? l->locals : 1;
    if (d->count && d->count != here && d->count != l->size && !sees_its_own(d))
        config_error(r->e, resolve_find(r, "devices"), false,
                     "%d devices, but %s has started %d process%s, %d of them here\nleave "
                     "'devices' to it: %s",
                     d->count, l->by, l->size, l->size == 1 ? "" : "es", here, d->kind);
    d->local = here;
    d->count = l->size;
    r->c->devices_text = pool_printf(r->pool, "%s:%d", d->kind, d->count);
    return r->c->devices_text ? ERR_NONE : ERR_MEMORY;
}
