/* The trainer: one rank's engine and the loop that drives it. Model, data, optimizer, schedule,
 * checkpoint and metrics are the same code in every mode; what differs is in step_ops.
 *
 *   trainer_run      opens all, loops over steps, evaluates, saves, ends: the whole life of a rank
 *   trainer_compute  the next batch -> forward, backward of this rank's shards -> sum in grads[0]
 *   trainer_norm, trainer_measure, trainer_update
 *                    clip -> learning rate -> optimizer, on this rank's slices of the arena
 */
#pragma once
#include "engine/data/loader.h"
#include "engine/data/weights.h"
#include "engine/model/graph.h"
#include "engine/save/checkpoint.h"
#include "engine/settings/job.h"
#include "engine/settings/mode.h"
#include "engine/settings/training.h"
#include "engine/tell/trace.h"

struct place; /* the mode's */
struct run_config;
struct val_result;
enum { GRAD_ARENAS = 38 }; /* subtrees of a run of leaves, partial sums of their laps, and one for accumulation */

struct step_sums { /* of the global batch, the same on every rank */
    float loss;    /* mean over its samples */
    float correct, samples;
    bool stop;    /* it is the last, as a rank wants it: trainer_wants_end */
    bool skipped; /* fp16: the gradient was not finite, and nothing has changed */
};
struct learned { /* by a step: the sums of the last 'count' steps, it among them */
    const struct step_sums *of;
    int64_t count; /* 0: a later step will report it (ranks that step alone) */
};
/* The floats of the arena that this rank updates. Both ends are multiples of NORM_BLOCK, or the arena's own ends. */
struct slice {
    int64_t begin, end;
    int64_t at; /* where its optimizer state begins in each of trainer.slots */
};
struct standing {               /* of a rank among the others, and what that asks of its engine */
    int ranks;                  /* of the group */
    int worker, workers;        /* which of the computing devices this is (-1: none), and how many compute */
    int run, runs;              /* which of the runs of leaves is this device's, and how many there are */
    int seat, seats;            /* the same as worker, of those on this host; seats 0: all are */
    struct allocator allocator; /* for what peers read: values, grads[0], buffers */
    bool subtrees;              /* what leaves are the subtrees of a rank's run of leaves, each by itself */
    bool owns_state;            /* this rank steps the optimizer, on its slices */
    bool outer;                 /* it keeps a momentum of its own beside the optimizer's state: arenas.outer */
    const struct slice *slices; /* ascending, the mode's; NULL and owns_state: all is its slice */
    int nslices;
    const struct graph_source *source; /* of the weights, the mode's; NULL: they are there */
    /* The part of the model that this rank has, its exchanges with the ranks that have those before and after it, and how
     * many forwards of a step come before its first backward. NULL: the whole model. */
    const struct model_part *part;
    const struct graph_ends *ends;
    int64_t ahead;
    const int64_t *cuts;  /* of the arena, the mode's: where it waits for gradients; see graph_cuts */
    int ncuts, cuts_most; /* most: at any time of the run */
};
struct lag {        /* of a device that is slow on purpose */
    double by;      /* of this step; 0: it is as fast as it is */
    double owed;    /* ns of sleep that it has not slept yet; carried on, as sleeping is coarse */
    int64_t mark;   /* until when what it computed has been counted */
    int64_t unseen; /* ns slept that no phase has counted */
};
struct feed {                   /* what this rank computes with */
    struct dataset *data, *val; /* data: the training set, or what job->known says of it; then
                                   val is the set to evaluate, or NULL */
    const char *data_text;      /* rank 0, where checkpoints are read or saved: data_identity */
    struct normalization norm;
    float *class_weights;          /* of the loss, (classes); NULL: 1 each */
    void *class_memory;            /* of these, and of the set's counts */
    struct sample_weights weights; /* which the sampler draws by */
    struct loader *loader;
    struct sampler sampler;
    int *shards, nshards; /* this rank's: trainer_shards */
    struct lap {          /* a pass over some of them */
        int first, count; /* a power of two */
        int top, bottom;  /* it ends in grads[top], which is then added to the one before it, and so on */
    } * laps;             /* (nlaps), at most nshards */
    int nlaps;
    struct graph_member *members;   /* sync_batchnorm: this rank's shards, which are computed together */
    const struct step_batch *ahead; /* the next batch, which is on its way to the device; or NULL */
};
struct
    arenas { /* in the device's memory, parameters one after another; a rank with a part of the model uses its range */
    float *values, *buffers, *grads[GRAD_ARENAS];
    float *buffers_before;     /* this step; NULL: not needed */
    int leaving;               /* of grads: what leaves, side by side */
    int64_t apart;             /* floats from one to the next of those grads that leave; 0: only the first does */
    int nslots;                /* as the optimizer is configured */
    float *slots[OPTIM_SLOTS]; /* optimizer state of this rank's slices, one after another */
    float *whole[OPTIM_SLOTS]; /* rank 0, within mode->start and mode->collect, where ranks have
                                  slices: the state of the whole arena; else NULL */
    int64_t state_bytes;       /* of slots */
    float *average;            /* running mean of the values (ema), of this rank's slices; whole after
                                  mode->share_average; NULL: there is none */
    float *outer;              /* of the whole arena, the same on all ranks after mode->start; NULL: there is none */
};
struct measured {     /* of the gradient, in the host's memory; zero where other ranks measure */
    double *partials; /* sums of squares, by block of the arena */
    double *squares;  /* of tensors, nsquares: optim->nnorms by piece */
    int64_t nsquares;
};
struct tensors {     /* how the optimizer treats each of the model's parameters: tensors.c */
    int *group;      /* optimizer.groups */
    int *frozen;     /* it stays as it is: 1, or 0; NULL: none does */
    int64_t trained; /* of model->parameters */
    int64_t upto;    /* of the arena: none is trained from there on */
};
struct rate {
    double base, now; /* the learning rate: of the schedule's peak, of this step */
    double growth;    /* by which lr_scale has multiplied it */
    double norm;      /* norm of the last gradient; 0: not computed */
    float scale;      /* factor of the gradient: clipping, and the inverse of fp16's scale */
    int64_t updates;  /* updates of the optimizer in addition to one for each step */
};
enum { NOISE_KEPT = 4096 };
struct noise_pair { /* of a sample's gradient: the trace of its covariance, and the square of its mean's norm */
    double noise, signal;
};
struct gradient_noise { /* train.noise_scale: noise.c */
    bool due;           /* this step is measured */
    struct rule_span *spans;
    double *squares, *back; /* by this rank's shards and the model's parameters: the device's, the host's */
    double *shard;          /* (batch.shards, each): of a shard's gradient, where ranks have stages by parameter */
    int64_t each;
    double noise, signal;    /* of the last step that was measured */
    struct noise_pair *seen; /* (NOISE_KEPT): the last ones */
    int64_t count;
};
struct trainer {
    const struct job *job;
    const struct run_config *config;
    int rank;
    char name[16];             /* "rank 3", or empty when it is alone: before log lines */
    const struct place *place; /* how this rank finds the others, from mode->launch; NULL: none */

