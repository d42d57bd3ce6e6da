/* Declarations that the files of train/ share. */
#pragma once
#include "engine/train/trainer.h"

#include <sched.h>

MUST_CHECK enum error trainer_open(struct trainer *t);
void trainer_close(struct trainer *t);
/* The current work of this rank and its device, for messages. */
void trainer_note(struct trainer *t, const char *doing);
/* Seconds of steps after which the run ends; infinite where train.for is no time. */
double trainer_budget(const struct trainer *t);
/* Gives t->tensors; of tasks but JOB_TRAIN all are alike. Names that the model lacks go to errors (ERR_CONFIG). */
MUST_CHECK enum error tensors_choose(struct trainer *t, struct config_errors *errors);
/* ---- criterion.c ---- */
/* Checks that the data are as the loss needs them; sets t->feed.class_weights, where it has any. */
MUST_CHECK enum error criterion_open(struct trainer *t);
MUST_CHECK enum error criterion_give(struct trainer *t); /* to t->graph, before anything is planned */
struct summary;
struct progress;
void criterion_tell(const struct trainer *t, struct summary *s);
void criterion_show(const struct trainer *t, struct progress *p); /* for the banner, where it is more than a name */
/* The optimizer's state and what trainer_norm and the others need. */
MUST_CHECK enum error update_open(struct trainer *t);
void update_close(struct trainer *t);
/* Has t->average whole on every rank; nothing to do where it is off, or has been since the last step. */
MUST_CHECK enum error trainer_share_average(struct trainer *t);
bool update_is_whole(const struct trainer *t); /* this rank steps the whole arena; else its slices, or nothing */
/* Plans the work of trainer_compute for such a batch; only its sizes matter. */
void compute_plan(struct trainer *t);      /* this rank's laps */
int compute_held(const struct trainer *t); /* passes that are between their forward and their backward, at most */
MUST_CHECK enum error compute_prepare(struct trainer *t, const struct step_batch *b);
/* The weights that a pass computes with. */
const float *compute_values(const struct trainer *t, bool trains);
/* Where weights come from other ranks: passes of none of this rank's samples, which others compute meanwhile. */
MUST_CHECK enum error compute_idle(struct trainer *t, int64_t passes, bool trains);
/* What a header says, of gradients or of values. */
struct step_sums header_sums(const float *header);

/* ---- scaling.c: the loss's scale in fp16 ---- */
bool scaling_on(const struct trainer *t);
void scaling_open(struct trainer *t);
float scaling_factor(const struct trainer *t); /* 1 where it is off */
/* Sets t->rate.scale, takes the scale out of the partial sums of squares, and t->sums.skipped when they are not finite. */
void scaling_undo(struct trainer *t, double *partial, int64_t blocks);
void scaling_follow(struct trainer *t); /* after each step, on every rank */

/* Checks that each shard of each batch has as many samples as the model's batchnorms need. */
MUST_CHECK enum error batches_check(const struct trainer *t);
/* Rank 0 begins with first weights or a checkpoint; mode->start gives all of it to the others, the
 * counters, the run's id and the normalisation are given here. */
MUST_CHECK enum error trainer_begin(struct trainer *t);
void trainer_view(struct trainer *t, struct checkpoint_view *v);
/* An arena's values as the host can read them: *copy is to be freed; NULL where they lie there anyway. */
MUST_CHECK enum error trainer_values(const struct trainer *t, const float *arena, const float **values, void **copy);
/* What must be equal for a resume to be exact: "key=value\n" lines, in the settings' pool. NULL:
 * out of memory. */
const char *trainer_identity(const struct job *job);
/* The same for the data: numbers of samples, and digests of the samples. */
MUST_CHECK enum error data_identity(const struct trainer *t, const char **out);
/* A digest of the validation samples themselves, also of those that the engine draws. */
MUST_CHECK enum error data_val_digest(const struct trainer *t, uint32_t *out);
/* A digest of that; "" where all ranks read the same files anyway. */
MUST_CHECK enum error data_digest(const struct trainer *t, char out[SHA256_TEXT]);

