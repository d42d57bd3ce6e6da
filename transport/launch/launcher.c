#include "transport/launch/launcher.h"

#include "engine/base/process.h"
#include "engine/base/text.h"
#include "transport/launch/token.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef const char *(*lookup)(const char *name);

/* Where ranks meet if MASTER_ADDR is not set: nowhere, in a file on one host, at the first node of Slurm's list. */
enum meets { AT_MASTER, AT_FILE, AT_FIRST_NODE };
static const struct launcher_kind {
    const char *name, *sign; /* sign: must be set, too; NULL: rank and size suffice */
    const char *rank, *size, *local, *locals, *job;
    enum meets meets;
} kinds[] = {
#define CLASSIC "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"
#define OMPI "OMPI_COMM_WORLD_"
    {"engine launch", STORE_VARIABLE, CLASSIC, NULL, AT_MASTER},
    {"torchrun", "TORCHELASTIC_RUN_ID", CLASSIC, "TORCHELASTIC_RUN_ID", AT_MASTER},
    {"env://", NULL, CLASSIC, NULL, AT_MASTER},
    {"Indexed Job", NULL, "JOB_COMPLETION_INDEX", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL, AT_MASTER},
    {"Open MPI", NULL, OMPI "RANK", OMPI "SIZE", OMPI "LOCAL_RANK", OMPI "LOCAL_SIZE", "PMIX_NAMESPACE", AT_FILE},
    {"PMI", "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMI_JOBID", AT_FILE},
    /* srun --mpi=pmi2 sets PMI_RANK as well, without the ranks of a host */
    {"Slurm", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, NULL, AT_FIRST_NODE},
    {"PMI", NULL, "PMI_RANK", "PMI_SIZE", NULL, NULL, "PMI_JOBID", AT_FILE},
};
enum { KINDS = sizeof kinds / sizeof *kinds, ENV = 2, OTHERS = 4 };

static const char *variable_value(lookup get, const char *name) {
    const char *text = !name ? NULL : get ? get(name) : getenv(name);
    return text && *text ? text : NULL;
}

static void variable_note(struct launcher *l, const char *name) {
    size_t n = strlen(l->variables);
    snprintf(l->variables + n, sizeof l->variables - n, "%s%s", n ? ", " : "", name);
}

/* A number of the environment; absent: 'out' stays. */
static enum error number_read(lookup get, const char *name, struct launcher *l, int *out) {
    const char *text = variable_value(get, name);
    int64_t n;
    if (!text) return ERR_NONE;
    if (!text_int(text, &n) || n < 0 || n > 1000000)
        return FAIL(ERR_USAGE, "%s='%.32s' is not a number of ranks\nunset it, or set run.init: none", name, text);
    *out = (int)n;
    variable_note(l, name);
    return ERR_NONE;
}

/* ---- where they meet ---- */

/* torchrun keeps a store of its own at the master's port and lives as long as the ranks: ours is at the next. */
static enum error master_read(lookup get, struct launcher *l) {
    const char *address = variable_value(get, "MASTER_ADDR"), *agent;
    int port = 0;
    if (!address) return ERR_NONE;
    variable_note(l, "MASTER_ADDR");
    TRY(number_read(get, "MASTER_PORT", l, &port));
    agent = variable_value(get, "TORCHELASTIC_USE_AGENT_STORE");
    if (agent && !strcmp(agent, "True") && port) port++;
    if (port < 1 || port > 65535)
        return FAIL(ERR_USAGE, "MASTER_ADDR is set, but MASTER_PORT %s\nset it, or set run.init: none",
                    variable_value(get, "MASTER_PORT") ? "is no port from 1 to 65535" : "is not");
    bool six = strchr(address, ':') && *address != '[';
    int n = snprintf(l->master, sizeof l->master, six ? "[%s]:%d" : "%s:%d", address, port);
    return n < (int)sizeof l->master ? ERR_NONE : FAIL(ERR_USAGE, "MASTER_ADDR is too long");
}

/* The first name of "node[01-04,07],other" or of "rack[1-2]n[01-20]": "node01", "rack1n01". */
static bool nodelist_first(const char *list, char *out, size_t size) {
    size_t n = 0;
    while (*list && *list != ',') {
        const char *from = list + (*list == '['), *end = strchr(list, ']');
        size_t length = from > list ? strspn(from, "0123456789") : 1;
        if (from == list && !isalnum((unsigned char)*list) && !strchr("-._", *list)) return false;
        if (!length || n + length >= size || (from > list && !end)) return false;
        memcpy(out + n, from, length);
        n += length;
        list = from > list ? end + 1 : list + 1;
    }
    out[n] = '\0';
    return n > 0;
}

/* How many tasks node 'node' has, of "2(x3),1". 0: cannot be read. */
static int tasks_of_node(const char *text, int node) {
    while (*text) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text || tasks < 1 || tasks > 1000000) return 0;
        if (!strncmp(end, "(x", 2)) times = strtol(end + 2, &end, 10), end += *end == ')';
        if (times < 1) return 0;
        if (node < times) return (int)tasks;
        node -= (int)times;
        if (*end && *end != ',') return 0;
        text = end + (*end == ',');
    }
    return 0;
}

