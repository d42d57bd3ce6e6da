/* engine run: trains. With a configuration file, without one (generated data, a small network), or
 * with a run directory, which goes on from its last checkpoint. */
#include "cli/cli.h"
#include "cli/dashboard.h"

#include "engine/base/log.h"
#include "engine/train/stop.h"
#include "engine/train/trainer.h"
#include "modes/modes.h"
#include "transport/launch/launch.h"
#include "transport/launch/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const struct command command_run;

struct options {
    struct cli_config config;
    const char *run_dir; /* when the argument was one */
    bool json, quiet, progress;
    struct pool *pool;
    char texts[16][1100]; /* assignments made from options */
    int ntexts;
};

/* ---- arguments ---- */
static enum error set_from(struct options *o, const char *key, const char *value) {
    char *text = o->texts[o->ntexts++ % 16];
    snprintf(text, sizeof o->texts[0], "%s=%s", key, value);
    return cli_set(&o->config, text);
}

/* Options that are keys: --mode dp is --set mode=dp. */
static const char *const shortcuts[][2] = {{"--mode", "mode"},
                                           {"--devices", "devices"},
                                           {"--nproc-per-node", "devices"},
                                           {"--nnodes", "run.nodes"},
                                           {"--node-rank", "run.node_rank"},
                                           {"--master-addr", "run.master"},
                                           {"--master-port", "run.port"},
                                           {"--set", NULL}};

/* --nproc-per-node 4 is devices: cpu:4; with a word (auto, gpu kinds) it is that word. */
static enum error set_devices(struct options *o, const char *value) {
    char text[300];
    bool number = *value && !value[strspn(value, "0123456789")];
    snprintf(text, sizeof text, number ? "cpu:%s" : "%s", value);
    return set_from(o, "devices", text);
}

static int take_value(struct options *o, char *option, char *next, bool *joined) {
    char *value = cli_option_value(option, next, joined);
    for (size_t i = 0; i < sizeof shortcuts / sizeof *shortcuts; i++) {
        if (!cli_same_option(option, shortcuts[i][0])) continue;
        if (!value) return cli_usage(&command_run, "%s needs a value", option);
        enum error err = !shortcuts[i][1]                   ? cli_set(&o->config, value)
                         : strstr(shortcuts[i][0], "nproc") ? set_devices(o, value)
                                                            : set_from(o, shortcuts[i][1], value);
        return err == ERR_NONE ? 0 : cli_fail(err);
    }
    return -1;
}

/* --dashboard, or --dashboard=ADDRESS: without one it is at a port of this host alone. */
static bool take_dashboard(struct options *o, const char *arg) {
    static const char name[] = "--dashboard";
    size_t n = sizeof name - 1;
    if (strncmp(arg, name, n) != 0 || (arg[n] && arg[n] != '=')) return false;
    return set_from(o, "log.dashboard", arg[n] ? arg + n + 1 : DASHBOARD_STANDARD) == ERR_NONE;
}

static bool take_flag(struct options *o, const char *arg) {
    if (take_dashboard(o, arg)) return true;
    if (!strcmp(arg, "--json")) return o->json = true;
    if (!strcmp(arg, "--quiet") || !strcmp(arg, "-q")) return o->quiet = true;
    if (!strcmp(arg, "--no-progress")) return !(o->progress = false);
    if (!strcmp(arg, "--resume")) return cli_set(&o->config, "checkpoint.resume=auto") == ERR_NONE;
    return false;
}

static int take_path(struct options *o, const char *path) {
    if (o->config.path)
        return cli_usage(&command_run, "one configuration at a time, got '%s' and '%s'",
                         o->config.path, path);
    enum error err = cli_run_dir(path, o->pool, &o->config.path, &o->run_dir);
    return err == ERR_NONE ? 0 : cli_fail(err);
}

/* A run that goes on in another mode: the link was chosen for the one before, and is chosen anew. */
static enum error choose_link(struct options *o) {
    bool mode = false, link = false;
    for (int i = 0; i < o->config.nsets; i++) {
        mode |= !strncmp(o->config.sets[i], "mode=", 5);
        link |= !strncmp(o->config.sets[i], "comm.link=", 10);
        link |= !strncmp(o->config.sets[i], "comm=", 5) && strstr(o->config.sets[i], "link");
    }
    return o->run_dir && mode && !link ? cli_set(&o->config, "comm.link=auto") : ERR_NONE;
}

static int parse(int argc, char **argv, struct options *o) {
    *o = (struct options){.progress = true};
    enum error err = pool_create(&o->pool);
    if (err != ERR_NONE) return cli_fail(err);
    for (int i = 1; i < argc; i++) {
        char *arg = argv[i];
        if (arg[0] != '-' || !arg[1]) {
            int code = take_path(o, arg);
            if (code) return code;
            continue;
        }
        if (take_flag(o, arg)) continue;
        bool joined;
        int code = take_value(o, arg, i + 1 < argc ? argv[i + 1] : NULL, &joined);
        if (code < 0) return cli_usage(&command_run, "unknown option '%s'", arg);
        if (code > 0) return code;
        i += !joined;
    }
    err = choose_link(o);
    return err == ERR_NONE ? 0 : cli_fail(err);
}

