/* engine launch: starts a program of your own N times, as ranks of one group (engine/engine.h), and
 * watches them as 'engine run' watches its own. On several hosts each starts its own; the nodes meet
 * first, in a store that node 0 keeps, and then the ranks meet there. */
#include "cli/cli.h"

#include "engine/base/limits.h"
#include "engine/base/text.h"
#include "engine/base/version.h"
#include "transport/launch/launch.h"
#include "transport/launch/nodes.h"
#include "transport/launch/station.h"
#include "transport/launch/token.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_launch;

struct options {
    int64_t size, nodes, node, port, timeout;
    const char *master;
    int program; /* its place in argv */
};

/* ---- arguments ---- */

static const struct option {
    const char *name, *what;
    size_t at; /* in struct options: of an int64_t, or where there is no 'what', of a text */
    int64_t min, max;
} known[] = {
    {"-n", "a number of processes", offsetof(struct options, size), 1, RANKS_MAX},
    {"--nproc-per-node", "a number of processes", offsetof(struct options, size), 1, RANKS_MAX},
    {"--nnodes", "a number of hosts", offsetof(struct options, nodes), 1, RANKS_MAX},
    {"--node-rank", "the number of this host,", offsetof(struct options, node), 0, RANKS_MAX - 1},
    {"--master-addr", NULL, offsetof(struct options, master), 0, 0},
    {"--master-port", "a port", offsetof(struct options, port), 1, 65535},
    {"--join-timeout", "a number of seconds", offsetof(struct options, timeout), 1, 1000000},
};

static int take(const struct option *o, const char *value, struct options *out) {
    char *at = (char *)out + o->at;
    int64_t n;
    if (!o->what && value) {
        memcpy(at, &value, sizeof value);
        return 0;
    }
    if (!o->what) return cli_usage(&command_launch, "%s needs a value", o->name);
    if (!value || !text_int(value, &n) || n < o->min || n > o->max)
        return cli_usage(&command_launch, "%s needs %s from %lld to %lld", o->name, o->what,
                         (long long)o->min, (long long)o->max);
    memcpy(at, &n, sizeof n);
    return 0;
}

static int parse(int argc, char **argv, struct options *o) {
    int at = 1;
    for (bool joined; at < argc && argv[at][0] == '-'; at += joined ? 1 : 2) {
        const struct option *found = NULL;
        const char *value =
            cli_option_value(argv[at], at + 1 < argc ? argv[at + 1] : NULL, &joined);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            if (cli_same_option(argv[at], known[i].name)) found = &known[i];
        if (!found) return cli_usage(&command_launch, "unknown option '%s'", argv[at]);
        int code = take(found, value, o);
        if (code) return code;
    }
    o->program = at;
    if (!o->size) return cli_usage(&command_launch, "how many processes? (-n N)");
    if (at >= argc) return cli_usage(&command_launch, "which program?");
    if (o->node >= o->nodes)
        return cli_usage(&command_launch, "node %lld of %lld: they are numbered from 0",
                         (long long)o->node, (long long)o->nodes);
    return 0;
}

/* ---- starting ---- */

static int exit_code(enum error err, const struct launch_result *r) {
    if (r->first < 0) return err ? cli_fail(err) : r->exit_code;
    if (err) return cli_fail(err);
    fprintf(stderr, "error: rank %d ended with code %d; the others were ended %.2f s later\n",
            r->first, r->exit_code, r->seconds);
    return r->exit_code;
}

static enum error start_ranks(const struct options *o, const struct nodes_round *round,
                              const char *token, char **argv, struct launch_result *result) {
    char node[24];
    snprintf(node, sizeof node, "node %lld", (long long)o->node);
    const char *variables[] = {STORE_VARIABLE, round->store,   ROUND_VARIABLE,
                               round->name,    TOKEN_VARIABLE, token,
                               NODE_VARIABLE,  node,           NULL};
    struct launch_params p = {.size = (int)o->size,
                              .first = round->first,
                              .world = round->world,
                              .variables = variables,
                              .program = argv[o->program],
                              .argv = (const char *const *)(argv + o->program),
                              .log = stdout,
                              .grace = 5};
    TRY(meeting_create_shared(p.size, &p.meeting));
    enum error err = launch_processes(&p, result);
    meeting_free(p.meeting);
    return err;
}

static enum error launch(const struct options *o, char **argv, struct pool *pool,
                         struct launch_result *result) {
    struct nodes *nodes;
    struct nodes_round round;
    const struct fact facts[] = {{"version", ENGINE_VERSION},
                                 {"number of nodes", pool_printf(pool, "%d", (int)o->nodes)}};
    struct nodes_params p = {.index = (int)o->node,
                             .count = (int)o->nodes,
                             .locals = (int)o->size,
                             .facts = facts,
                             .nfacts = 2,
                             .timeout = (double)o->timeout};
    if (!facts[1].value) return ERR_MEMORY;
    if (o->nodes > 1) TRY(nodes_master(o->master, o->port, pool, &p.master));
    TRY(nodes_token("auto", p.count, pool, &p.token));
    TRY(nodes_open(&p, &nodes));
    enum error err = nodes_meet(nodes, &round);
    if (err == ERR_MISMATCH) err = ERR_CONFIG; /* of how they were started */
    if (!err) err = start_ranks(o, &round, p.token, argv, result);
    nodes_close(nodes);
    return err;
}

static int launch_run(int argc, char **argv) {
    struct options o = {.nodes = 1, .port = 29500, .timeout = 60, .master = "127.0.0.1"};
    struct launch_result result = {.first = -1};
    struct pool *pool;
    int code = parse(argc, argv, &o);
    if (code) return code;
    enum error err = pool_create(&pool);
    if (err) return cli_fail(err);
    code = exit_code(launch(&o, argv, pool, &result), &result);
    pool_free(pool);
    return code;
}

const struct command command_launch = {
    .name = "launch",
    .arguments = "-n N [OPTION]... PROGRAM [ARGUMENT]...",
    .summary = "starts a program of your own as N ranks (RANK, WORLD_SIZE, LOCAL_RANK are set)",
    .help = "  -n N              processes of this host (also --nproc-per-node)\n"
            "  --nnodes N        hosts that run 'engine launch' together, with the same secret in\n"
            "                    ENGINE_TOKEN; each starts its own processes\n"
            "  --node-rank K     which of them this is, from 0\n"
            "  --master-addr A   host of node 0: a name or an address, :PORT may follow\n"
            "  --master-port P   29500\n"
            "  --join-timeout S  seconds that the hosts wait for each other: 60\n",
    .run = launch_run,
};
