#include "cli/train/run_place.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/save/checkpoint.h"
#include "engine/save/run_record.h"
#include "engine/settings/run_config.h"
#include "engine/train/job_check.h"
#include "lab/results/result.h"

#include <string.h>

/* Whether the run's files say that it has ended, at its last checkpoint. A run that was stopped has not evaluated yet. */
static bool finished_has_ended(const struct job *job, const struct run_place *p, struct pool *pool,
                               struct run_result *r) {
    const char *last = checkpoint_newest_step(p->dir, p->run_id, pool);
    int64_t step;
    if (!last || run_result_summary(p->dir, pool, r) != ERR_NONE || strcmp(r->run_id, p->run_id) != 0) return false;
    if (run_result_metrics(p->dir, false, pool, r) != ERR_NONE || !run_result_ended(r)) return false;
    if (!strcmp(r->event, "stopped")) return false;
    return job_check_resume(job, last, &step) == ERR_NONE && step == r->steps;
}

/* Whether it ended by a target that is this job's, or a harder one. */
static bool finished_target_reached(const struct train_config *c, const struct run_result *r) {
    if (!c->until_metric || strcmp(r->event, "target reached") != 0) return false;
    const struct metric *m = metric_find(c->until_metric);
    return metric_reaches(m, metric_is_val(m) ? r->val_of[m - metric_table] : r->train_loss, c->until_value);
}

/* Whether this job would make no step after that end. The ranks report what is wrong with its data. */
static enum error finished_none_left(const struct job *job, const struct run_result *r, bool *none) {
    const struct train_config *c = &job->settings->config.train;
    struct config_errors *errors;
    struct job_facts facts;
    *none = c->patience_metric && !strcmp(c->patience_metric, r->patience) && r->waits >= c->patience_most;
    *none = *none || finished_target_reached(c, r);
    if (c->length.unit == SPAN_SECONDS) *none = *none || r->train_s >= c->length.value;
    if (*none || c->length.unit == SPAN_SECONDS) return ERR_NONE;
    TRY(config_errors_create(&errors));
    *none = job_check(job, errors, &facts) == ERR_NONE && r->steps >= facts.steps;
    config_errors_free(errors);
    return ERR_NONE;
}

static enum error finished_print(const struct job *job, struct pool *pool) {
    enum { MOST = 1 << 20 };
    char *text;
    size_t n;
    TRY(file_read(pool_printf(pool, "%s/summary.json", job->run_dir), MOST, pool, &text, &n));
    TRY(file_write_console(job->console_out, text, n));
    return file_write_console(job->console_out, "\n", 1);
}

static enum error finished_look(const struct job *job, const struct run_place *p, struct pool *pool, bool *finished) {
    struct run_result *r = pool_alloc(pool, sizeof *r);
    if (!r) return ERR_MEMORY;
    if (finished_has_ended(job, p, pool, r)) TRY(finished_none_left(job, r, finished));
    if (*finished && run_record_read(p->dir, pool).code) TRY(run_choice_write(p, pool)); /* a start since has failed */
    if (!*finished || job->console_out < 0) return ERR_NONE;
    log_info("already finished (%lld steps); nothing to do", (long long)r->steps);
    log_info("hint: to train longer: engine run %s --set train=...", p->dir);
    return job->json ? finished_print(job, pool) : ERR_NONE;
}

enum error run_finished(const struct job *job, const struct run_place *p, bool *finished) {
    const struct run_config *c = &job->settings->config;
    bool alone = c->run.nodes == 1 && (!c->launched.by || c->launched.size == 1);
    struct pool *pool;
    *finished = false;
    if (!alone || p->fresh || p->elsewhere || !p->resume) return ERR_NONE;
    TRY(pool_create(&pool));
    enum error err = finished_look(job, p, pool, finished);
    pool_free(pool);
    return err;
}