/* A job's or a step's number; absent: 0. */
static enum error id_read(lookup get, const char *name, int64_t *out) {
    const char *text = variable_value(get, name);
    *out = 0;
    if (!text || (text_int(text, out) && *out >= 0 && *out <= UINT32_MAX)) return ERR_NONE;
    return FAIL(ERR_USAGE, "%s='%.32s' is not a number\nunset it, or set run.init: none", name, text);
}

/* Steps of one cluster, and the tasks of a job array, each of which is a job, meet at different ports, as far as 10,000
 * ports go. */
static enum error slurm_read(lookup get, struct launcher *l) {
    static const char nodelist[] = "SLURM_STEP_NODELIST", each[] = "SLURM_STEP_TASKS_PER_NODE";
    const char *nodes = variable_value(get, nodelist), *tasks = variable_value(get, each);
    int node = 0, count = 0;
    int64_t job, step;
    char host[200];
    TRY(number_read(get, "SLURM_NODEID", l, &node));
    TRY(number_read(get, "SLURM_STEP_NUM_NODES", l, &count));
    TRY(id_read(get, "SLURM_JOB_ID", &job));
    TRY(id_read(get, "SLURM_STEP_ID", &step));
    if (tasks) l->locals = tasks_of_node(tasks, node), variable_note(l, each);
    if (tasks && !l->locals)
        return FAIL(ERR_USAGE, "%s='%.64s' does not say how many tasks node %d has\nunset it, or set run.init: none",
                    each, tasks, node);
    snprintf(l->job, sizeof l->job, "slurm-%lld.%lld", (long long)job, (long long)step);
    if (*l->master) return ERR_NONE;
    if (count == 1) {
        l->locals = l->size;
        return ERR_NONE;
    }
    if (!nodes || !nodelist_first(nodes, host, sizeof host))
        return FAIL(ERR_USAGE, "%s='%.64s' names no first node\nset MASTER_ADDR and MASTER_PORT", nodelist,
                    nodes ? nodes : "");
    variable_note(l, nodelist);
    snprintf(l->master, sizeof l->master, "%s:%d", host, 20000 + (int)((job * 16 + step) % 10000));
    return ERR_NONE;
}

/* ---- who ---- */

static bool kind_is_there(lookup get, const struct launcher_kind *k) {
    const char *size = variable_value(get, k->size);
    if (!size || !variable_value(get, k->rank) || (k->sign && !variable_value(get, k->sign))) return false;
    return k->meets != AT_FIRST_NODE || strcmp(size, "1"); /* such a step is a shell or a batch script */
}

static enum error ranks_check(const struct launcher *l, const struct launcher_kind *k) {
    if (l->size < 1) return FAIL(ERR_USAGE, "%s=%d: no ranks\nunset it, or set run.init: none", k->size, l->size);
    if (l->rank >= l->size)
        return FAIL(ERR_USAGE, "%s=%d, but %s=%d: ranks are from 0 to %d\nunset them, or set run.init: none", k->rank,
                    l->rank, k->size, l->size, l->size - 1);
    if (l->locals > 0 && (l->local >= l->locals || l->locals > l->size))
        return FAIL(ERR_USAGE, "%s: rank %d of %d on this host, of %d in all", l->name, l->local, l->locals, l->size);
    return ERR_NONE;
}

/* RANK may come from a script that wraps another launcher; then both must mean the same. A launcher
 * that starts one torchrun a node counts these, so only equal sizes are compared. */
static enum error conflict_check(lookup get, const struct launcher *l) {
    for (int i = OTHERS; i < KINDS; i++) {
        struct launcher other = {.local = -1};
        int rank = -1, size = -1;
        if (!kind_is_there(get, &kinds[i])) continue;
        TRY(number_read(get, kinds[i].rank, &other, &rank));
        TRY(number_read(get, kinds[i].size, &other, &size));
        if (size == l->size && rank != l->rank)
            return FAIL(ERR_USAGE, "RANK says rank %d, %s says %d (of %d)\nunset one of them, or say which by run.init",
                        l->rank, kinds[i].rank, rank, size);
    }
    return ERR_NONE;
}

bool launcher_is_loopback(const char *master) {
    return !strncmp(master, "127.", 4) || !strncmp(master, "localhost:", 10) || !strncmp(master, "[::1]:", 6);
}

/* Who meets on the loopback is on one host, even if nobody says so. */
static void locals_guess(struct launcher *l) {
    if (!launcher_is_loopback(l->master) || l->locals > 0) return;
    l->local = l->rank;
    l->locals = l->size;
}

