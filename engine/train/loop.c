/* The loop: steps, and what happens between them. Everything that decides (when to evaluate, save,
 * stop) is a function of numbers that are the same on every rank, so all ranks take the same turns
 * and no turn needs a message. */
#include "engine/train/inject.h"
#include "engine/train/run.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/optim/schedule.h"
#include "engine/settings/run_config.h"
#include "engine/train/stop.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool step_due(int64_t every, int64_t step) {
    return every > 0 && step % every == 0;
}

static bool step_evaluates(const struct trainer *t, int64_t step) {
    return step_due(span_steps(t->config->eval.every, t->per_epoch), step);
}

int64_t run_save_every(const struct trainer *t) {
    return span_steps(t->config->checkpoint.every, t->per_epoch);
}

bool trainer_meets(const struct trainer *t, int64_t step) {
    return step >= t->steps || step_evaluates(t, step) || step_due(run_save_every(t), step);
}

int64_t trainer_meets_every(const struct trainer *t) {
    int64_t evaluates = span_steps(t->config->eval.every, t->per_epoch), saves = run_save_every(t);
    return evaluates > 0 && (saves <= 0 || evaluates < saves) ? evaluates : saves;
}

/* What is known of a step when it ends: all but its sums. */
static void step_note(struct run *r, int64_t ns, const int64_t before[PHASES]) {
    struct trainer *t = r->t;
    struct step_record *s = &r->waiting[r->nwaiting++];
    *s = (struct step_record){.step = t->at.step,
                              .epoch = t->at.epoch,
                              .lr = t->rate.now,
                              .norm = t->rate.norm,
                              .ms = (double)ns * 1e-6,
                              .loss_scale = t->at.loss_scale,
                              .noise = (double)NAN,
                              .signal = (double)NAN};
    for (int i = 0; i < PHASES; i++) s->phase_ms[i] = (double)(t->phase_ns[i] - before[i]) * 1e-6;
}

/* Steps to the last of which all ranks have met: what that took is a part of each of them. */
static void share_times(struct step_record *s, int64_t n) {
    double ms = 0, phase_ms[PHASES] = {0};
    for (int64_t k = 0; k < n; k++) {
        ms += s[k].ms;
        for (int i = 0; i < PHASES; i++) phase_ms[i] += s[k].phase_ms[i];
    }
    for (int64_t k = 0; k < n; k++) {
        s[k].ms = ms / (double)n;
        for (int i = 0; i < PHASES; i++) s[k].phase_ms[i] = phase_ms[i] / (double)n;
    }
}

static void step_report(struct run *r, struct step_record *record, const struct step_sums *sums) {
    const struct trainer *t = r->t;
    double samples = (double)sums->samples;
    double accuracy = !t->feed.data->classes ? (double)NAN : samples > 0 ? (double)(sums->correct / sums->samples) : 0;
    record->loss = sums->loss;
    record->accuracy = (float)accuracy;
    record->samples = samples;
    record->skipped = sums->skipped;
    metrics_step(r->metrics, record);
    bool timed = isfinite(trainer_budget(t));
    struct progress_state s = {.step = record->step,
                               .steps = timed ? 0 : t->steps,
                               .epoch = (record->step - 1) / t->per_epoch + 1,
                               .epochs = timed ? 0 : (t->steps + t->per_epoch - 1) / t->per_epoch,
                               .seconds = t->at.seconds,
                               .budget = trainer_budget(t),
                               .last = record->step == t->stop || (r->ending && record->step == t->at.step),
                               .loss = (double)sums->loss,
                               .accuracy = accuracy,
                               .lr = record->lr,
                               .ms = record->ms,
                               .samples_per_s = samples / record->ms * 1e3,
                               .comm_exposed = record->phase_ms[PHASE_COMM] / record->ms};
    progress_show(r->progress, &s, step_due(r->log_every, record->step));
}

/* ---- what lies between steps ---- */

enum error run_carried(const struct run *r, struct carried *out) {
    struct mode_stats s;
    TRY(r->step->stats(r->t->mode, &s));
    *out = (struct carried){s.sent, s.received};
    return ERR_NONE;
}

