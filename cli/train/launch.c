/* engine launch: starts a program of your own N times, as ranks of one group (engine/engine.h), and
 * watches them as 'engine run' watches its own. On several hosts each starts its own; the nodes meet
 * first, in a store that node 0 keeps, and then the ranks meet there. It takes torchrun's words and
 * sets torchrun's variables, so that a line or a script made for torchrun works here. */
#include "cli/line/cli.h"

#include "engine/base/file.h"
#include "engine/base/limits.h"
#include "engine/base/text.h"
#include "engine/base/version.h"
#include "engine/device/device.h"
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

struct launch_nodes {
    int64_t min, max;
};
struct launch_options {
    int64_t size; /* or one of the words below */
    int64_t node, port, timeout, restarts;
    struct launch_nodes nodes;
    bool standalone, module, no_python;
    int redirects, tee; /* enum launch_output */
    const char *master, *logs;
    struct option_list program; /* and its arguments */
};
#define OPTIONS_STRUCT struct launch_options

enum launch_output { OUTPUT_HERE, OUTPUT_LOGGED }; /* 0 and 3 of torchrun's -r and -t */
enum { SIZE_AUTO = -1, SIZE_GPU = -2, SIZE_CPU = -3, PORT_STANDARD = 29500 };

/* ---- values ---- */

static enum error launch_read_size(const char *value, void *out) {
    static const char *const words[] = {"auto", "gpu", "cpu"};
    int64_t *size = out;
    for (int i = 0; i < 3; i++)
        if (!strcmp(value, words[i])) return *size = SIZE_AUTO - i, ERR_NONE;
    return text_int(value, size) && *size >= 1 && *size <= RANKS_MOST ? ERR_NONE : ERR_USAGE;
}

/* "2", or "2:4" */
static enum error read_nodes(const char *value, void *out) {
    struct launch_nodes *n = out;
    char min[24];
    const char *colon = strchr(value, ':');
    snprintf(min, sizeof min, "%.*s", (int)strcspn(value, ":"), value);
    if (!text_int(min, &n->min) || !text_int(colon ? colon + 1 : min, &n->max)) return ERR_USAGE;
    return n->min >= 1 && n->min <= n->max && n->max <= RANKS_MOST ? ERR_NONE : ERR_USAGE;
}

/* ---- what a rank runs, and how many there are ---- */

/* auto: one for each GPU, or where there is none, for each core. */
static enum error launch_count_processes(int64_t size, int *out) {
    const struct device_ops *gpu = device_find("cuda");
    enum error err = ERR_DEVICE;
    *out = size > 0 ? (int)size : device_host_cores();
    if (size == SIZE_AUTO || size == SIZE_GPU)
        err = gpu && gpu->units ? gpu->units(out) : FAIL(ERR_DEVICE, "this build has no GPUs");
    if (err && size == SIZE_GPU) return err;
    if (err && size == SIZE_AUTO) *out = device_host_cores();
    return *out <= RANKS_MOST ? ERR_NONE
                              : FAIL(ERR_USAGE, "%d processes, and at most %d are possible", *out, RANKS_MOST);
}

/* A Python file runs by Python, unless it is a program itself. */
static bool launch_needs_python(const struct launch_options *o) {
    const char *program = o->program.of[0], *end = strrchr(program, '.');
    return o->module || (!o->no_python && end && !strcmp(end, ".py") && access(program, X_OK) != 0);
}

/* Python writes each line at once (-u), since its output is a pipe. */
static enum error program_words(const struct launch_options *o, struct pool *pool, const char *const **out) {
    const char **words = pool_alloc(pool, ((size_t)o->program.count + 4) * sizeof *words),
               *python = getenv("PYTHON_EXEC");
    int n = 0;
    if (!words) return ERR_MEMORY;
    if (launch_needs_python(o)) words[n++] = python && *python ? python : "python3", words[n++] = "-u";
    if (o->module) words[n++] = "-m";
    memcpy(words + n, o->program.of, ((size_t)o->program.count + 1) * sizeof *words);
    *out = words;
    return ERR_NONE;
}

/* ---- where programs meet that know MASTER_ADDR and MASTER_PORT ---- */

struct rank_master {
    char address[256], port[16];
};

/* A port of the loopback that nobody has; 0: there is none. */
static int launch_free_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool found =
        fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 && getsockname(fd, (struct sockaddr *)&at, &size) == 0;
    if (fd >= 0) close(fd);
    return found ? ntohs(at.sin_port) : 0;
}

static enum error master_of(const struct launch_options *o, struct pool *pool, const char **out) {
    return nodes_master(o->master ? o->master : "127.0.0.1", o->port ? o->port : PORT_STANDARD, pool, out);
}

