/* engine run: trains. With a configuration file, without one (generated data, a small network), or
 * with a run directory, which goes on from its last checkpoint. */
#include "cli/dashboard/dashboard.h"
#include "cli/line/cli.h"
#include "cli/line/load.h"

#include "cli/train/run_place.h"
#include "engine/base/log.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"
#include "engine/train/job_check.h"
#include "engine/train/stop.h"
#include "modes/modes.h"
#include "transport/launch/launch.h"
#include "transport/launch/launcher.h"
#include "transport/launch/nodes.h"

#include <string.h>
#include <unistd.h>

struct run_options {
    struct cli_config config; /* its path: a configuration, or a run directory */
    const char *run_dir;      /* when it was one */
    const char *nodes;        /* --nnodes */
    const char *locals;       /* --nproc-per-node */
    bool json, quiet, plain;
};
#define OPTIONS_STRUCT struct run_options

/* A run that goes on in another mode: the link was chosen for the one before, and is chosen anew. */
static enum error run_choose_link(struct run_options *o) {
    bool mode = false, link = false;
    for (int i = 0; i < o->config.nsets; i++) {
        mode |= !strncmp(o->config.sets[i], "mode=", 5);
        link |= !strncmp(o->config.sets[i], "comm.link=", 10);
        link |= !strncmp(o->config.sets[i], "comm=", 5) && strstr(o->config.sets[i], "link");
    }
    return o->run_dir && mode && !link ? cli_set(&o->config, "comm.link=auto") : ERR_NONE;
}

/* --nnodes 1:3 is run: {nodes: 3, elastic: {nodes: 1}}. */
static enum error run_set_nodes(struct run_options *o, struct pool *pool) {
    const char *colon = strchr(o->nodes, ':');
    if (colon) TRY(cli_set(&o->config, pool_printf(pool, "run.elastic.nodes=%.*s", (int)(colon - o->nodes), o->nodes)));
    return cli_set(&o->config, pool_printf(pool, "run.nodes=%s", colon ? colon + 1 : o->nodes));
}

/* --nproc-per-node 4 is devices: cpu:4; with a word (auto, gpu kinds) it is that word. */
static enum error run_set_devices(struct run_options *o, struct pool *pool) {
    const char *kind = o->locals[strspn(o->locals, "0123456789")] ? "" : "cpu:";
    return cli_set(&o->config, pool_printf(pool, "devices=%s%s", kind, o->locals));
}

/* ---- running ---- */
/* hints: not for each of several ranks, all of which tell the same. */
static int run_exit_code(enum error err, int code, bool hints) {
    if (err != ERR_NONE) {
        log_error("%s", error_message());
        if (hints && *error_hint()) log_info("hint: %s", error_hint());
        return error_exit_code(err);
    }
    return code ? code : stop_signal() ? stop_exit_code(stop_signal()) : 0;
}

static int run_as_rank(struct job *job, const struct launch_self *self) {
    int code;
    job->process = (struct rank_process){.rank = self->rank, .locals = self->locals, .meeting_fd = self->meeting_fd};
    job->processes = self->size;
    job->console_out = self->console_out;
    job->console_err = self->console_err;
    enum error err = job->mode->launch(job, &code);
    return run_exit_code(err, code, self->local == 0);
}

static int run_whole(struct job *job, const char *run_dir) {
    struct job_facts facts;
    enum error err = cli_check(job, &facts);
    if (err != ERR_NONE) return error_exit_code(err);
    job->data_digest = facts.data;
    if (facts.norm.channels) job->norm = &facts.norm;
    int code = 0;
    err = job_check_units(job); /* before there is a directory */
    if (err == ERR_NONE) err = cli_train(job, run_dir, &code);
    return run_exit_code(err, code, true);
}

/* Records a failure. A checkpoint that is refused has begun no run, and a stop that was asked for is no failure. */
static enum error run_note_failure(const struct run_place *p, enum error err, int code, const char *reason,
                                   struct pool *pool) {
    char words[ERROR_WORDS];
    error_words(words, sizeof words);
    if (err != ERR_NONE) code = error_exit_code(err);
    if (!code || code > 128 || stop_signal() || code == error_exit_code(ERR_CONFIG)) return err;
    run_choice_failed(p, code, err == ERR_NONE ? reason : error_message(), pool);
    return err == ERR_NONE ? err : FAIL(err, "%s", words);
}

static enum error train_here(struct job *job, const char *run_dir, struct dashboard *board, int *code) {
    struct run_place place;
    char reason[ERROR_WORDS] = "";
    bool finished;
    *code = 0;
    job->reason = reason;
    TRY(run_place_open(job->settings, run_dir, &place));
    job->run_dir = place.dir;
    job->resume = place.resume;
    job->run_id = place.run_id;
    TRY(run_finished(job, &place, &finished));
    if (finished) return ERR_NONE;
    TRY(run_place_record(&place, job->settings));
    if (board) dashboard_follow(board, job);
    enum error err = job->mode->launch(job, code);
    if (place.resume && (err == ERR_CONFIG || *code == error_exit_code(ERR_CONFIG)))
        run_place_restore(&place, job->settings->pool);
    return run_note_failure(&place, err, *code, reason, job->settings->pool);
}

