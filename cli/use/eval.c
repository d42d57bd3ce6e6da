/* engine eval: measures a trained network on a data set, on the devices and in the mode of its
 * configuration. The ranks of ddp are started as in training, in a folder of their own that is gone
 * afterwards. */
#include "cli/line/cli.h"

#include "cli/train/run_place.h"
#include "cli/use/trained.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/data/preprocessing.h"
#include "engine/settings/mode.h"
#include "engine/train/job_check.h"
#include "transport/launch/launch.h"
#include "transport/launch/launcher.h"

#include <signal.h>
#include <string.h>

struct eval_options {
    struct cli_trained trained;
    int split; /* 1: train */
};
#define OPTIONS_STRUCT struct eval_options

/* The file in which the ranks, which do not read the checkpoint, find what it says about its data. */
static enum error eval_known_path(struct cli_trained *t, const char *folder, char **out) {
    *out = pool_printf(t->pool, "%s/preprocessing.json", folder);
    return *out ? ERR_NONE : ERR_MEMORY;
}

static enum error eval_known_write(struct cli_trained *t, const char *folder) {
    char *path;
    const char *text = NULL;
    const struct preprocessing *p = t->job.known;
    if (!p) return ERR_NONE;
    TRY(eval_known_path(t, folder, &path));
    TRY(preprocessing_text(&p->set.base, &p->norm, t->pool, &text));
    return text ? file_replace(path, text, strlen(text)) : ERR_NONE;
}

static enum error eval_known_read(struct cli_trained *t, const char *folder) {
    enum { MOST = 16 << 20 };
    char *path, *text;
    size_t n;
    TRY(eval_known_path(t, folder, &path));
    if (!file_exists(path)) return ERR_NONE;
    TRY(file_read(path, MOST, t->pool, &text, &n));
    return preprocessing_parse(text, path, t->pool, &t->job.known);
}

/* Makes the folder where ranks find the configuration. They also report here all that they write there. */
static enum error eval_make_place(struct cli_trained *t, char **folder) {
    TRY(file_make_temporary("eval", t->settings.pool, folder));
    t->job.run_dir = *folder;
    TRY(eval_known_write(t, *folder));
    return run_place_record(&(struct run_place){.dir = *folder}, &t->settings);
}

static int eval_start_ranks(struct cli_trained *t) {
    char *folder;
    int code = 0;
    struct job_facts facts;
    enum error err = cli_check(&t->job, &facts);
    if (err != ERR_NONE) return error_exit_code(err);
    t->job.data_digest = facts.data;
    err = job_check_units(&t->job);
    if (err == ERR_NONE) err = eval_make_place(t, &folder);
    if (err == ERR_NONE) err = t->job.mode->launch(&t->job, &code);
    if (err != ERR_NONE) code = cli_fail(err);
    if (!t->job.run_dir) return code;
    if (code == error_exit_code(ERR_PEER) || code == error_exit_code(ERR_BUG)) {
        file_keep_temporary(t->settings.pool, &folder);
        log_info("what the ranks wrote stays in %s", folder);
    } else if (file_remove_tree(folder) != ERR_NONE)
        log_warn("%s", error_message());
    return code;
}

/* Evaluates in a process that eval_start_ranks() has started. */
static int eval_as_rank(struct cli_trained *t, const struct launch_self *self) {
    int code = 0;
    t->job.process = (struct rank_process){.rank = self->rank, .locals = self->locals, .meeting_fd = self->meeting_fd};
    t->job.processes = self->size;
    t->job.console_out = self->console_out;
    t->job.console_err = self->console_err;
    t->job.run_dir = t->path;
    enum error err = eval_known_read(t, t->path);
    if (err == ERR_NONE) err = t->job.mode->launch(&t->job, &code);
    return err == ERR_NONE ? code : cli_fail(err);
}

static void eval_set_task(struct cli_trained *t, bool on_train) {
    t->job.task = JOB_EVALUATE;
    t->job.on_train = on_train;
    t->job.command[0] = "eval";
    t->job.command[1] = "--split";
    t->job.command[2] = on_train ? "train" : "val";
}

/* Drops the hosts on which the run was trained: this host evaluates it, unless more are asked for. */
static enum error eval_forget_hosts(struct cli_trained *t) {
    TRY(cli_set_first(&t->config, "run.nodes=1"));
    TRY(cli_set_first(&t->config, "run.node_rank=0"));
    return cli_set_first(&t->config, "comm.link=auto");
}

static int eval_set_evaluate(struct cli_trained *t, bool on_train) {
    bool rank;
    struct launch_self self;
    struct launcher launcher;
    enum error err = launch_self(&self, &rank);
    rank = rank && self.own;
    if (err == ERR_NONE) err = eval_forget_hosts(t);
    if (err != ERR_NONE) return cli_fail(err);
    struct run_launched launched = cli_launched(&launcher);
    if (!rank) t->config.launched = &launched;
    err = cli_trained_load(t);
    if (err == ERR_NONE && !rank) err = cli_trained_weights(t);
    if (err != ERR_NONE) return error_exit_code(err);
    eval_set_task(t, on_train);
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone is no rank that is lost */
    return rank ? eval_as_rank(t, &self) : eval_start_ranks(t);
}

static int eval_command(const struct cli *cli) {
    struct eval_options *o = cli->options;
    o->trained.pool = cli->pool;
    int code = eval_set_evaluate(&o->trained, o->split);
    run_settings_free(&o->trained.settings);
    return code;
}

static const struct option options[] = {
    {TRAINED_PATH, .one = "configuration"},
    {"--split", NULL, "val (default), or train: the training samples, without augmentation", CONFIG_ENUM, AT(split),
     .choices = "val|train"},
    TRAINED_OPTIONS,
    {"--json", NULL, "one JSON object on standard output, with the confusion matrix", CONFIG_BOOL, AT(trained.json)},
    {0}};

const struct command command_eval = {
    .name = "eval",
    .also = "evaluate|test|validation|score",
    .summary = "measures a trained network: loss, accuracy, top-5, perplexity, confusions",
    OPTIONS(options),
    .notes = "Exit codes: 0; 64 usage; 65 bad data or checkpoint; 66 no such file, run or checkpoint;\n"
             "78 bad configuration, or weights of another model\n",
    .run = eval_command,
};