/* RANK is the number of a pod that is to start several ranks. */
static enum error pod_check(lookup get, const struct launcher *l) {
    const char *text = variable_value(get, "PET_NPROC_PER_NODE");
    int64_t n;
    if (!text || !text_int(text, &n) || n <= 1 || variable_value(get, "LOCAL_RANK")) return ERR_NONE;
    return FAIL(ERR_USAGE,
                "PET_NPROC_PER_NODE=%lld: this pod is to start %lld ranks, and RANK=%d is the pod's number\nstart them "
                "by: engine launch engine run CONFIG",
                (long long)n, (long long)n, l->rank);
}

static enum error kind_read(lookup get, const struct launcher_kind *k, struct launcher *l) {
    *l = (struct launcher){.name = k->name, .local = -1};
    TRY(number_read(get, k->rank, l, &l->rank));
    TRY(number_read(get, k->size, l, &l->size));
    TRY(number_read(get, k->local, l, &l->local));
    TRY(number_read(get, k->locals, l, &l->locals));
    TRY(master_read(get, l));
    if (k->meets == AT_FIRST_NODE)
        TRY(slurm_read(get, l));
    else if (variable_value(get, k->job))
        snprintf(l->job, sizeof l->job, "%.100s", variable_value(get, k->job));
    locals_guess(l);
    TRY(ranks_check(l, k));
    if (k->meets == AT_MASTER && !*l->master)
        return FAIL(ERR_USAGE,
                    "%s and %s are set, but MASTER_ADDR and MASTER_PORT are not\nset them, or set run.init: none",
                    k->rank, k->size);
    if (k != &kinds[ENV]) return ERR_NONE;
    TRY(pod_check(get, l));
    return conflict_check(get, l);
}

/* Half of the variables: whoever started this process did not mean it to run alone. */
static enum error half_check(lookup get) {
    const char *rank = variable_value(get, "RANK"), *size = variable_value(get, "WORLD_SIZE"),
               *pmix = variable_value(get, "PMIX_RANK");
    if (pmix && strcmp(pmix, "0") != 0)
        return FAIL(ERR_USAGE,
                    "PMIX_RANK=%.32s, but no variable says how many ranks there are\nset RANK, WORLD_SIZE, MASTER_ADDR "
                    "and MASTER_PORT, or set run.init: none",
                    pmix);
    if (!variable_value(get, "MASTER_ADDR") || !rank == !size) return ERR_NONE;
    return FAIL(ERR_USAGE, "MASTER_ADDR and %s are set, but %s is not\nset it, or set run.init: none",
                rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
}

enum error launcher_find(lookup get, struct launcher *out, bool *found) {
    *found = false;
    for (int i = 0; i < KINDS && !*found; i++) {
        if (!kind_is_there(get, &kinds[i])) continue;
        TRY(kind_read(get, &kinds[i], out));
        *found = true;
    }
    return *found ? ERR_NONE : half_check(get);
}

/* torchrun's run id may be given again and again, or be "none"; its process is there once. */
enum error launcher_job(lookup get, struct launcher_job *out) {
    const char *torch = variable_value(get, "TORCHELASTIC_RESTART_COUNT"), *slurm = variable_value(get, "SLURM_JOB_ID"),
               *step = variable_value(get, "SLURM_STEP_ID");
    struct launcher ignored = {.local = -1};
    char host[100] = "";
    *out = (struct launcher_job){.restarts = 0};
    if (torch) {
        (void)gethostname(host, sizeof host - 1);
        snprintf(out->name, sizeof out->name, "torchrun %s.%d.%llu", host, (int)getppid(),
                 process_start((int)getppid(), NULL));
        return number_read(get, "TORCHELASTIC_RESTART_COUNT", &ignored, &out->restarts);
    }
    if (!slurm) return ERR_NONE;
    snprintf(out->name, sizeof out->name, "slurm %.100s.%.100s", slurm, step ? step : "batch");
    return number_read(get, "SLURM_RESTART_COUNT", &ignored, &out->restarts);
}

/* Without a job's name the parent stands for it: a launcher starts its ranks itself. */
enum error launcher_place(const struct launcher_ranks *l, const char *master, struct pool *pool, const char **out) {
    const char *folder = getenv("TMPDIR");
    if (!folder || !*folder) folder = "/tmp";
    bool told = master && *master;
    if (!told && l->locals != l->size)
        return FAIL(ERR_CONFIG,
                    "%s has started %d ranks, %s of them here, but does not say where they can meet\nset MASTER_ADDR "
                    "and MASTER_PORT for all ranks",
                    l->name, l->size, l->locals > 0 ? pool_printf(pool, "%d", l->locals) : "it does not say how many");
    *out = told      ? pool_printf(pool, strstr(master, "://") ? "%s" : "tcp://%s", master)
           : *l->job ? pool_printf(pool, "file://%s/engine-%u-%s", folder, (unsigned)getuid(), l->job)
                     : pool_printf(pool, "file://%s/engine-%u-of-%d-%llu", folder, (unsigned)getuid(), (int)getppid(),
                                   process_start((int)getppid(), NULL));
    return *out ? ERR_NONE : ERR_MEMORY;
}