/* Rank 0 will listen there. Where the nodes' store has the address it is the next port. */
static enum error find_master(const struct launch_options *o, const char *nodes, struct pool *pool,
                              struct rank_master *out) {
    const char *at = nodes;
    if (!nodes && (o->master || o->port)) TRY(master_of(o, pool, &at));
    const char *host = at ? at : "127.0.0.1", *colon = at ? strrchr(at, ':') : NULL;
    int port = colon ? atoi(colon + 1) + (nodes != NULL) : launch_free_port(), six = *host == '[';
    int n = (colon ? (int)(colon - host) : (int)strlen(host)) - 2 * six;
    if (port < 1 || port > 65535)
        return FAIL(ERR_CONFIG, "no port is left for MASTER_PORT\nuse a --master-port below 65535");
    snprintf(out->address, sizeof out->address, "%.*s", n, host + six);
    snprintf(out->port, sizeof out->port, "%d", port);
    return ERR_NONE;
}

/* ---- starting ---- */

static int launch_exit_code(enum error err, const struct launch_result *r) {
    if (r->first < 0) return err ? cli_fail(err) : r->exit_code;
    if (err) return cli_fail(err);
    char how[64] = "hung while the ranks on other hosts had ended";
    if (r->first != r->stuck) snprintf(how, sizeof how, "ended with code %d", r->exit_code);
    fprintf(stderr, "error: rank %d %s; the others were ended %.2f s later\n", r->first, how, r->seconds);
    return r->exit_code;
}

struct launch {
    const struct launch_options *o;
    struct pool *pool;
    struct nodes_params nodes;
    const char *const *program;
    int restarts;           /* so far */
    struct nodes *together; /* of all hosts */
};

static bool launch_others_have_ended(void *user) {
    const struct launch *l = user;
    return nodes_are_over(l->together);
}

static enum error start_ranks(struct launch *l, const struct nodes_round *round, struct launch_result *result) {
    const struct launch_options *o = l->o;
    const char *node = pool_printf(l->pool, "%d", l->nodes.index), *named = pool_printf(l->pool, "node %s", node),
               *nodes = pool_printf(l->pool, "%d", round->nodes), *done = pool_printf(l->pool, "%d", l->restarts),
               *most = pool_printf(l->pool, "%d", (int)o->restarts);
    struct rank_master master;
    if (!node || !named || !nodes || !done || !most) return ERR_MEMORY;
    TRY(find_master(o, l->nodes.master, l->pool, &master));
    // clang-format off
    const char *variables[] = {
        STORE_VARIABLE, round->store,            ROUND_VARIABLE, round->name,
        TOKEN_VARIABLE, l->nodes.token,          NODE_VARIABLE, named,
        "MASTER_ADDR", master.address,           "MASTER_PORT", master.port,
        "GROUP_RANK", node,                      "GROUP_WORLD_SIZE", nodes,
        "TORCHELASTIC_RESTART_COUNT", done,      "TORCHELASTIC_MAX_RESTARTS", most,
        NULL};
    // clang-format on
    struct launch_params p = {.size = round->locals,
                              .first = round->first,
                              .world = round->world,
                              .variables = variables,
                              .program = l->program[0],
                              .argv = l->program,
                              .log_folder = o->logs,
                              .log = o->redirects && !o->tee ? NULL : stdout,
                              .grace = 5,
                              .over = launch_others_have_ended,
                              .user = l};
    TRY(meeting_create_shared(p.size, &p.meeting));
    enum error err = launch_processes(&p, result);
    meeting_free(p.meeting);
    return err;
}

/* Whatever the rank that was lost has ended with: what it means is the program's own. */
static bool launch_starts_again(struct launch *l, const struct launch_result *r) {
    if (r->first < 0 || r->asked || l->restarts == l->o->restarts) return false;
    char how[64];
    snprintf(how, sizeof how, r->signal ? "was killed by signal %d" : "ended with code %d",
             r->signal ? r->signal : r->exit_code);
    fprintf(stderr, "warning: rank %d %s: all ranks start again, for the %d. time of %d\n", r->first, how,
            ++l->restarts, (int)l->o->restarts);
    return true;
}

static enum error launch_nodes(struct launch *l, struct launch_result *result) {
    struct nodes_round round;
    enum error err;
    TRY(nodes_open(&l->nodes, &l->together));
    do {
        *result = (struct launch_result){.first = -1};
        err = nodes_meet(l->together, NULL, &round);
        if (err == ERR_MISMATCH) err = ERR_CONFIG; /* of how they were started */
        if (!err) err = start_ranks(l, &round, result);
        if (result->first >= 0) nodes_tell_failure(l->together);
    } while (launch_starts_again(l, result));
    nodes_close(l->together);
    return err;
}