    struct mode *mode;
    struct standing standing; /* from mode->open */

    struct device *device;
    struct model *model;
    struct model_part part; /* of it, that this rank has: mostly the whole */
    struct graph *graph;
    struct feed feed;
    struct arenas arena;
    struct measured measured;
    struct update *update;
    const struct optim_ops *optim;
    struct tensors tensors;
    struct step_sums sums;
    float header[HEADER_FLOATS]; /* on its way to the values' */

    int64_t steps, per_epoch; /* of the whole run, and of an epoch */
    int64_t stop;             /* the step at which this part of it ends (train.stop): at most 'steps' */
    struct rate rate;
    struct gradient_noise noise;
    struct checkpoint_counters at;
    int64_t began;            /* the step that is computed, by clock_ns */
    int64_t averaged;         /* the step after which the average was shared last */
    bool resumed, kept;       /* it began from a checkpoint; which is one of this run's folder */
    bool others_held;         /* the samples that are evaluated were not all held out of training */
    char run_id[RUN_ID_TEXT]; /* rank 0's, on every rank; "": it has none */
    int64_t phase_ns[PHASES];
    int64_t waited_ns;       /* of the phase that runs: trainer_waited */
    struct trace *trace;     /* NULL: there is none */
    struct tracing *tracing; /* when it records; NULL likewise */
    struct timers *timers;   /* times of an asynchronous device's passes; NULL: the host's clock measures all */
    struct lag lag;          /* of a device that is slow on purpose */
    double *confusion;       /* (classes, classes) of the last evaluation; NULL: not counted */
    struct answers *answers; /* of the last evaluation to its samples; NULL: not counted */
};

/* Runs the whole life of one rank. On error, the others have been informed. */
MUST_CHECK enum error trainer_run(const struct job *job, int rank, const struct place *place);

