/* What eval, predict and generate have in common: options, the configuration of a run, and which of
 * its checkpoints is meant. */
#include "cli/cli.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "modes/modes.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum error cli_trained_init(struct cli_trained *t, const struct command *c) {
    *t = (struct cli_trained){.command = c, .config.asks = true};
    return pool_create(&t->pool);
}

/* One device that computes whole batches, whatever the run had. */
enum error cli_trained_alone(struct cli_trained *t) {
    static const char *const sets[] = {"mode=single",
                                       "devices=cpu:1",
                                       "batch.shards=1",
                                       "batch.size=1",
                                       "threads=auto",
                                       "batch.accumulate=1",
                                       "run.nodes=1",
                                       "comm.link=auto",
                                       "comm.algorithm=auto",
                                       "comm.order=auto",
                                       "sync_batchnorm=false",
                                       "inject.slow.by=0",
                                       "inject.fault.kind=none",
                                       "inject.mistake=none"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) TRY(cli_set(&t->config, sets[i]));
    return ERR_NONE;
}

void cli_trained_fini(struct cli_trained *t) {
    run_settings_free(&t->settings);
    pool_free(t->pool);
}

/* ---- options ---- */

static int take(struct cli_trained *t, const char *key, const char *value) {
    const char *text = *key ? pool_printf(t->pool, "%s=%s", key, value) : value;
    enum error err = text ? cli_set(&t->config, text) : ERR_MEMORY;
    return err == ERR_NONE ? 0 : cli_fail(err);
}

int cli_trained_option(struct cli_trained *t, int argc, char **argv, int *i) {
    static const char *const keys[][2] = {
        {"--set", ""}, {"--mode", "mode"}, {"--devices", "devices"}, {"--threads", "threads"}};
    const char *arg = argv[*i], *value = *i + 1 < argc ? argv[*i + 1] : NULL;
    if (!strcmp(arg, "--json")) {
        t->json = true;
        return 0;
    }
    bool checkpoint = !strcmp(arg, "--checkpoint");
    const char *key = NULL;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        if (!strcmp(arg, keys[k][0])) key = keys[k][1];
    if (!key && !checkpoint) return -1;
    if (!value) return cli_usage(t->command, "%s needs a value", arg);
    ++*i;
    if (checkpoint) t->checkpoint = value;
    if (checkpoint) return 0;
    int code = take(t, key, value);
    if (code || strcmp(arg, "--mode")) return code;
    return take(t, "comm.link", "auto"); /* the run's was for its mode */
}

/* ---- which weights ---- */

/* A step folder's model, a file itself, or the best of a folder of them. */
static enum error weights_at(struct cli_trained *t, const char *path) {
    struct stat st;
    char *step;
    if (stat(path, &st) != 0)
        return FAIL(ERR_INPUT,
                    "no checkpoint '%s'\na step's folder, a run's, or a .safetensors file", path);
    t->job.resume = path;
    if (!S_ISDIR(st.st_mode)) return ERR_NONE;
    const char *manifest = pool_printf(t->pool, "%s/manifest.json", path);
    if (!manifest) return ERR_MEMORY;
    if (!file_exists(manifest)) {
        TRY(checkpoint_find_best(path, NULL, t->pool, &step));
        path = step;
    }
    t->job.resume = pool_printf(t->pool, "%s/model.safetensors", path);
    return t->job.resume ? ERR_NONE : ERR_MEMORY;
}

static enum error find_weights(struct cli_trained *t) {
    struct run_place place = {0};
    if (t->checkpoint) return weights_at(t, t->checkpoint);
    if (t->run_dir) return weights_at(t, t->run_dir);
    run_place_newest(&t->settings, &place);
    if (place.dir) {
        log_info("the newest run of '%s' is meant: %s", t->settings.config.name, place.dir);
        return weights_at(t, place.dir);
    }
    return FAIL(ERR_INPUT,
                "no run of '%s' with a checkpoint (log.dir %s)\ntrain it first: engine run%s%s; or "
                "name weights by --checkpoint",
                t->settings.config.name, t->settings.config.log.dir, t->path ? " " : "",
                t->path ? t->path : "");
}

enum error cli_trained_load(struct cli_trained *t) {
    enum error err = ERR_NONE;
    if (t->path) err = cli_run_dir(t->path, t->pool, &t->config.path, &t->run_dir);
    if (err != ERR_NONE) {
        cli_fail(err);
        return err;
    }
    TRY(cli_load(&t->config, &t->settings));
    t->job = (struct job){.settings = &t->settings,
                          .mode = t->settings.mode,
                          .console_out = STDOUT_FILENO,
                          .console_err = STDERR_FILENO,
                          .json = t->json,
                          .progress = true,
                          .process = {.rank = -1, .meeting_fd = -1},
                          .processes = 1};
    return ERR_NONE;
}

enum error cli_trained_ask(struct cli_trained *t, struct trainer **out) {
    TRY(cli_trained_load(t));
    TRY(cli_trained_weights(t));
    t->job.task = JOB_ASK;
    /* Numbers alone: what they stand for, data.characters may tell. */
    const struct preprocessing *known = t->job.known;
    if (known && known->set.base.type == SAMPLE_TOKENS && !known->text) t->job.known = NULL;
    enum error err = trainer_load(&t->job, out);
    if (err != ERR_NONE) cli_fail(err);
    return err;
}

enum error cli_trained_weights(struct cli_trained *t) {
    enum error err = find_weights(t);
    if (err == ERR_NONE) err = checkpoint_preprocessing(t->job.resume, t->pool, &t->job.known);
    if (err != ERR_NONE) cli_fail(err);
    return err;
}