static enum error launch_open(const struct launch_options *o, struct pool *pool, struct launch_result *result) {
    const struct fact facts[] = {{"version", ENGINE_VERSION},
                                 {"number of nodes", pool_printf(pool, "%d", (int)o->nodes.max)}};
    struct launch l = {.o = o,
                       .pool = pool,
                       .nodes = {.index = (int)o->node,
                                 .nodes_min = o->nodes.min < o->nodes.max ? (int)o->nodes.min : 0,
                                 .nodes_max = (int)o->nodes.max,
                                 .facts = facts,
                                 .nfacts = 2,
                                 .again = o->restarts > 0,
                                 .timeout = (double)o->timeout,
                                 .patience = 10}};
    if (!facts[1].value) return ERR_MEMORY;
    TRY(launch_count_processes(o->size, &l.nodes.locals));
    TRY(program_words(o, pool, &l.program));
    if (o->logs) TRY(file_make_folders(o->logs));
    if (l.nodes.nodes_max > 1) TRY(master_of(o, pool, &l.nodes.master));
    TRY(nodes_token("auto", l.nodes.nodes_max, pool, &l.nodes.token));
    return launch_nodes(&l, result);
}

static int launch_run(const struct cli *cli) {
    const struct launch_options *o = cli->options;
    struct launch_result result = {.first = -1};
    if (o->standalone && (o->nodes.max > 1 || o->node || o->master || o->port))
        return cli_usage(cli, "--standalone is this host alone, without --nnodes, --node-rank, --master-addr and "
                              "--master-port");
    if (o->node >= o->nodes.max)
        return cli_usage(cli, "node %lld of %lld: they are numbered from 0", (long long)o->node,
                         (long long)o->nodes.max);
    if (o->module && o->no_python) return cli_usage(cli, "-m runs a module by Python, --no-python runs none");
    if ((o->redirects || o->tee) && !o->logs) return cli_usage(cli, "-r and -t write to a folder: --log-dir DIR");
    enum error err = launch_open(o, cli->pool, &result);
    return launch_exit_code(err, &result);
}

#define OUTPUTS(member) CONFIG_ENUM, AT(member), .choices = "0|3"
static const struct option options[] = {
    {"-n", "N|auto",
     "number of processes on this host; auto: one for each GPU, or else for each core (gpu, cpu: of these)", CONFIG_INT,
     AT(size), .read = launch_read_size, .wants = "a number of processes from 1 on, auto, gpu or cpu",
     .also = "--nproc-per-node", .missing = "how many processes? (-n N)", .variable = "PET_NPROC_PER_NODE"},
    {"--join-timeout", "S", "seconds for which the hosts wait for each other; default: 60", CONFIG_INT, AT(timeout), 1,
     1000000, .wants = "a number of seconds"},
    {"--nnodes", "N|MIN:MAX",
     "hosts that run 'engine launch' together, with the same secret in ENGINE_TOKEN; each starts "
     "its own processes",
     CONFIG_INT, AT(nodes), .read = read_nodes, .wants = "a number of hosts, as in 2, or 2:4 from MIN to MAX",
     .variable = "PET_NNODES",
     .head = "torchrun's words, with its meaning (and -n; each with a value may be in the environment, as PET_NNODES)"},
    {"--node-rank", "K", "number of this host, from 0", CONFIG_INT, AT(node), 0, RANKS_MOST - 1,
     .wants = "the number of this host,", .variable = "PET_NODE_RANK"},
    {"--master-addr", "A", "host of node 0: a name or an address, :PORT may follow", CONFIG_STRING, AT(master),
     .variable = "PET_MASTER_ADDR"},
    {"--rdzv-endpoint", "A:P", "the same as --master-addr", CONFIG_STRING, AT(master), .variable = "PET_RDZV_ENDPOINT"},
    {"--master-port", "P", "29500", CONFIG_INT, AT(port), 1, 65535, .wants = "a port", .variable = "PET_MASTER_PORT"},
    {"--standalone", NULL, "this host alone; the ranks meet at a free port, as they do without --nnodes", CONFIG_BOOL,
     AT(standalone)},
    {"--max-restarts", "N", "how often all ranks start again when one has failed; default: 0", CONFIG_INT, AT(restarts),
     0, 1000000, .wants = "a number of restarts", .variable = "PET_MAX_RESTARTS"},
    {"--log-dir", "DIR", "what rank N writes is also appended to DIR/rankN.log", CONFIG_STRING, AT(logs),
     .variable = "PET_LOG_DIR"},
    {"--redirects", NULL, "3: to these files alone; 0: here, too", OUTPUTS(redirects), .also = "-r"},
    {"--tee", NULL, "3: to these files and here, whatever --redirects says", OUTPUTS(tee), .also = "-t"},
    {"--module", NULL, "PROGRAM is the name of a Python module, as in python -m", CONFIG_BOOL, AT(module),
     .also = "-m"},
    {"--no-python", NULL, "PROGRAM is started as it is; otherwise Python runs a .py file that is not executable",
     CONFIG_BOOL, AT(no_python)},
    {"PROGRAM [ARGUMENT]...", NULL, NULL, .at = AT(program), .many = OPTION_REST, .missing = "which program?"},
    {0}};

const struct command command_launch = {
    .name = "launch",
    .also = "torchrun",
    .summary = "starts a program of your own as N ranks (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ... are set)",
    OPTIONS(options),
    .standard = &(const struct launch_options){.nodes = {1, 1}, .timeout = 60},
    .run = launch_run,
};
