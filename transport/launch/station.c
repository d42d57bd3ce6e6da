/* The station of one rank's process. Where the ranks are started by one 'engine run' on one host,
 * they inherit a board and need nothing else. Otherwise:
 *
 *   1. every rank opens the store (one of them keeps it) and, where other hosts may have to be
 *      reached, a port;
 *   2. they meet there, and each tells its node and its port's address: that is the roster;
 *   3. on each host the first rank makes the board, unless they inherited one, and tells the others
 *      its process and descriptor, by which they open it: nothing is left when they die. */
#include "transport/launch/station.h"

#include "engine/base/file.h"
#include "engine/base/process.h"
#include "transport/launch/launch.h"
#include "transport/launch/launcher.h"
#include "transport/launch/token.h"
#include "transport/link/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODE_MAX = 120 };

struct station {
    struct group_params group;
    struct pool *pool;
    struct store *store;
    struct port *port;
    struct meeting *meeting;
    struct roster roster;
};

/* ---- what tells one host from another ---- */

/* Ranks can share memory if they run on one kernel and see each other's processes. They count as
 * one host only if they have the network in common, too. */
static void node_name(char out[NODE_MAX]) {
    char boot[40];
    struct stat pid = {0}, net = {0};
    (void)file_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    (void)stat("/proc/self/ns/pid", &pid); /* where there is none, all zeros are alike */
    (void)stat("/proc/self/ns/net", &net);
    snprintf(out, NODE_MAX, "%s/%llu/%llu/%u", boot, (unsigned long long)pid.st_ino, (unsigned long long)net.st_ino,
             (unsigned)getuid());
}

/* Whether all ranks are on this host, as far as the master's name tells. */
static bool master_is_here(const char *master) {
    return strncmp(master, "tcp://", 6) || launcher_is_loopback(master + 6);
}

/* ---- store and port ---- */

/* Ranks have their store's key. Where it has none, only this user's processes on this host can open it, and a random
 * one lies in it. */
static enum error station_find_key(struct station *s, const struct station_params *p, char key[SECRET_SIZE]) {
    const char *name = pool_printf(s->pool, "%s/key", p->round);
    char *now;
    size_t n;
    snprintf(key, SECRET_SIZE, "%s", store_key(s->store));
    if (*key) return ERR_NONE;
    if (!name) return ERR_MEMORY;
    if (p->serve) TRY(secret_random(key));
    if (p->serve) TRY(store_set(s->store, name, key, strlen(key)));
    TRY(store_get(s->store, name, 0, s->pool, &now, &n));
    return secret_key(now, key);
}

static enum error station_open_port(struct station *s, const struct station_params *p) {
    char address[ADDRESS_MAX], key[SECRET_SIZE];
    TRY(station_find_key(s, p, key));
    struct port_params pp = {.interface = p->interface, .key = key, .near = !p->token || !*p->token};
    if (!pp.interface && !master_is_here(p->master)) {
        TRY(port_address_towards(p->master + strlen("tcp://"), address));
        pp.interface = address;
    }
    return port_open(&pp, &s->port);
}

/* ---- the roster ---- */

/* What a rank tells the others: its port's address in a line, and its node. */
static enum error member_read(const struct attendant *m, int rank, struct seat_of *seat, const char **node) {
    size_t n = strcspn(m->text, "\n");
    if (!m->text[n] || n >= sizeof seat->address)
        return FAIL(ERR_DATA, "rank %d (%s) sent a message that makes no sense", rank, m->who);
    snprintf(seat->address, sizeof seat->address, "%.*s", (int)n, m->text);
    snprintf(seat->name, sizeof seat->name, "%.63s", m->who);
    *node = m->text + n + 1;
    return ERR_NONE;
}

/* The host of a node: its number is that of its first rank's among them. Ranks of one node follow each other as a rule,
 * so the last host is looked at first. */
static int roster_host(const char *const *nodes, const char *node, int hosts) {
    int h = hosts - 1;
    while (h >= 0 && strcmp(nodes[h], node) != 0) h--;
    return h;
}

static enum error roster_make(struct station *s, const struct attendant *members, int size) {
    struct seat_of *of = pool_alloc(s->pool, (size_t)size * sizeof *of);
    const char **nodes = pool_alloc(s->pool, (size_t)size * sizeof *nodes), *node = "";
    int *locals = pool_alloc(s->pool, (size_t)size * sizeof *locals);
    if (!of || !nodes || !locals) return ERR_MEMORY;
    s->roster = (struct roster){.size = size, .of = of};
    for (int r = 0; r < size; r++) {
        TRY(member_read(&members[r], r, &of[r], &node));
        of[r].number = r;
        of[r].host = roster_host(nodes, node, s->roster.hosts);
        if (of[r].host < 0) {
            of[r].host = s->roster.hosts++;
            nodes[of[r].host] = node;
        }
        of[r].local = locals[of[r].host]++;
    }
    return ERR_NONE;
}