enum error run_pause(const struct run *r, struct pause *out) {
    out->began = clock_ns();
    return run_carried(r, &out->before);
}

enum error run_pass_over(struct run *r, const struct pause *p, int64_t *now) {
    struct carried after;
    TRY(run_carried(r, &after));
    *now = clock_ns();
    r->paused_ns += *now - p->began;
    r->paused.sent += after.sent - p->before.sent;
    r->paused.received += after.received - p->before.received;
    return ERR_NONE;
}

static enum error end_pause(struct run *r, enum trace_kind kind, const struct pause *p) {
    int64_t now;
    TRY(run_pass_over(r, p, &now));
    if (r->t->trace) trace_span(r->t->trace, kind, TRACE_COMPUTE, p->began, now);
    return ERR_NONE;
}

/* ---- one step, and what the ranks agree on after it ---- */

/* Step 'step' had these sums, on every rank. */
static enum error step_learn(struct run *r, int64_t step, const struct step_sums *sums, struct step_record *record) {
    struct trainer *t = r->t;
    t->at.loss = isnan(sums->loss) ? (float)NAN : sums->loss; /* of either sign, it is recorded alike */
    r->samples += (double)sums->samples;
    r->ending = sums->stop;
    if (t->rank == 0) {
        sha256_update(&t->at.losses, &t->at.loss, sizeof t->at.loss);
        step_report(r, record, sums);
    }
    if (isfinite(sums->loss)) return ERR_NONE;
    return FAIL(ERR_RESULT, "diverged: the loss of step %lld is %g\nlower optimizer.lr, or set optimizer.clip",
                (long long)step, (double)t->at.loss);
}

/* Makes all ranks agree on why this step was the last: a signal is any rank's reason, time is when there was none.
 * They end by SIGINT unless any was asked by SIGTERM.
 * What is saved then has spent the whole time, whichever rank's clock was the first to say so. */
static enum error end_early(struct run *r) {
    struct trainer *t = r->t;
    struct pause pause;
    TRY(run_pause(r, &pause));
    const int own = stop_signal();
    double asked[] = {own != 0, own == SIGINT};
    TRY(r->step->sum(t->mode, asked, 2));
    TRY(run_pass_over(r, &pause, &(int64_t){0}));
    r->stopped = asked[0] > 0;
    r->timed_out = !r->stopped;
    if (r->stopped) stop_with_others(asked[1] < asked[0] ? SIGTERM : SIGINT);
    if (r->timed_out) t->at.seconds = fmax(t->at.seconds, trainer_budget(t));
    return ERR_NONE;
}

/* The noise of the step that has ended. What that takes belongs to no step. */
static enum error measure_noise(struct run *r) {
    struct trainer *t = r->t;
    struct pause pause;
    TRY(run_pause(r, &pause));
    TRY(noise_learn(t));
    if (t->rank == 0) r->waiting[r->nwaiting - 1].noise = t->noise.noise;
    if (t->rank == 0) r->waiting[r->nwaiting - 1].signal = t->noise.signal;
    return run_pass_over(r, &pause, &(int64_t){0});
}

static enum error step_take(struct run *r) {
    struct trainer *t = r->t;
    struct learned *known = &r->learned;
    TRY(tracing_step_begin(t));
    int64_t begin = t->began = clock_ns(), before[PHASES];
    memcpy(before, t->phase_ns, sizeof before);
    tuning_step_begin(r);
    noise_begin_step(t);
    device_note(t->device, "training", t->at.step);
    r->settled = true;
    TRY(rescue_begin_step(t));
    TRY(r->step->run(t->mode, known));
    r->settled = t->at.rescued = false;
    if (t->graph) graph_values_changed(t->graph);
    timers_settle(t, before);
    inject_settle(t);
    tracing_step_end(t, begin);
    scaling_follow(t);
    t->at.step++;
    t->at.step_in_epoch++;
    if (t->at.step_in_epoch == t->per_epoch) t->at.step_in_epoch = 0, t->at.epoch++;
    int64_t took = clock_ns() - begin;
    r->step_ns += took;
    t->at.seconds += clock_seconds(took);
    if (t->rank == 0) step_note(r, took, before);
    if (t->noise.due) TRY(measure_noise(r));
    if (t->rank == 0 && known->count > 1) share_times(r->waiting, known->count);
    for (int64_t i = 0; i < known->count; i++)
        TRY(step_learn(r, t->at.step - known->count + 1 + i, &known->of[i], r->waiting ? &r->waiting[i] : NULL));
    if (known->count) r->nwaiting = 0;
    TRY(tuning_step_end(r, took));
    return r->ending ? end_early(r) : ERR_NONE;
}

