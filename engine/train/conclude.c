/* The end of a run: the last evaluation and checkpoint, what the ranks have counted, the summary. */
#include "engine/base/clock.h"
#include "engine/settings/compress.h"
#include "engine/settings/run_config.h"
#include "engine/train/run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void fill_times(struct run *r, struct summary *s, const double *shared) {
    for (int i = 0; i < PHASES; i++) s->time_s[i] = shared[i];
    s->hidden_s = shared[PHASES];
    s->total_s = clock_seconds(clock_ns() - r->started - r->paused_ns);
    s->samples_per_s = r->step_ns > 0 ? r->samples / clock_seconds(r->step_ns) : (double)NAN;
}

enum { PER_RANK = 15 + HELD_PARTS }; /* numbers */

/* What all ranks have counted, as gather lays it out. */
static void share_out(struct summary *s, const double *all) {
    double stale[5] = {0};
    for (int i = 0; i < s->ranks; i++) {
        const double *of = all + PER_RANK * i;
        s->steps_moved.sent[i] = of[0] - of[11] - of[13];
        s->steps_moved.received[i] = of[1] - of[12] - of[14];
        s->start_moved.sent[i] = of[11], s->start_moved.received[i] = of[12];
        s->paused_moved.sent[i] = of[13], s->paused_moved.received[i] = of[14];
        s->rss[i] = of[2], s->state[i] = of[3];
        for (int k = 0; k < HELD_PARTS; k++) s->held[k][i] = of[15 + k];
        s->dense += of[4], s->packed += of[5];
        for (int k = 0; k < 5; k++) stale[k] += of[6 + k];
    }
    s->stale.mean = stale[0] > 0 ? stale[1] / stale[0] : 0;
    s->stale.most = stale[2];
    s->stale.idle = s->pipeline.waited = stale[3] > 0 ? stale[4] / stale[3] : 0;
}

/* With their gradients, and scratch. */
static double activations_bytes(const struct graph *g) {
    struct graph_info info;
    graph_info(g, &info);
    return (double)(info.activation_bytes + info.scratch_bytes);
}

/* Rank 0's summary needs the others' bytes, memory and (of the first that computes) phases: one sum
 * of a vector in which every rank fills its own places. */
static enum error summary_gather(struct run *r, struct summary *s) {
    struct trainer *t = r->t;
    int ranks = s->ranks, n = PHASES + 1 + PER_RANK * ranks;
    double *v = calloc((size_t)n, sizeof *v);
    if (!v) return FAIL(ERR_MEMORY, "no memory for the summary");
    struct mode_stats stats;
    struct held held = {0};
    enum error err = r->step->stats(t->mode, &stats);
    if (!err) err = r->step->hold(t->mode, &held);
    if (t->standing.worker == 0) {
        for (int i = 0; i < PHASES; i++) v[i] = clock_seconds(t->phase_ns[i]);
        v[PHASES] = fmax(0, clock_seconds(stats.lane_ns - t->phase_ns[PHASE_COMM]));
    }
    double *mine = v + PHASES + 1 + PER_RANK * t->rank;
    mine[0] = (double)stats.sent, mine[1] = (double)stats.received, mine[2] = (double)memory_peak(),
    mine[3] = (double)t->arena.state_bytes;
    mine[4] = (double)stats.dense, mine[5] = (double)stats.packed;
    mine[6] = (double)stats.updates, mine[7] = (double)stats.old, mine[8] = (double)stats.oldest;
    mine[9] = (double)stats.stepped_ns, mine[10] = (double)stats.waited_ns;
    mine[11] = (double)r->start.sent, mine[12] = (double)r->start.received;
    mine[13] = (double)r->paused.sent, mine[14] = (double)r->paused.received;
    if (t->graph) held.of[HELD_ACTIVATIONS] = activations_bytes(t->graph);
    memcpy(mine + 15, held.of, sizeof held.of);
    if (!err) err = r->step->sum(t->mode, v, n);
    if (!err && t->rank == 0) err = summary_lists(s, ranks, t->job->settings->pool);
    if (!err && t->rank == 0) share_out(s, v + PHASES + 1);
    fill_times(r, s, v);
    free(v);
    return err;
}

static enum error hash_weights(const struct trainer *t, const float *arena, char out[SHA256_TEXT]) {
    const float *values;
    void *copy;
    TRY(trainer_values(t, arena, &values, &copy));
    checkpoint_weights_hash(t->model, values, out);
    memory_free(copy);
    return ERR_NONE;
}

/* Which checkpoint is kept as the best one. */
static enum error find_best(const struct run *r, struct best_checkpoint *out) {
    const struct trainer *t = r->t;
    struct checkpoint_place place;
    if (isnan(t->at.best)) return ERR_NONE;
    TRY(checkpoint_best(t->job->run_dir, t->run_id, t->job->settings->pool, &place));
    *out = (struct best_checkpoint){place.path, t->config->checkpoint.best, t->at.best, place.step};
    return ERR_NONE;
}