static enum error station_meet(struct station *s, const struct station_params *p) {
    struct attendant *members;
    char node[NODE_MAX], who[128];
    if (!p->node) node_name(node);
    process_who(who);
    const char *text = pool_printf(s->pool, "%s\n%s", s->port ? port_address(s->port) : "", p->node ? p->node : node);
    if (!text) return ERR_MEMORY;
    struct rendezvous r = {.store = s->store,
                           .what = "rank",
                           .round = p->round,
                           .index = p->rank,
                           .count = p->size,
                           .who = who,
                           .facts = p->facts,
                           .nfacts = p->nfacts,
                           .text = text,
                           .timeout = p->timeout,
                           .keeps = p->serve};
    TRY(rendezvous_meet(&r, s->pool, &members));
    return roster_make(s, members, p->size);
}

/* ---- the board of this host's ranks ---- */

static enum error board_make(struct station *s, const char *key, int locals) {
    char text[32];
    TRY(meeting_create_shared(locals, &s->meeting));
    snprintf(text, sizeof text, "%d %d", (int)getpid(), meeting_fd(s->meeting));
    return store_set(s->store, key, text, strlen(text));
}

static enum error board_join(struct station *s, const char *key, int locals) {
    char *text;
    size_t n;
    int pid, fd;
    TRY(store_get(s->store, key, 0, s->pool, &text, &n));
    if (sscanf(text, "%9d %9d", &pid, &fd) != 2) return FAIL(ERR_DATA, "the store's '%s' is '%.32s'", key, text);
    return meeting_join_of(pid, fd, locals, &s->meeting);
}

static enum error board_open(struct station *s, const struct station_params *p) {
    const struct seat_of *me = &s->roster.of[p->rank];
    int locals = 0;
    for (int r = 0; r < p->size; r++) locals += s->roster.of[r].host == me->host;
    if (p->meeting_fd >= 0) return meeting_join(p->meeting_fd, locals, &s->meeting);
    char *key = pool_printf(s->pool, "%s/board/%d", p->round, me->host);
    if (!key) return ERR_MEMORY;
    return me->local == 0 ? board_make(s, key, locals) : board_join(s, key, locals);
}

/* ---- the whole ---- */

const char *station_variable(const char *name) {
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

enum error station_told(struct pool *pool, struct station_params *out) {
    out->master = station_variable(STORE_VARIABLE);
    out->round = station_variable(ROUND_VARIABLE);
    out->node = station_variable(NODE_VARIABLE);
    return token_inherited(pool, &out->token);
}

static const char *fitting_link(const struct roster *r) {
    if (r->hosts == 1) return "shm";
    return r->hosts == r->size ? "tcp" : "hosts";
}

static enum error station_choose_link(struct station *s, const char *name) {
    s->group.link = strcmp(name, "auto") ? name : fitting_link(&s->roster);
    const struct link_ops *ops = link_find(s->group.link);
    if (!ops) return FAIL(ERR_CONFIG, "no link '%s'", s->group.link);
    if (!link_is_far(ops) && s->roster.hosts > 1)
        return FAIL(ERR_CONFIG, "link %s stays on one host, but the ranks are on %d\nuse comm.link: auto",
                    s->group.link, s->roster.hosts);
    return ERR_NONE;
}

static enum error station_open_meeting(struct station *s, const struct station_params *p) {
    const struct store_params sp = {
        .url = p->master, .serve = p->serve, .token = p->token, .run = p->run, .timeout = p->timeout};
    const struct link_ops *asked = link_find(p->link); /* NULL: it depends on where the ranks are */
    TRY(store_open(&sp, &s->store));
    if (!asked || link_is_far(asked)) TRY(station_open_port(s, p)); /* a port has nng's threads */
    TRY(station_meet(s, p));
    TRY(station_choose_link(s, p->link));
    s->group.roster = &s->roster;
    s->group.port = s->port;
    const struct link_ops *ops = link_find(s->group.link);
    if (!link_is_far(ops) || ops->sync_near) TRY(board_open(s, p));
    return ERR_NONE;
}

enum error station_open(const struct station_params *p, struct station **out) {
    struct pool *pool;
    enum error err;
    TRY(pool_create(&pool));
    struct station *s = pool_alloc(pool, sizeof *s);
    if (!s) {
        pool_free(pool);
        return ERR_MEMORY;
    }
    *s = (struct station){.pool = pool};
    s->group = (struct group_params){.rank = p->rank, .size = p->size, .link = p->link, .id = 1};
    if (p->master)
        err = station_open_meeting(s, p);
    else
        err = meeting_join(p->meeting_fd, p->locals, &s->meeting);
    s->group.meeting = s->meeting;
    if (err)
        station_close(s);
    else
        *out = s;
    return err;
}

void station_close(struct station *s) {
    if (!s) return;
    meeting_free(s->meeting);
    port_close(s->port);
    store_close(s->store);
    pool_free(s->pool);
}

const struct group_params *station_group(const struct station *s) {
    return &s->group;
}

struct store *station_store(const struct station *s) {
    return s->store;
}
