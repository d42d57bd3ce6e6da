/* What eval, predict and generate have in common: the configuration of a run, and which of
 * its checkpoints is meant. */
#include "cli/use/trained.h"

#include "cli/line/cli.h"
#include "cli/train/run_place.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/save/checkpoint.h"
#include "engine/train/trainer.h"
#include "modes/modes.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- which weights ---- */

/* A step folder's model, a file itself, or the best of a folder of them. */
static enum error weights_at(struct cli_trained *t, const char *path) {
    struct stat st;
    char *step;
    if (stat(path, &st) != 0)
        return FAIL(ERR_INPUT, "no checkpoint '%s'\ngive a step's folder, a run's folder, or a .safetensors file",
                    path);
    t->job.resume = path;
    if (!S_ISDIR(st.st_mode)) return ERR_NONE;
    const char *manifest = pool_printf(t->pool, "%s/manifest.json", path);
    if (!manifest) return ERR_MEMORY;
    if (!file_exists(manifest)) {
        TRY(checkpoint_find_best(path, NULL, t->pool, &step));
        path = step;
    }
    return checkpoint_weights(path, t->raw, t->pool, &t->job.resume);
}

static enum error find_weights(struct cli_trained *t) {
    struct run_place place = {0};
    if (t->checkpoint) return weights_at(t, t->checkpoint);
    if (t->run_dir) return weights_at(t, t->run_dir);
    run_place_newest(&t->settings, &place);
    if (place.dir) {
        log_info("using the newest run of '%s': %s", t->settings.config.name, place.dir);
        return weights_at(t, place.dir);
    }
    return FAIL(ERR_INPUT,
                "no run of '%s' with a checkpoint (log.dir %s)\ntrain it first: engine run%s%s; or "
                "name weights by --checkpoint",
                t->settings.config.name, t->settings.config.log.dir, t->path ? " " : "", t->path ? t->path : "");
}

/* RUN/ckpt/STEP instead of RUN: that checkpoint is meant. */
static enum error take_checkpoint(struct cli_trained *t) {
    const char *manifest = t->path ? pool_printf(t->pool, "%s/manifest.json", t->path) : NULL;
    if (!manifest || t->checkpoint || !file_exists(manifest)) return ERR_NONE;
    t->checkpoint = t->path;
    t->path = pool_printf(t->pool, "%s/../..", t->path);
    return t->path ? ERR_NONE : ERR_MEMORY;
}

enum error cli_trained_load(struct cli_trained *t) {
    if (!t->config.asks) t->config.asks = ASKS_THERE;
    enum error err = take_checkpoint(t);
    if (err == ERR_NONE && t->path) err = cli_run_dir(t->path, t->pool, &t->config.path, &t->run_dir);
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

enum error cli_alone(struct cli_config *c) {
    static const char *const sets[] = {"mode=single", "devices=cpu:1", "batch.shards=1", "batch.size=1"};
    c->asks = ASKS_HERE;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) TRY(cli_set_first(c, sets[i]));
    return ERR_NONE;
}

enum error cli_trained_open(struct cli_trained *t, struct pool *pool, struct trainer **out) {
    *out = NULL;
    t->pool = pool;
    enum error err = cli_alone(&t->config);
    if (err != ERR_NONE) return cli_fail(err), err;
    TRY(cli_trained_load(t));
    TRY(cli_trained_weights(t));
    t->job.task = JOB_ASK;
    /* Numbers alone: what they stand for, data.characters may tell. */
    const struct preprocessing *known = t->job.known;
    if (known && known->set.base.type == SAMPLE_TOKENS && !known->text) t->job.known = NULL;
    err = trainer_load(&t->job, out);
    if (err != ERR_NONE) cli_fail(err), *out = NULL;
    return err;
}

void cli_trained_close(struct cli_trained *t, struct trainer *trainer) {
    trainer_unload(trainer);
    run_settings_free(&t->settings);
}

enum error cli_trained_weights(struct cli_trained *t) {
    enum error err = find_weights(t);
    if (err == ERR_NONE) err = checkpoint_preprocessing(t->job.resume, t->pool, &t->job.known);
    if (err != ERR_NONE) cli_fail(err);
    return err;
}