static void tell_stages(const struct trainer *t, struct stages_told *s) {
    const struct batch_config *b = &t->config->batch;
    s->stages = t->config->sharing.stages;
    s->copies = t->standing.runs;
    s->passes = leaves_cut((int)b->shards, s->copies, 1) * b->accumulate;
    s->bubble = sharing_bubble(s->stages, s->passes);
}

static void tell_noise(const struct trainer *t, struct noise_told *s) {
    const struct noise_pair mean = noise_mean(&t->noise, &s->count);
    s->noise = mean.noise, s->signal = mean.signal, s->batch = t->config->batch.size;
}

enum error run_conclude(struct run *r) {
    struct trainer *t = r->t;
    const struct run_config *c = t->config;
    bool best = false; /* by an evaluation that is made here, even where the step has been saved before it */
    /* If no metric decides about it, the last checkpoint comes to the disk while the evaluation runs. */
    bool saves = run_save_every(t) > 0;
    if (saves && r->saved != t->at.step && !metric_find(c->checkpoint.best)) TRY(run_save(r, false));
    if (!r->stopped && !r->val_is_new && c->eval.every.unit != SPAN_OFF) {
        TRY(run_evaluate(r));
        best = run_is_better(r);
    }
    if (best || (saves && r->saved != t->at.step)) TRY(run_save(r, best));
    struct summary s = {.mode = c->mode,
                        .run_dir = t->job->run_dir,
                        .run_id = t->run_id,
                        .devices = t->standing.workers,
                        .shards = c->batch.shards,
                        .steps = t->at.step,
                        .parameters = t->model->parameters,
                        .trained = t->tensors.trained,
                        .first_step = r->first_step,
                        .epochs = t->at.step / t->per_epoch,
                        .train_loss = (double)t->at.loss,
                        .val = r->val,
                        .has_val = r->has_val};
    s.ended = r->stopped              ? "stopped"
              : r->reached            ? "target reached"
              : r->tired              ? "no improvement"
              : r->timed_out          ? "time over"
              : t->at.step < t->steps ? "part finished"
                                      : "finished";
    s.patience =
        (struct summary_patience){c->train.patience_metric, t->at.patience.at > 0 ? t->at.patience.best : (double)NAN,
                                  (int64_t)t->at.patience.at, (int64_t)t->at.patience.waits};
    s.train_s = t->at.seconds;
    s.again = r->timed_out && c->deterministic != DETERMINISTIC_FALSE;
    s.ranks = t->standing.ranks;
    s.processes = t->job->processes;
    s.loss_scale = t->at.loss_scale;
    s.skipped = t->at.skipped;
    const struct job_change *change = t->job->change;
    if (change && (change->losses || change->returns))
        s.began = change->began, s.lost = change->losses, s.back = change->returns;
    if (c->sharing.compressed) s.compress = compress_name(&c->comm.compress);
    if (t->feed.loader) s.loading_s = loader_seconds(t->feed.loader);
    s.unreadable[0] = t->feed.data->unreadable;
    if (t->feed.val->unreadable != s.unreadable[0]) s.unreadable[1] = t->feed.val->unreadable;
    criterion_tell(t, &s);
    char planted[INJECT_TEXT];
    if (*inject_text(c, planted)) s.planted = planted;
    if (c->sharing.plan.by_turns) s.stale.of = c;
    if (c->sharing.stages > 1) tell_stages(t, &s.pipeline);
    TRY(tuning_tell(r, &s));
    if (t->noise.count) tell_noise(t, &s.noise);
    tracing_finish(t);
    TRY(summary_gather(r, &s)); /* all have written what they have recorded; what travels from here on is of no step */
    TRY(trainer_share_average(t));
    TRY(answers_conclude(t, !r->stopped && r->val_is_new));
    TRY(r->step->gather(t->mode)); /* for the weights' digest */
    if (t->rank > 0) return ERR_NONE;
    int traced = tracing_conclude(t);
    if (traced == t->standing.ranks)
        progress_say(r->progress, "trace %s/trace.json", s.run_dir);
    else if (traced)
        progress_say(r->progress, "trace %s/trace.json, of %d of %d ranks", s.run_dir, traced, t->standing.ranks);
    TRY(saver_wait(r->saver));
    TRY(find_best(r, &s.best));
    metrics_percentiles(r->metrics, &s.step_p50, &s.step_p95);
    TRY(hash_weights(t, t->arena.values, s.weights));
    if (t->arena.average) TRY(hash_weights(t, t->arena.average, s.average));
    sha256_hex(t->at.losses, s.losses);
    metrics_event(r->metrics, t->at.step, s.ended, NULL);
    progress_close(r->progress);
    r->progress = NULL;
    return summary_show(&s, t->job);
}
