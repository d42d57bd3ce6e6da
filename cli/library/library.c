/* The public C interface (engine/engine.h), on the same functions as the commands. */
#include "cli/line/cli.h"
#include "cli/line/load.h"
#include "engine/engine.h"

#include "engine/base/file.h"
#include "engine/base/text.h"
#include "engine/base/version.h"
#include "engine/settings/job.h"
#include "engine/settings/run_config.h"
#include "engine/train/job_check.h"
#include "modes/modes.h"

#include <stdio.h>

const char *engine_version(void) {
    return ENGINE_VERSION;
}

const char *engine_message(void) {
    return error_message();
}

/* Loads the configuration and hands it to 'act', which is given the job. */
static int library_with_job(const char *config, const char *const *sets, int nsets,
                            enum error (*act)(struct job *, void *), void *user) {
    struct cli_config c = {.path = config};
    enum error err = ERR_NONE;
    for (int i = 0; i < nsets && err == ERR_NONE; i++) err = cli_set(&c, sets[i]);
    if (err != ERR_NONE) return error_exit_code(err);
    struct run_settings s;
    locale_t before = text_plain_numbers();
    err = cli_load(&c, &s);
    if (err == ERR_NONE) {
        struct job job = {.settings = &s,
                          .mode = s.mode,
                          .process = {.rank = -1},
                          .processes = 1,
                          .quiet = true,
                          .console_out = -1,
                          .console_err = 2};
        err = act(&job, user);
    }
    run_settings_free(&s);
    uselocale(before);
    return error_exit_code(err);
}

static enum error library_check(struct job *job, void *user) {
    return cli_check(job, user);
}

int engine_validate(const char *config, const char *const *sets, int nsets) {
    struct job_facts facts;
    return library_with_job(config, sets, nsets, library_check, &facts);
}

static enum error library_read_result(const char *dir, struct pool *pool, struct engine_result *out) {
    const struct json_value *v;
    char *path = pool_printf(pool, "%s/summary.json", dir);
    if (!path) return ERR_MEMORY;
    TRY(json_read(path, 1 << 20, (struct json_limits){8, 10000, 65536}, pool, &v));
    int64_t steps = 0;
    (void)json_get_int(v, "steps", INT64_MAX, &steps);
    *out = (struct engine_result){.steps = steps,
                                  .train_loss = json_number(json_get(v, "train"), "loss"),
                                  .val_loss = json_number(json_get(v, "val"), "loss"),
                                  .val_accuracy = json_number(json_get(v, "val"), "accuracy"),
                                  .samples_per_s = json_number(v, "samples_per_s"),
                                  .seconds = json_number(json_get(v, "time_s"), "total")};
    snprintf(out->weights_sha256, sizeof out->weights_sha256, "%s", json_text(v, "weights_sha256"));
    snprintf(out->losses_sha256, sizeof out->losses_sha256, "%s", json_text(v, "losses_sha256"));
    snprintf(out->run_dir, sizeof out->run_dir, "%s", json_text(v, "run_dir"));
    return ERR_NONE;
}

static enum error library_train(struct job *job, void *user) {
    if (job->mode->place == PLACE_PROCESSES)
        return FAIL(ERR_DEVICE,
                    "mode ddp starts processes of the engine program\nuse 'engine run', or modes single and dp here");
    int code = 0;
    TRY(cli_train(job, NULL, &code));
    return library_read_result(job->run_dir, job->settings->pool, user);
}

int engine_run(const char *config, const char *const *sets, int nsets, struct engine_result *out) {
    return library_with_job(config, sets, nsets, library_train, out);
}