/* checkpoint.best's metric; NULL: off. */
static const struct metric *best_metric(const struct run *r) {
    return metric_find(r->t->config->checkpoint.best);
}

static double metric_now(const struct run *r, const struct metric *m) {
    return metric_value(m, &r->val, (double)r->t->at.loss);
}

bool run_is_better(const struct run *r) {
    const struct metric *m = best_metric(r);
    if (!m || !r->val_is_new) return false;
    return metric_beats(m, (struct best){metric_now(r, m), r->val.loss},
                        (struct best){r->t->at.best, r->t->at.best_loss});
}

static void note_best(struct run *r) {
    r->t->at.best = metric_now(r, best_metric(r));
    r->t->at.best_loss = r->val.loss;
}

enum error run_evaluate(struct run *r) {
    struct trainer *t = r->t;
    char text[VAL_TEXT];
    struct pause pause;
    TRY(run_pause(r, &pause));
    trainer_note(t, "evaluation");
    TRY(r->step->share_buffers(t->mode));
    TRY(trainer_evaluate(t, t->feed.val, &r->val));
    r->has_val = r->val_is_new = true;
    TRY(end_pause(r, TRACE_EVALUATION, &pause));
    if (t->rank > 0) return ERR_NONE;
    metrics_val(r->metrics, t->at.step, &r->val);
    progress_say(r->progress, "step %lld: validation %s", (long long)t->at.step, val_text(&r->val, text));
    return ERR_NONE;
}

/* Collects the optimizer state of the ranks' slices, straight into the memory that the saver writes from. */
static enum error collect_state(struct run *r) {
    struct trainer *t = r->t;
    if (t->rank == 0 && !update_is_whole(t)) saver_state(r->saver, t->arena.whole);
    enum error err = r->step->collect(t->mode);
    memset(t->arena.whole, 0, sizeof t->arena.whole);
    return err;
}

enum error run_save(struct run *r, bool best) {
    struct trainer *t = r->t;
    struct pause pause;
    TRY(run_pause(r, &pause));
    trainer_note(t, "saving a checkpoint");
    TRY(r->step->share_buffers(t->mode));
    TRY(trainer_share_average(t));
    TRY(r->step->gather(t->mode));
    TRY(collect_state(r));
    if (best) note_best(r);
    r->saved = t->at.step;
    if (t->rank == 0) metrics_flush(r->metrics); /* a resume finds all steps up to this one */
    if (t->rank == 0) TRY(saver_save(r->saver, best));
    return end_pause(r, TRACE_CHECKPOINT, &pause);
}

/* Notes the metric that ends the run and its step, before a checkpoint is saved: a run that continues from it has to end
 * there, too. */
static void note_target(struct run *r) {
    const char *metric = r->t->config->train.until_metric;
    const struct metric *m = metric ? metric_find(metric) : NULL;
    if (!m || (metric_is_val(m) ? !r->val_is_new : !r->learned.count)) return;
    r->t->at.target = (struct target){metric_now(r, m), (double)r->t->at.step};
}

static bool target_reached(const struct run *r) {
    const struct train_config *c = &r->t->config->train;
    const struct target *known = &r->t->at.target;
    if (!c->until_metric || known->at <= 0 || known->at != (double)r->t->at.step) return false;
    return metric_reaches(metric_find(c->until_metric), known->value, c->until_value);
}

static bool is_tired(const struct run *r) {
    const struct train_config *c = &r->t->config->train;
    return c->patience_metric && r->t->at.patience.waits >= (double)c->patience_most;
}

