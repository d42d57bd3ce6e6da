/* The reports of a run about itself: its steps' times and numbers, the summary, the progress on a terminal. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/json.h"
#include "engine/base/limits.h"
#include "engine/settings/held.h"
#include "engine/settings/sharing.h"
#include "engine/tell/sink.h"

struct job;
struct run_config;
struct unreadable;

/* ---- metrics and the summary ---- */
/* "key": {"loss": ..., "accuracy": ..., ..., "samples": ...}: all metrics of validation. */
void val_json(const struct val_result *v, const char *key, struct json *j);
/* "loss 0.1234, accuracy 98.20 %, top-5 99.90 %, perplexity 5.21": what there is. */
enum { VAL_TEXT = 256 };
char *val_text(const struct val_result *v, char out[VAL_TEXT]);
struct metrics;
/* Begins the report of a job whose training begins after 'step', and is to end with 'steps'. */
MUST_CHECK enum error metrics_open(const struct job *job, int64_t step, int64_t steps, struct metrics **out);
/* What is said of "started", but for its name. */
void metrics_start(struct metrics *m, const struct sink_event *e);
void metrics_step(struct metrics *m, const struct step_record *r);
void metrics_val(struct metrics *m, int64_t step, const struct val_result *v);
void metrics_event(struct metrics *m, int64_t step, const char *event, const char *text);
/* The job's change, and how long after that the next step had ended. */
void metrics_devices(struct metrics *m, int64_t step, const struct job_change *change, double seconds);
/* The last step is complete, and can be read by others: before a checkpoint of it. */
void metrics_flush(struct metrics *m);
/* Of step times, in ms: of the job's own steps, the last 65,536 where there are more. NaN: of none. */
void metrics_percentiles(struct metrics *m, double *p50, double *p95);
void metrics_close(struct metrics *m);

struct moved { /* bytes to and from other ranks, of each */
    double *sent, *received;
};
/* How a choice by the run's own first steps (sharing.tunes) was made. */
enum tuned_by { TUNED_BY_NOTHING /* none is asked for */, TUNED_ALONE, TUNED_KEPT, TUNED_OPEN, TUNED_MEASURED };
struct tuned_told {
    enum tuned_by by; /* ALONE: there was one choice; KEPT: an earlier part of the run; OPEN: not all steps came */
    const char *const *name; /* (n), of the choices; the first is the default */
    const double *ms;        /* (n), of a step: the median of its rounds; NULL: not measured */
    int n, chosen;
    int64_t steps; /* that it took */
};
struct summary { /* what the end of a run says */
    const char *mode, *run_dir, *run_id;
    int devices, began; /* began: with how many, where some were lost; else 0 */
    int lost, back;     /* of devices, likewise */
    int64_t shards, steps, epochs;
    int64_t first_step;          /* of a resumed run: times and bytes are of the steps after it */
    int64_t parameters, trained; /* of the model, and those that are not frozen */
    const char *ended;           /* why: finished, stopped, ... */
    struct summary_patience {
        const char *metric; /* of train.patience; NULL: it is off */
        double best;
        int64_t step, waits; /* of the best; evaluations since */
    } patience;
    double train_s; /* that all steps took, those before a resume, too */
    bool again;     /* time was over, and a run of as many steps gives the same weights */
    double train_loss;
    struct val_result val;
    bool has_val;
    struct best_checkpoint {
        const char *path;   /* NULL: none is kept as the best */
        const char *metric; /* checkpoint.best */
        double value;
        int64_t step;
    } best;
    double step_p50, step_p95, samples_per_s;
    double time_s[PHASES], hidden_s, total_s;
    double loading_s; /* of the processor, by the threads that read rank 0's samples; 0: it reads none */
    int ranks, processes;
    /* By the steps; before the first of them (first weights); by evaluation and saving. */
    struct moved steps_moved, start_moved, paused_moved;
    double *rss, *state;        /* of each process, of each rank */
    double *held[HELD_PARTS];   /* bytes, of each rank */
    double loss_scale;          /* fp16; else 0 */
    int64_t skipped;            /* steps, fp16 */
    const char *loss;           /* where it is not its name alone; else NULL */
    double smoothing;           /* its own */
    const float *class_weights; /* (classes); NULL: none */
    int64_t classes;
    /* Files that were left out as they cannot be read, of both parts; NULL: none was tried, or they are the same. */
    const struct unreadable *unreadable[2];
    const char *planted;             /* what goes wrong on purpose, NULL: nothing */
    const char *compress;            /* how gradients were, NULL: not */
    double dense, packed;            /* bytes that they would have taken, and took, over all ranks */
    struct staleness {               /* of a server that does not wait */
        const struct run_config *of; /* NULL: it waits */
        double mean, most;           /* updates between the weights of a gradient and its own */
        double idle;                 /* workers: share of their steps in which they did not compute */
    } stale;
    struct stages_told {    /* mode pipeline */
        int stages, copies; /* stages 0: there are none */
        int64_t passes;     /* micro-batches of a step, of the copy with the most */
        double bubble;      /* the share of a step in which a stage waits, if all take as long */
        double waited;      /* that in which they did wait for each other */
    } pipeline;
    struct noise_told {       /* train.noise_scale: means of the later half of what was measured */
        double noise, signal; /* of a sample's gradient: the trace of its covariance, and its mean's squared norm */
        int64_t count, batch; /* steps that they are of (0: none was measured); samples of a step */
    } noise;
    struct tuned_told tuned[TUNABLES];
    char weights[SHA256_TEXT], losses[SHA256_TEXT];
    char average[SHA256_TEXT]; /* of the weights (ema); "": there is none */
};
/* Zeroed lists, in the pool, for this number of ranks (and as many processes at most), of which there is at least one. */
MUST_CHECK enum error summary_lists(struct summary *s, int ranks, struct pool *pool);
MUST_CHECK enum error summary_json(const struct summary *s, struct json *out);
/* Prints the table (or the JSON object) on the console and writes summary.json. */
MUST_CHECK enum error summary_show(const struct summary *s, const struct job *job);

/* ---- progress ---- */
struct progress;
struct progress_state {
    int64_t step, steps, epoch, epochs; /* steps, epochs: of the whole run; 0: unknown */
    double seconds, budget;             /* of steps: spent, and to be spent; infinite where steps are known */
    bool last;
    double loss, accuracy, lr, samples_per_s, ms, comm_exposed; /* accuracy: NaN without classes; comm: share of the
                                                                 * step */
};
MUST_CHECK enum error progress_open(const struct job *job, struct progress **out);
/* At most a few times a second on a terminal; a plain line when 'line' elsewhere; the last in any case. */
void progress_show(struct progress *p, const struct progress_state *s, bool line);
void progress_say(struct progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void progress_close(struct progress *p);