MUST_CHECK enum error rescue_open(struct trainer *t); /* the mode is open; see run.h */

/* Lets threads that serve a rank (loader, saver) run on any core of the process, not only on the rank's core. */
void affinity_note(void); /* before the first rank is bound */
void affinity_free(cpu_set_t *bound);
void affinity_restore(const cpu_set_t *bound);

/* ---- answers.c: which validation samples are classified rightly ---- */
struct answers;
/* Gives t->answers, where samples have one class each. */
MUST_CHECK enum error answers_open(struct trainer *t);
void answers_close(struct trainer *t);
/* One evaluation: at its begin, and of each shard of this rank with its outputs, (n, classes). */
void answers_begin(struct answers *a);
void answers_take(struct answers *a, const struct shard *s, int64_t classes, const float *y);
/* The end of a run, on all ranks: rank 0 writes RUN/validation.safetensors, of the last evaluation if that was of
 * the last step; else it removes what an earlier end has left. */
MUST_CHECK enum error answers_conclude(struct trainer *t, bool measured);

/* ---- tracing.c: log.trace's range of steps ---- */
/* Rank 0, before the others receive its range: whether there is one ahead. What an earlier run has left is removed
 * while nobody can have written yet. What goes wrong, here and later, is only reported: a run is as good without. */
bool tracing_range(const struct trainer *t);
/* Every rank, with rank 0's range. Gives t->trace, also where this rank will have nothing to write, since it is one of
 * those that compare clocks; NULL where 'first' is 0. */
MUST_CHECK enum error tracing_open(struct trainer *t, int64_t first, int64_t last);
void tracing_close(struct trainer *t);
/* Before a step begins, and when it has ended. Collective at the first step of the range. */
MUST_CHECK enum error tracing_step_begin(struct trainer *t);
void tracing_step_end(struct trainer *t, int64_t began);
bool tracing_has(const struct trainer *t, int64_t step); /* whether the range has it, on every rank the same */
/* No more steps: what has been recorded is written, if it is not yet. */
void tracing_finish(struct trainer *t);
/* Rank 0, when all ranks have written: merges. Of how many ranks there is a trace.json now. */
int tracing_conclude(struct trainer *t);

/* ---- timers.c: an accelerator's forward and backward, which the host's clock does not see ---- */
enum timed { TIMED_BEGIN, TIMED_MIDDLE, TIMED_END, TIMED_PLACES };
MUST_CHECK enum error timers_open(struct trainer *t);
void timers_close(struct trainer *t);
MUST_CHECK enum error timers_mark(struct trainer *t, enum timed place); /* of one piece after another */
/* Device and host at one point of time, from where the trace counts. */
void timers_anchor(struct trainer *t);
/* Sets the step's phases from the timers, at a step's end, when the device has been waited for. */
void timers_settle(struct trainer *t, const int64_t before[PHASES]);

/* Says on the progress what run begins. */
void banner_show(struct progress *p, const struct trainer *t);

/* JOB_EVALUATE: the whole of it, between trainer_open and trainer_close. */
MUST_CHECK enum error trainer_judge(struct trainer *t);
/* ---- the gradient-noise scale (train.noise_scale), in t->noise: noise.c ---- */
MUST_CHECK enum error noise_open(struct trainer *t);
void noise_close(struct trainer *t);
/* Decides whether the step that begins is measured: t->noise.due, on every rank. */
void noise_begin_step(struct trainer *t);
/* Where it is due: the gradient of the rank's shard number 'shard' is complete in [from, upto) of the arena. */
MUST_CHECK enum error noise_measure(struct trainer *t, int shard, float *grads, int64_t from, int64_t upto);
/* When such a step has ended, on every rank: t->noise.noise and .signal on the rank that knows the gradient's norm. */
MUST_CHECK enum error noise_learn(struct trainer *t);
/* The mean of the later half of what was measured, at most of NOISE_KEPT steps; *count: of how many. */
struct noise_pair noise_mean(const struct gradient_noise *n, int64_t *count);