/* An evaluation has been made; after a loss perhaps for the second time. */
static void wait_for_better(struct run *r) {
    const struct train_config *c = &r->t->config->train;
    struct patience *p = &r->t->at.patience;
    if (!c->patience_metric || p->seen == (double)r->t->at.step) return;
    const struct metric *m = metric_find(c->patience_metric);
    double value = metric_now(r, m), than = p->best + (m->rises ? c->min_delta : -c->min_delta);
    p->seen = (double)r->t->at.step;
    if (p->at == 0 ? !isnan(value) : metric_better(m, value, than))
        p->best = value, p->at = p->seen, p->waits = 0;
    else
        p->waits++;
    r->tired = is_tired(r);
    if (r->tired && r->t->rank == 0)
        progress_say(r->progress, "step %lld: %s has not improved in %lld evaluations; the best is %.6g, of step %lld",
                     (long long)r->t->at.step, c->patience_metric, (long long)p->waits, p->best, (long long)p->at);
}

/* "lost ranks 1, 3"; what another launcher has lost is not known. */
static void name_change(const struct job_change *c, char *out, int size) {
    int more = c->to - c->from, n = snprintf(out, (size_t)size, c->nlost > 1 ? "lost ranks " : "lost rank ");
    if (c->nlost)
        text_of_numbers(c->lost, c->nlost, out + n, (size_t)(size - n));
    else
        snprintf(out, (size_t)size, "%d device%s %s", abs(more), abs(more) > 1 ? "s" : "", more > 0 ? "more" : "fewer");
}

/* The first step with other devices has ended. Where another launcher has started these ranks, or a user, only the
 * checkpoint says that there were others before. */
static void tell_change(struct run *r) {
    const struct trainer *t = r->t;
    const struct job_change own = {.began = t->at.devices, .from = t->at.devices, .to = t->standing.workers};
    const struct job_change *c = t->job->change ? t->job->change : &own;
    char what[256], when[64] = "";
    if (!c->from || c->from == c->to) return; /* or what came was lost again */
    double seconds = c->seen ? clock_seconds(clock_ns() - c->seen) : (double)NAN;
    metrics_devices(r->metrics, r->first_step, c, seconds);
    name_change(c, what, sizeof what);
    if (c->seen) snprintf(when, sizeof when, ", the next step came %.2f s later", seconds);
    progress_say(r->progress, "%s: %d devices, after %d, go on from step %lld%s", what, c->to, c->from,
                 (long long)r->first_step, when);
}

static bool is_over(const struct run *r) {
    return r->t->at.step >= r->t->stop || r->stopped || r->timed_out || r->reached || r->tired;
}

/* A checkpoint is due that may be the one from which all devices are tried again. Whether it has come to the disk only
 * rank 0 knows. */
static enum error look_for_devices(struct run *r) {
    struct trainer *t = r->t;
    const struct job_change *c = t->job->change;
    double renews = 0;
    if (!c || !c->wait || is_over(r)) return ERR_NONE;
    bool tries = ++r->checkpoints >= c->wait || (t->rank == 0 && t->job->comes && t->job->comes(t->job->user));
    if (t->rank == 0 && tries) renews = saver_wait(r->saver) == ERR_NONE;
    TRY(r->step->sum(t->mode, &renews, 1));
    r->renews = renews > 0;
    return ERR_NONE;
}

/* What is due after a step. */
static enum error step_settle(struct run *r) {
    struct trainer *t = r->t;
    if (step_evaluates(t, t->at.step)) {
        TRY(run_evaluate(r));
        wait_for_better(r);
    }
    note_target(r);
    bool best = run_is_better(r), saves = step_due(run_save_every(t), t->at.step);
    if (best || saves) TRY(run_save(r, best));
    r->reached = target_reached(r);
    return saves ? look_for_devices(r) : ERR_NONE;
}

static enum error run_steps(struct run *r) {
    struct trainer *t = r->t;
    r->timed_out = t->at.seconds >= trainer_budget(t); /* of a resumed run */
    r->tired = is_tired(r);
    r->reached = target_reached(r);
    if (t->at.rescued) TRY(step_settle(r));
    while (!is_over(r) && !r->renews) {
        r->val_is_new = false;
        TRY(step_take(r));
        if (r->metrics && t->at.step == r->first_step + 1) tell_change(r);
        TRY(step_settle(r));
    }
    return ERR_NONE;
}

