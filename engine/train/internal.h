/* What the files of train/ share among themselves. */
#pragma once
#include "engine/train/sink.h"
#include "engine/train/trainer.h"

#include <sched.h>

MUST_CHECK enum error trainer_open(struct trainer *t);
void trainer_close(struct trainer *t);
/* For messages: what this rank and its device are at. */
void trainer_note(struct trainer *t, const char *doing);
const struct optim_ops *trainer_optim(const struct run_config *c);
/* The optimizer's state and what trainer_norm and the others need. */
MUST_CHECK enum error update_open(struct trainer *t);
void update_close(struct trainer *t);
/* What a header says, of gradients or of values. */
struct step_sums header_sums(const float *header);

/* ---- scaling.c: the loss's scale in fp16 ---- */
bool scaling_on(const struct trainer *t);
void scaling_open(struct trainer *t);
float scaling_factor(const struct trainer *t); /* 1 where it is off */
/* Sets t->scale, takes the scale out of the partial sums of squares, and t->sums.skipped when they are not finite. */
void scaling_undo(struct trainer *t, double *partial, int64_t blocks);
void scaling_follow(struct trainer *t); /* after each step, on every rank */

/* ---- timers.c: forward and backward of an asynchronous device, which the host's clock does not see ---- */
enum timed { TIMED_BEGIN, TIMED_MIDDLE, TIMED_END, TIMED_PLACES };
MUST_CHECK enum error timers_open(struct trainer *t);
void timers_close(struct trainer *t);
MUST_CHECK enum error timers_mark(struct trainer *t,
                                  enum timed place); /* of one piece after another */
/* Device and host at one point of time, from where the trace counts. */
void timers_anchor(struct trainer *t);
/* At a step's end, when the device has been waited for: the step's phases as they were. */
void timers_settle(struct trainer *t, const int64_t before[PHASES]);

/* That each shard of each batch has as many samples as the model's batchnorms need. */
MUST_CHECK enum error batches_check(const struct trainer *t);
/* Rank 0 begins with first weights or a checkpoint; mode->start gives all of it to the others, the
 * counters, the run's id and the normalisation are given here. */
MUST_CHECK enum error trainer_begin(struct trainer *t);
void trainer_view(struct trainer *t, struct checkpoint_view *v);
/* The values as the host can read them: *copy is to be freed; NULL where they lie there anyway. */
MUST_CHECK enum error trainer_values(const struct trainer *t, const float **values, void **copy);
/* What must be equal for a resume to be exact: "key=value\n" lines, in the settings' pool. NULL:
 * out of memory. */
const char *trainer_identity(const struct job *job);
/* The same of what the data hold: numbers of samples, and digests of these. */
MUST_CHECK enum error data_identity(const struct trainer *t, const char **out);
/* A digest of that; "" where all ranks read the same files anyway. */
MUST_CHECK enum error data_digest(const struct trainer *t, char out[SHA256_TEXT]);

/* Threads that serve a rank (loader, saver) run on any core of the process, not on the one that the
 * rank is bound to. */
void affinity_note(void); /* before the first rank is bound */
void affinity_free(cpu_set_t *bound);
void affinity_restore(const cpu_set_t *bound);

/* JOB_EVALUATE: the whole of it, between trainer_open and trainer_close. */
MUST_CHECK enum error trainer_judge(struct trainer *t);

/* ---- metrics and the summary ---- */
/* "key": {"loss": ..., "accuracy": ..., "top5": ..., "perplexity": ..., "samples": ...} */
void val_json(const struct val_result *v, const char *key, struct json *j);
/* "loss 0.1234, accuracy 98.20 %, top-5 99.90 %, perplexity 5.21": what there is. */
char *val_text(const struct val_result *v, char out[160]);
struct metrics;
/* Of a job whose training begins behind 'step', and is to end with 'steps'. */
MUST_CHECK enum error metrics_open(const struct job *job, int64_t step, int64_t steps,
                                   struct metrics **out);
void metrics_start(struct metrics *m, int64_t step, const char *run_id, int64_t steps,
                   int64_t per_epoch);
void metrics_step(struct metrics *m, const struct step_record *r);
void metrics_val(struct metrics *m, int64_t step, const struct val_result *v);
void metrics_event(struct metrics *m, int64_t step, const char *event, const char *text);
/* The last step is complete, and can be read by others: before a checkpoint of it. */
void metrics_flush(struct metrics *m);
/* Of step times, in ms: of the job's own steps, the last 65,536 where there are more. NaN: of none. */
void metrics_percentiles(struct metrics *m, double *p50, double *p95);
void metrics_close(struct metrics *m);

struct moved { /* bytes to and from other ranks, of each */
    double sent[RANKS_MAX], received[RANKS_MAX];
};
struct summary { /* what the end of a run says */
    const char *mode, *run_dir, *run_id;
    int devices;
    int64_t shards, steps, epochs;
    int64_t first_step; /* of a resumed run: times and bytes are of the steps behind it */
    double train_loss;
    struct val_result val;
    bool has_val;
    double step_p50, step_p95, samples_per_s;
    double time_s[PHASES], hidden_s, total_s;
    int ranks, processes;
    /* By the steps; before the first of them (first weights); by evaluation and saving. */
    struct moved steps_moved, start_moved, paused_moved;
    double rss[RANKS_MAX], state[RANKS_MAX];
    double loss_scale;    /* fp16; else 0 */
    int64_t skipped;      /* steps, fp16 */
    const char *planted;  /* what goes wrong on purpose, NULL: nothing */
    const char *compress; /* how gradients were, NULL: not */
    double dense, packed; /* bytes that they would have taken, and took, over all ranks */
    struct staleness {    /* dp.staleness */
        const struct run_config *of; /* NULL: it was 0 */
        double mean, most;           /* updates between the weights of a gradient and its own */
        double idle; /* workers: share of their steps in which they did not compute */
    } stale;
    char weights[SHA256_TEXT], losses[SHA256_TEXT];
};
MUST_CHECK enum error summary_json(const struct summary *s, struct json *out);
/* Prints the table (or the JSON object) on the console and writes summary.json. */
MUST_CHECK enum error summary_show(const struct summary *s, const struct job *job);

/* ---- progress ---- */
struct progress;
struct progress_state {
    int64_t step, steps, epoch, epochs;
    double loss, accuracy, lr, samples_per_s, ms, comm_exposed; /* comm: share of the step */
};
MUST_CHECK enum error progress_open(const struct job *job, struct progress **out);
/* At most a few times a second on a terminal; a plain line when 'line' elsewhere. */
void progress_show(struct progress *p, const struct progress_state *s, bool line);
void progress_say(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_close(struct progress *p);