/* ---- running ---- */
static int exit_code(enum error err, int code) {
    if (err != ERR_NONE) {
        log_error("%s", error_message());
        if (*error_hint()) log_info("hint: %s", error_hint());
        return error_exit_code(err);
    }
    return code ? code : stop_signal() ? stop_exit_code(stop_signal()) : 0;
}

static int run_as_rank(struct job *job, const struct launch_self *self) {
    int code;
    job->process = (struct rank_process){
        .rank = self->rank, .locals = self->locals, .meeting_fd = self->meeting_fd};
    job->processes = self->size;
    job->console_out = self->console_out;
    job->console_err = self->console_err;
    enum error err = job->mode->launch(job, &code);
    return exit_code(err, code);
}

static int run_whole(struct job *job, const char *run_dir) {
    struct job_facts facts;
    enum error err = cli_check(job, &facts);
    if (err != ERR_NONE) return error_exit_code(err);
    job->data_digest = facts.data;
    int code = 0;
    err = job_check_units(job); /* before there is a directory */
    if (err == ERR_NONE) err = cli_train(job, run_dir, &code);
    return exit_code(err, code);
}

static enum error train_here(struct job *job, const char *run_dir, struct dashboard *board,
                             int *code) {
    struct run_place place;
    TRY(run_place_open(job->settings, run_dir, &place));
    TRY(run_place_record(&place, job->settings));
    job->run_dir = place.dir;
    job->resume = place.resume;
    job->run_id = place.run_id;
    if (board) dashboard_follow(board, job);
    enum error err = job->mode->launch(job, code);
    if (place.resume && (err == ERR_CONFIG || *code == error_exit_code(ERR_CONFIG)))
        run_place_restore(&place, job->settings->pool);
    return err;
}

enum error cli_train(struct job *job, const char *run_dir, int *code) {
    const struct run_config *c = &job->settings->config;
    struct dashboard *board = NULL;
    if (c->launched.by && c->launched.rank > 0) /* rank 0 keeps the files */
        return job->mode->launch(job, code);
    if (c->run.node_rank == 0) TRY(dashboard_open(c->log.dashboard, &board));
    if (board && !job->quiet) dprintf(job->console_err, "dashboard %s\n", dashboard_url(board));
    enum error err = train_here(job, run_dir, board, code);
    dashboard_close(board, err == ERR_NONE ? *code : error_exit_code(err));
    return err;
}

static int run_parsed(struct options *o) {
    int code;
    struct launch_self self;
    bool rank;
    enum error err = launch_self(&self, &rank);
    if (err != ERR_NONE) return cli_fail(err);
    struct run_settings s;
    struct launcher launcher;
    struct run_launched launched = cli_launched(&launcher);
    if (!rank) o->config.launched = &launched;
    err = cli_load(&o->config, &s);
    struct job job = {.settings = &s,
                      .run_dir = o->run_dir,
                      .console_out = STDOUT_FILENO,
                      .console_err = STDERR_FILENO,
                      .json = o->json,
                      .quiet = o->quiet,
                      .progress = o->progress,
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

static int run_run(int argc, char **argv) {
    struct options o;
    int code = parse(argc, argv, &o);
    if (!code) code = run_parsed(&o);
    pool_free(o.pool);
    return code;
}

const struct command command_run = {
    .name = "run",
    .arguments = "[CONFIG | RUN_DIR] [--set KEY=VALUE]... [--mode M] [--devices D] [--resume] "
                 "[--dashboard[=ADDRESS]] [--json] [--quiet]",
    .summary = "trains, from a configuration, from nothing, or on from a run directory",
    .help =
        "  --set KEY=VALUE  changes one key: --set optimizer.lr=0.1 (repeatable)\n"
        "  --mode M         the same as --set mode=M\n"
        "  --devices D      the same as --set devices=D\n"
        "  --nnodes N --node-rank K --master-addr A --master-port P --nproc-per-node M|auto\n"
        "                   on each of N hosts: run.nodes, run.node_rank, run.master, run.port\n"
        "                   and devices\n"
        "  --resume         the same as --set checkpoint.resume=auto\n"
        "  --dashboard[=ADDRESS]\n"
        "                   shows the run to a browser while it goes, at " DASHBOARD_STANDARD "\n"
        "                   or ADDRESS: PORT (0: any that is free) or HOST:PORT. The same as\n"
        "                   --set log.dashboard=ADDRESS; exit code 69 if the port is taken\n"
        "  --json           one JSON object on standard output, and nothing else there\n"
        "  --quiet, -q      no banner and no progress\n"
        "  --no-progress    plain lines even on a terminal\n",
    .run = run_run,
};