/* ---- the whole ---- */

static enum error open_outputs(struct run *r) {
    struct trainer *t = r->t;
    const struct run_config *c = t->config;
    r->log_every = span_steps(c->log.every, t->per_epoch);
    r->saved = t->kept ? t->at.step : -1;
    r->first_step = t->at.step;
    if (t->rank > 0) return ERR_NONE;
    struct checkpoint_view v;
    trainer_view(t, &v);
    const char *folder = pool_printf(t->job->settings->pool, "%s/ckpt", t->job->run_dir);
    if (!v.identity || !folder) return ERR_MEMORY;
    cpu_set_t bound;
    affinity_free(&bound);
    enum error err = saver_open(folder, (int)c->checkpoint.keep, &v, &r->saver);
    affinity_restore(&bound);
    TRY(err);
    int64_t most = c->sharing.every < t->steps ? c->sharing.every : t->steps;
    r->waiting = calloc((size_t)most + 1, sizeof *r->waiting);
    if (!r->waiting) return FAIL(ERR_MEMORY, "no memory for the records of %lld steps", (long long)most);
    TRY(metrics_open(t->job, t->at.step, t->steps, &r->metrics));
    TRY(progress_open(t->job, &r->progress));
    if (t->job->resume) metrics_event(r->metrics, t->at.step, "resumed", t->job->resume);
    bool timed = isfinite(trainer_budget(t));
    metrics_start(r->metrics, &(struct sink_event){.step = t->at.step,
                                                   .run_id = t->run_id,
                                                   .steps = timed ? 0 : t->steps,
                                                   .per_epoch = t->per_epoch,
                                                   .budget = timed ? trainer_budget(t) : 0,
                                                   .seconds = t->at.seconds});
    banner_show(r->progress, t);
    return ERR_NONE;
}

static enum error run_steps_and_end(struct run *r) {
    TRY(open_outputs(r));
    TRY(tuning_open(r));
    r->started = clock_ns();
    TRY(run_carried(r, &r->start));
    TRY(run_steps(r));
    if (!r->renews) return run_conclude(r);
    *r->t->job->renews = true;
    return ERR_NONE;
}

/* Seconds that a device still has to end what it was asked for, once that is for nobody. */
static const double LAST_PATIENCE = 5;

/* Ends a run that failed with err: the other ranks learn it first; then what this rank holds and has recorded is written,
 * without losing err's message. */
static enum error run_fail(struct run *r, enum error err) {
    struct trainer *t = r->t;
    char words[ERROR_WORDS];
    if (t->device) t->device->params.timeout = fmin(t->device->params.timeout, LAST_PATIENCE);
    if (t->mode) t->job->mode->step->abort(t->mode, error_words(words, sizeof words));
    error_words(words, sizeof words);
    if (err == ERR_PEER || err == ERR_TIMEOUT) rescue_save(r);
    tracing_finish(t);
    return FAIL(err, "%s", words);
}

enum error trainer_run(const struct job *job, int rank, const struct place *place) {
    struct trainer *t = calloc(1, sizeof *t);
    if (!t) return FAIL(ERR_MEMORY, "no memory for a rank");
    *t = (struct trainer){.job = job, .config = &job->settings->config, .rank = rank, .place = place};
    struct run r = {.t = t, .step = job->mode->step};
    enum error err = trainer_open(t);
    if (t->standing.ranks > 1) snprintf(t->name, sizeof t->name, "rank %d", rank);
    log_set_prefix(t->name);
    if (err == ERR_NONE) err = job->task == JOB_EVALUATE ? trainer_judge(t) : run_steps_and_end(&r);
    if (err != ERR_NONE) err = run_fail(&r, err);
    progress_close(r.progress);
    saver_close(r.saver);
    metrics_close(r.metrics);
    free(r.waiting);
    tuning_close(r.tuning);
    trainer_close(t);
    log_set_prefix("");
    free(t);
    return err;
}