/* A trained network to ask: data, model and graph of the job (mode single, JOB_ASK) with the weights
 * of job->resume, on the calling thread. The graph computes with values and buffers. */
MUST_CHECK enum error trainer_load(const struct job *job, struct trainer **out);
void trainer_unload(struct trainer *t); /* NULL is fine */

/* ---- what modes call ---- */
/* Opens the rank's device. Called from mode->open, once worker (and where hosts are several, seat and seats) are known and before
 * the group is: t->device, which the group may have to know. A rank that only serves has one where
 * their memory is apart from the host's. */
MUST_CHECK enum error trainer_open_device(struct trainer *t);
/* Computes this rank's gradients. grads[0] ends as the sum over its shards in tree order, its
 * header with their sums. 'ready' (may be NULL) is called as in graph_backward, when grads[0] is
 * final up to there. */
MUST_CHECK enum error trainer_compute(struct trainer *t, grad_ready_fn ready, void *user);
/* Takes the sums out of grads[0]'s header (which becomes zero), and puts them into values' header,
 * or takes them from there. */
MUST_CHECK enum error trainer_take_sums(struct trainer *t);
MUST_CHECK enum error trainer_put_sums(struct trainer *t);
void trainer_set_sums(struct trainer *t, const struct step_sums *sums);
MUST_CHECK enum error trainer_get_sums(struct trainer *t);
/* The update in its steps. Where ranks have slices, what one has measured the others need: partials
 * after trainer_norm (trainer_norm_blocks of them), squares after trainer_measure (when there are any). Both are
 * zero where others measure, so that their sum over the ranks is exact. */
MUST_CHECK enum error trainer_norm(struct trainer *t);
int64_t trainer_norm_blocks(const struct trainer *t); /* 0: the norm is not needed */
MUST_CHECK enum error trainer_measure(struct trainer *t);
MUST_CHECK enum error trainer_update(struct trainer *t, int slice);
/* The whole update, sums included, on a rank that has the whole arena. */
MUST_CHECK enum error trainer_update_all(struct trainer *t);
/* The same in steps: between begin and end the weights are updated up to each place of the arena that is asked for, one
 * after another (*at is 0 before the first). The sums are known after the end. */
MUST_CHECK enum error trainer_update_begin(struct trainer *t);
MUST_CHECK enum error trainer_update_until(struct trainer *t, int64_t end, int *at);
MUST_CHECK enum error trainer_update_end(struct trainer *t);
/* Notes that the optimizer has made 'more' updates beside one a step, for optimizers that count them. */
void trainer_count_updates(struct trainer *t, int64_t more);
/* Whether this rank wants the step that it computes to be the last: it was asked to stop, or its time is over. It ends
 * when all ranks have learned that, after this step or where they meet next. */
bool trainer_wants_end(const struct trainer *t);
/* Whether all ranks exchange something after that step, to evaluate, to save or to end. */
bool trainer_meets(const struct trainer *t, int64_t step);
/* Steps from one evaluation or checkpoint to the next, whichever is more frequent; 0: there are none. */
int64_t trainer_meets_every(const struct trainer *t);
/* Notes that this rank waited for others in what it computes: that time is PHASE_COMM's. */
void trainer_waited(struct trainer *t, int64_t ns);
/* How many arenas of gradients this rank has. */
int trainer_sums_held(const struct trainer *t);
/* Adds the time since *mark to a phase and moves the mark to now. */
void trainer_phase(struct trainer *t, enum phase phase, int64_t *mark);
/* The position at which a run of leaves begins (base/leaves.h), and the one before it ends. */
int trainer_leaf(const struct trainer *t, int run);
/* The shards of a run, in the order of the tree's leaves from left to right; gives how many. NULL: it only
 * counts them. */
int trainer_shards(const struct trainer *t, int run, int *shards);
/* The loader's batches for some shards (in training order, from the run's current position). */
MUST_CHECK enum error trainer_open_loader(struct trainer *t, const int *shards, int nshards, struct loader **out);

/* ---- within train/ ---- */
/* Every sample of the set once, over all ranks; the same result on every rank. Counts t->confusion and t->answers
 * where they are there. */
MUST_CHECK enum error trainer_evaluate(struct trainer *t, struct dataset *set, struct val_result *out);

/* Sum of v[0..n) in tree order: v with v + ceil(n/2), ... Destroys v. */
double tree_sum(double *v, int n);
/* Warns where the samples that are held out of a network's training files are not those of its training. */
MUST_CHECK enum error data_check_held(struct trainer *t, struct dataset *val);
