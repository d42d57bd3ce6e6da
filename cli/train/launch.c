/* engine launch: starts a program of your own N times, as ranks of one group (engine/engine.h), and
 * watches them as 'engine run' watches its own. On several hosts each starts its own; the nodes meet
 * first, in a store that node 0 keeps, and then the ranks meet there. */
#include "cli/line/cli.h"

#include "engine/base/limits.h"
#include "engine/base/version.h"
#include "transport/launch/launch.h"
#include "transport/launch/nodes.h"
#include "transport/launch/station.h"
#include "transport/launch/token.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct launch_options {
    int64_t size, nodes, node, port, timeout;
    const char *master;
    struct option_list program; /* and its arguments */
};
#define OPTIONS_STRUCT struct launch_options

/* ---- where programs meet that know MASTER_ADDR and MASTER_PORT ---- */

struct rank_master {
    char address[256], port[16];
};

/* A port of the loopback that nobody has; 0: there is none. */
static int free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found =
        fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && getsockname(fd, (struct sockaddr *)&at, &size) == 0;
    if (fd >= 0) close(fd);
    return found ? ntohs(at.sin_port) : 0;
}

/* Rank 0 will listen there. Several hosts know only the address of the nodes' store: it is the next port. */
static enum error find_master(const char *nodes, struct rank_master *out) {
    const char *host = nodes ? nodes : "127.0.0.1", *colon = nodes ? strrchr(nodes, ':') : NULL;
    int port = colon ? atoi(colon + 1) + 1 : free_port(), six = *host == '[';
    int n = (colon ? (int)(colon - host) : (int)strlen(host)) - 2 * six;
    if (port < 1 || port > 65535)
        return FAIL(ERR_CONFIG, "no port is left for MASTER_PORT\nuse a --master-port below 65535");
    snprintf(out->address, sizeof out->address, "%.*s", n, host + six);
    snprintf(out->port, sizeof out->port, "%d", port);
    return ERR_NONE;
}

/* ---- starting ---- */

static int exit_code(enum error err, const struct launch_result *r) {
    if (r->first < 0) return err ? cli_fail(err) : r->exit_code;
    if (err) return cli_fail(err);
    fprintf(stderr, "error: rank %d ended with code %d; the others were ended %.2f s later\n", r->first, r->exit_code,
            r->seconds);
    return r->exit_code;
}

static enum error start_ranks(const struct launch_options *o, const struct nodes_round *round,
                              const struct nodes_params *np, struct launch_result *result) {
    char node[24];
    struct rank_master master;
    TRY(find_master(np->master, &master));
    snprintf(node, sizeof node, "node %lld", (long long)o->node);
    const char *variables[] = {
        STORE_VARIABLE, round->store,  ROUND_VARIABLE, round->name,   TOKEN_VARIABLE, np->token, NODE_VARIABLE,
        node,           "MASTER_ADDR", master.address, "MASTER_PORT", master.port,    NULL};
    struct launch_params p = {.size = (int)o->size,
                              .first = round->first,
                              .world = round->world,
                              .variables = variables,
                              .program = o->program.of[0],
                              .argv = o->program.of,
                              .log = stdout,
                              .grace = 5};
    TRY(meeting_create_shared(p.size, &p.meeting));
    enum error err = launch_processes(&p, result);
    meeting_free(p.meeting);
    return err;
}

static enum error launch_nodes(const struct launch_options *o, struct pool *pool, struct launch_result *result) {
    struct nodes *nodes;
    struct nodes_round round;
    const struct fact facts[] = {{"version", ENGINE_VERSION},
                                 {"number of nodes", pool_printf(pool, "%d", (int)o->nodes)}};
    struct nodes_params p = {.index = (int)o->node,
                             .nodes_max = (int)o->nodes,
                             .locals = (int)o->size,
                             .facts = facts,
                             .nfacts = 2,
                             .timeout = (double)o->timeout};
    if (!facts[1].value) return ERR_MEMORY;
    if (o->nodes > 1) TRY(nodes_master(o->master, o->port, pool, &p.master));
    TRY(nodes_token("auto", p.nodes_max, pool, &p.token));
    TRY(nodes_open(&p, &nodes));
    enum error err = nodes_meet(nodes, NULL, &round);
    if (err == ERR_MISMATCH) err = ERR_CONFIG; /* of how they were started */
    if (!err) err = start_ranks(o, &round, &p, result);
    nodes_close(nodes);
    return err;
}

static int run(const struct cli *cli) {
    const struct launch_options *o = cli->options;
    struct launch_result result = {.first = -1};
    if (o->node >= o->nodes)
        return cli_usage(cli, "node %lld of %lld: they are numbered from 0", (long long)o->node, (long long)o->nodes);
    return exit_code(launch_nodes(o, cli->pool, &result), &result);
}

static const struct option options[] = {
    {"-n", "N", "number of processes on this host", CONFIG_INT, AT(size), 1, RANKS_MAX,
     .wants = "a number of processes", .also = "--nproc-per-node", .missing = "how many processes? (-n N)"},
    {"--nnodes", "N",
     "hosts that run 'engine launch' together, with the same secret in ENGINE_TOKEN; each starts "
     "its own processes",
     CONFIG_INT, AT(nodes), 1, RANKS_MAX, .wants = "a number of hosts"},
    {"--node-rank", "K", "number of this host, from 0", CONFIG_INT, AT(node), 0, RANKS_MAX - 1,
     .wants = "the number of this host,"},
    {"--master-addr", "A", "host of node 0: a name or an address, :PORT may follow", CONFIG_STRING, AT(master)},
    {"--master-port", "P", "29500", CONFIG_INT, AT(port), 1, 65535, .wants = "a port"},
    {"--join-timeout", "S", "seconds for which the hosts wait for each other; default: 60", CONFIG_INT, AT(timeout), 1,
     1000000, .wants = "a number of seconds"},
    {"PROGRAM [ARGUMENT]...", NULL, NULL, .at = AT(program), .many = OPTION_REST, .missing = "which program?"},
    {0}};

const struct command command_launch = {
    .name = "launch",
    .summary = "starts a program of your own as N ranks (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ... are set)",
    OPTIONS(options),
    .standard = &(const struct launch_options){.nodes = 1, .port = 29500, .timeout = 60, .master = "127.0.0.1"},
    .run = run,
};
