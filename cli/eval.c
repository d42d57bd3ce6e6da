/* engine eval: measures a trained network on a data set, on the devices and in the mode of its
 * configuration. The ranks of ddp are started as in training, in a folder of their own that is gone
 * afterwards. */
#include "cli/cli.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "transport/launch/launch.h"
#include "transport/launch/launcher.h"

#include <stdio.h>
#include <string.h>

extern const struct command command_eval;

static int take_split(struct cli_trained *t, const char *value, bool *on_train) {
    if (!value) return cli_usage(t->command, "--split needs a value");
    *on_train = !strcmp(value, "train");
    if (*on_train || !strcmp(value, "val")) return 0;
    return cli_usage(t->command, "--split is train or val, not '%s'", value);
}

static int parse(struct cli_trained *t, int argc, char **argv, bool *on_train) {
    for (int i = 1; i < argc; i++) {
        int code = cli_trained_option(t, argc, argv, &i);
        if (code > 0) return code;
        if (code == 0) continue;
        if (!strcmp(argv[i], "--split")) {
            const char *value = i + 1 < argc ? argv[++i] : NULL;
            if ((code = take_split(t, value, on_train))) return code;
        } else if (argv[i][0] == '-' && argv[i][1]) {
            return cli_usage(t->command, "unknown option '%s'", argv[i]);
        } else if (t->path) {
            return cli_usage(t->command, "one configuration at a time, got '%s' and '%s'", t->path,
                             argv[i]);
        } else {
            t->path = argv[i];
        }
    }
    return 0;
}

/* What the checkpoint tells of its data, for ranks that do not read it. */
static enum error known_path(struct cli_trained *t, const char *folder, char **out) {
    *out = pool_printf(t->pool, "%s/preprocessing.json", folder);
    return *out ? ERR_NONE : ERR_MEMORY;
}

static enum error known_write(struct cli_trained *t, const char *folder) {
    char *path;
    const char *text = NULL;
    const struct preprocessing *p = t->job.known;
    if (!p) return ERR_NONE;
    TRY(known_path(t, folder, &path));
    TRY(preprocessing_text(&p->set.base, &p->norm, t->pool, &text));
    return text ? file_replace(path, text, strlen(text)) : ERR_NONE;
}

static enum error known_read(struct cli_trained *t, const char *folder) {
    enum { MOST = 16 << 20 };
    char *path, *text;
    size_t n;
    TRY(known_path(t, folder, &path));
    if (!file_exists(path)) return ERR_NONE;
    TRY(file_read(path, MOST, t->pool, &text, &n));
    return preprocessing_parse(text, path, t->pool, &t->job.known);
}

/* Where ranks find the configuration. All that they write there, they tell here, too. */
static enum error make_place(struct cli_trained *t, char **folder) {
    TRY(file_make_temporary("eval", t->settings.pool, folder));
    t->job.run_dir = *folder;
    TRY(known_write(t, *folder));
    return run_place_record(&(struct run_place){.dir = *folder}, &t->settings);
}

static int evaluate(struct cli_trained *t) {
    char *folder;
    int code = 0;
    struct job_facts facts;
    enum error err = cli_check(&t->job, &facts);
    if (err != ERR_NONE) return error_exit_code(err);
    t->job.data_digest = facts.data;
    err = make_place(t, &folder);
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

/* In a process that evaluate() has started. */
static int evaluate_as_rank(struct cli_trained *t, const struct launch_self *self) {
    int code = 0;
    t->job.process = (struct rank_process){
        .rank = self->rank, .locals = self->locals, .meeting_fd = self->meeting_fd};
    t->job.processes = self->size;
    t->job.console_out = self->console_out;
    t->job.console_err = self->console_err;
    t->job.run_dir = t->path;
    enum error err = known_read(t, t->path);
    if (err == ERR_NONE) err = t->job.mode->launch(&t->job, &code);
    return err == ERR_NONE ? code : cli_fail(err);
}

static void set_task(struct cli_trained *t, bool on_train) {
    t->job.task = JOB_EVALUATE;
    t->job.on_train = on_train;
    t->job.command[0] = "eval";
    t->job.command[1] = "--split";
    t->job.command[2] = on_train ? "train" : "val";
}

static int run(struct cli_trained *t, int argc, char **argv) {
    bool on_train = false, rank;
    int code = parse(t, argc, argv, &on_train);
    if (code) return code;
    struct launch_self self;
    struct launcher launcher;
    enum error err = launch_self(&self, &rank);
    if (err != ERR_NONE) return cli_fail(err);
    struct run_launched launched = cli_launched(&launcher);
    if (!rank) t->config.launched = &launched;
    err = cli_trained_load(t);
    if (err == ERR_NONE && !rank) err = cli_trained_weights(t);
    if (err != ERR_NONE) return error_exit_code(err);
    set_task(t, on_train);
    return rank ? evaluate_as_rank(t, &self) : evaluate(t);
}

static int run_eval(int argc, char **argv) {
    struct cli_trained t;
    enum error err = cli_trained_init(&t, &command_eval);
    if (err != ERR_NONE) return cli_fail(err);
    int code = run(&t, argc, argv);
    cli_trained_fini(&t);
    return code;
}

const struct command command_eval = {
    .name = "eval",
    .arguments = "[CONFIG | RUN_DIR] [--checkpoint PATH] [--split val|train] [--set KEY=VALUE]... "
                 "[--json]",
    .summary = "measures a trained network: loss, accuracy, top-5, perplexity, confusions",
    .help = CLI_TRAINED_HELP
    "  --split S          val (default), or train: the training samples, as they lie\n"
    "  --json             one JSON object on standard output, the confusion matrix in it\n"
    "Exit codes: 0; 64 usage; 65 bad data or checkpoint; 66 no such file, run or checkpoint;\n"
    "78 bad configuration, or weights of another model\n",
    .run = run_eval,
};