enum error cli_train(struct job *job, const char *run_dir, int *code) {
    const struct run_config *c = &job->settings->config;
    struct dashboard *board = NULL;
    const char *secret; /* one that is refused leaves no directory */
    if (c->sharing.place == PLACE_PROCESSES)
        TRY(nodes_secret(c->run.token, (int)c->run.nodes, job->settings->pool, &secret));
    if (c->launched.by && c->launched.rank > 0) /* rank 0 keeps the files */
        return job->mode->launch(job, code);
    if (c->run.node_rank == 0) TRY(dashboard_open(c->log.dashboard, &board));
    if (board && !job->quiet) dprintf(job->console_err, "dashboard %s\n", dashboard_url(board));
    enum error err = train_here(job, run_dir, board, code);
    dashboard_close(board, err == ERR_NONE ? *code : error_exit_code(err));
    return err;
}

static int run_parsed(struct run_options *o) {
    int code;
    struct launch_self self;
    bool rank;
    enum error err = launch_self(&self, &rank);
    rank = rank && self.own;
    if (err != ERR_NONE) return cli_fail(err);
    struct run_settings s;
    struct launcher launcher;
    struct run_launched launched = {.rank = self.rank, .size = self.size, .local = self.local, .locals = self.locals};
    if (!rank) launched = cli_launched(&launcher);
    o->config.launched = &launched;
    err = cli_load(&o->config, &s);
    struct job job = {.settings = &s,
                      .run_dir = o->run_dir,
                      .console_out = STDOUT_FILENO,
                      .console_err = STDERR_FILENO,
                      .json = o->json,
                      .quiet = o->quiet,
                      .progress = !o->plain,
                      .process = {.rank = -1, .meeting_fd = -1},
                      .processes = 1};
    if (err == ERR_NONE) {
        job.mode = s.mode;
        stop_install();
        code = rank ? run_as_rank(&job, &self) : run_whole(&job, o->run_dir);
    } else
        code = error_exit_code(err);
    run_settings_free(&s);
    return code;
}

static int train_command(const struct cli *cli) {
    struct run_options *o = cli->options;
    const char *path = o->config.path;
    enum error err = path ? cli_run_dir(path, cli->pool, &o->config.path, &o->run_dir) : ERR_NONE;
    if (err == ERR_NONE && o->nodes) err = run_set_nodes(o, cli->pool);
    if (err == ERR_NONE && o->locals) err = run_set_devices(o, cli->pool);
    if (err == ERR_NONE) err = run_choose_link(o);
    return err == ERR_NONE ? run_parsed(o) : cli_fail(err);
}

static const struct option options[] = {
    {"CONFIG | RUN_DIR", NULL, NULL, CONFIG_STRING, AT(config.path), .one = "configuration"},
    OPTION_SET(config, "changes one key: --set optimizer.lr=0.1 (repeatable)"),
    OPTION_KEY("--mode", "M", config, "mode"),
    OPTION_KEY("--devices", "D", config, "devices"),
    {"--resume", NULL, NULL, .at = AT(config), .key = "checkpoint.resume", .set = "auto"},
    {"--dashboard", "[=ADDRESS]",
     "shows the run in a browser while it trains, at " DASHBOARD_STANDARD
     " or ADDRESS: PORT (0: any free port) or HOST:PORT. The same as --set log.dashboard=ADDRESS; exit code 69 if the "
     "port is taken",
     .at = AT(config), .key = "log.dashboard", .set = DASHBOARD_STANDARD},
    OPTION_JSON("one JSON object on standard output, and nothing else there"),
    {"--quiet", NULL, "no banner and no progress", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {"--no-progress", NULL, "plain lines even on a terminal", CONFIG_BOOL, AT(plain)},
    {"--nnodes", "N|MIN:MAX",
     "number of hosts: N is the same as --set run.nodes=N, MIN:MAX as --set run.nodes=MAX --set run.elastic.nodes=MIN",
     CONFIG_STRING, AT(nodes)},
    OPTION_KEY("--node-rank", "K", config, "run.node_rank"),
    OPTION_KEY("--master-addr", "A", config, "run.master"),
    OPTION_KEY("--master-port", "P", config, "run.port"),
    {"--nproc-per-node", "M|auto", "number of devices on this host: M is the same as --set devices=cpu:M",
     CONFIG_STRING, AT(locals)},
    {0}};

const struct command command_run = {
    .name = "run",
    .also = "train|fit|start",
    .summary = "trains a network: from a configuration, from defaults, or by resuming a run directory",
    OPTIONS(options),
    .run = train_command,
};
