/* A rank's run: the state of the loop between steps. */
#pragma once
#include "engine/save/checkpoint.h"
#include "engine/tell/tell.h"
#include "engine/train/internal.h"

struct carried { /* bytes through this rank's port */
    int64_t sent, received;
};
struct pause { /* what lies between steps: evaluation and saving */
    int64_t began;
    struct carried before;
};
struct tuning;
struct run {
    struct trainer *t;
    const struct step_ops *step;
    struct metrics *metrics; /* rank 0 only, as are the next two */
    struct progress *progress;
    struct saver *saver;
    int64_t log_every, saved, first_step;
    struct val_result val;
    bool has_val, val_is_new;
    bool ending;                      /* the last step was the last, as a rank wanted it, ... */
    bool stopped, timed_out, reached; /* ... by a signal or since the time is over; train.until is reached */
    bool tired;                       /* train.patience is over */
    bool renews;                      /* the run ends here, to continue from this checkpoint with all devices */
    int64_t checkpoints;              /* that were due */
    bool settled;                     /* what was due after the last step has been done */
    struct learned learned;           /* by the last step */
    double samples;
    struct step_record *waiting; /* rank 0: of steps whose sums are not known yet, the last one's */
    int64_t nwaiting;            /* behind */
    int64_t started, step_ns, paused_ns;
    struct carried start, paused; /* start: before the first step */
    struct tuning *tuning;        /* NULL: there is none */
};
/* loop.c */
MUST_CHECK enum error run_carried(const struct run *r, struct carried *out);
/* What is between these two belongs to no step. */
MUST_CHECK enum error run_pause(const struct run *r, struct pause *out);
MUST_CHECK enum error run_pass_over(struct run *r, const struct pause *p, int64_t *now);
MUST_CHECK enum error run_evaluate(struct run *r);
MUST_CHECK enum error run_save(struct run *r, bool best);
bool run_is_better(const struct run *r); /* than what has been seen, by checkpoint.best's metric */
int64_t run_save_every(const struct trainer *t);
/* rescue.c: where sharing.rescues, rank 0 saves the last step that has ended when another rank is lost. */
MUST_CHECK enum error rescue_begin_step(struct trainer *t);
void rescue_save(struct run *r);
/* conclude.c: the last evaluation and checkpoint, and the summary. */
MUST_CHECK enum error run_conclude(struct run *r);

/* ---- tuning.c: what sharing.tunes is chosen by the time of the run's own first steps ---- */
/* Collective, before the first step, when rank 0 has its outputs. */
MUST_CHECK enum error tuning_open(struct run *r);
void tuning_close(struct tuning *t); /* NULL is fine */
void tuning_step_begin(struct run *r);
MUST_CHECK enum error tuning_step_end(struct run *r, int64_t ns); /* the step took so long on this rank */
struct summary;
MUST_CHECK enum error tuning_tell(const struct run *r, struct summary *s);
/* Which of n choices is taken, by the ms of each in each round, (rounds, n); the first is the default. */
int tuning_choose(const double *ms, int rounds, int n);
