/* The results of an experiment's runs: medians, verdicts, whether both sides computed the same bits, doubts, and
 * whether its gates hold. */
#pragma once
#include "engine/base/json.h"
#include "lab/draw/table.h"
#include "lab/experiment/gate.h"
#include "lab/numbers/statistics.h"

#include <stdio.h>

enum { COMPARE_WARNINGS = 64, COMPARE_DIFFERENCES = 64 };
static const double COMPARE_CHANCE = 0.8; /* of telling a difference that is practical: what repeats: auto asks for */
struct compared_run {
    const char *dir; /* "cells/NAME/run-01": below the experiment's folder */
    struct run_result result;
    int repeat;     /* which of its cell */
    int again;      /* how often it was begun again, since a rank or a host was lost */
    double foreign; /* cores that other programs kept busy meanwhile; NaN: not known */
};
/* The predicted time of a step, from the computing that another cell has measured. */
struct compared_prediction {
    double step, formula; /* seconds: message by message, and by formula; NaN: none */
    double residual;      /* step / measured - 1 */
    double fit_error;     /* of the port, where it was fitted: the median, as a share; NaN */
    int from;             /* the cell that was measured; itself: nothing predicts it; -1: none */
    const char *port;     /* "emulated 1Gbit, 50us"; "": nothing is sent */
    const char *why;      /* there is no prediction; NULL: there is */
};
struct compared_cell {
    int nruns; /* up to the repeats, when it was interrupted */
    struct compared_run *run;
    /* Runs that end in the same weights are one training: how many there are, and which one each
     * run is. */
    int ntrainings, training[STATISTICS_RUNS];
    double value[EXPERIMENT_MEASURES][STATISTICS_RUNS];
    double median[EXPERIMENT_MEASURES]; /* NaN: of a run that has none */
    double spread;                      /* of the first measure: half of the runs lie so far apart, as a share */
    /* Beside the fewest devices, all else equal (one device: but for its links); NaN: there is no axis 'devices'. */
    double speedup, efficiency;
    struct compared_prediction predicted;
};
/* The result of one measure for a pair. */
struct compared_answer {
    bool judged; /* both sides have runs, with numbers */
    /* Independent samples of each side: runs, or trainings where the measure is about these. p and a verdict need
     * EXPERIMENT_LEAST_RUNS of each side. */
    int samples[2];
    bool equal;       /* the measure is about the training, and that is the same one on both sides, bit for bit */
    int unreached[2]; /* runs that never came to the goal, which count as the worst */
    int pairs;        /* runs of both sides that belong together by their repeat or seed, compared as pairs or not */
    struct noise noise;
    struct comparison statistics;
    enum verdict verdict;
    double power;       /* the chance that as many samples tell what is practical, by their noise; NaN */
    double apart;       /* of a time or a size: half of the samples of a side lie so far apart, as a share; NaN */
    const char *of_set; /* of accuracy: the part of the validation set in the difference, in words; NULL: not known */
    int needed; /* samples a side that tell it with COMPARE_CHANCE; 0: more than STATISTICS_RUNS, or not known */
};
struct compared_pair {
    int cell[2];
    struct compared_answer *answer; /* of each measure */
    bool comparable;                /* the axis changes nothing in what is computed, but how gradients are shared */
    bool held;                      /* and both have runs, so that their bits were held against each other: */
    bool same_losses, same_weights;
    /* where the losses are not the same: */
    int64_t step; /* first that differs; 0: none of those that both have */
    double loss[2];
    const char *tensor;                 /* first in the last checkpoint; NULL: both have none, or the same */
    struct setting_difference *differs; /* all, the axis among them */
    int ndiffers;
};
struct compared_gate {
    bool judged, passed; /* not judged: runs are missing */
    const char *words;
};
struct compared_model {   /* how near predictions come, where both times are there */
    int cells, sources;   /* that are predicted; that were measured for it */
    int silent;           /* that are neither */
    double median, worst; /* of the residuals, the first without their signs; NaN */
    int worst_cell;
};
struct compared {
    const struct experiment *x;
    int repeats; /* runs that each cell should have */
    bool complete;
    bool alike;     /* all cells compute the same by their settings, not only those of a pair */
    bool same_bits; /* and have the same losses and weights */
    struct compared_cell *cell;
    struct compared_pair *pair;
    struct compared_gate *gate;
    bool predicted; /* the cells' are filled in */
    struct compared_model model;
    int nwarnings, nnotes;
    const char *warning[COMPARE_WARNINGS], *note[COMPARE_WARNINGS];
    struct pool *pool;  /* the experiment's */
    const char *folder; /* "" for two runs */
};
/* Makes room for the runs; the caller puts them in (cell[i].run[nruns++]). folder: where the experiment lies. */
MUST_CHECK enum error compare_begin(const struct experiment *x, const char *folder, struct compared *out);
/* Computes answers and verdicts from the runs. */
MUST_CHECK enum error compare_judge(struct compared *c);
/* How many runs of each cell the first measure asks for, by the spread of those that there are: what tells a practical
 * difference of every pair with COMPARE_CHANCE, at least c->repeats and at most x->most. After compare_judge. */
int compare_wanted_repeats(const struct compared *c);
/* Finished runs as an experiment of a cell each, held against the first: read, checked to be comparable (but for the keys
 * at and below 'axis'; NULL: none), and judged: one run a side, so no verdict. x is to be closed. */
MUST_CHECK enum error compare_finished(const char *const *dirs, int n, const char *axis, struct experiment *x,
                                       struct compared *out);
/* Predicts every cell's step from one cell that computes the same on the fewest devices. What cannot be predicted says
 * why: it is no error. After compare_judge. */
void compare_predict(struct compared *c);
/* The median of a cell's independent samples; NaN: a run has none. */
double compare_median(const struct compared *c, int cell, const struct measure *m);
/* The median of a cell's runs, after the warm-up, in milliseconds; NaN: there is none. */
double compare_step_ms(const struct compared *c, int cell);
/* ERR_NONE, or ERR_RESULT with the first gate that does not hold. */
MUST_CHECK enum error compare_gates(const struct compared *c);

/* "ddp against dp, step_time: faster in 3 of 4, same in 1", of the first measure. */
const char *compare_sentence(const struct compared *c);
/* Why pairs have no verdict, and what would give them one; "": all have. */
const char *compare_untested(const struct compared *c);
/* "yes": losses and weights; "no: step 3 ..."; "-": what the axis changes is no question of bits,
 * or a side has not run. */
const char *compare_bits(const struct compared *c, const struct compared_pair *p);
/* "predicted from the step of ... alone: off by 3 % ..." */
const char *compare_model(const struct compared *c);
/* "faster", "less", "better", "same", ... of one of the measures; "better by less than 1 pt" of what is the same for all
 * that matters, and yet differs. */
const char *compare_verdict(const struct compared *c, const struct compared_pair *p, int measure);
/* The same as one word, for gates and programs: a small difference is "same". */
const char *compare_word(const struct compared *c, const struct compared_pair *p, int measure);
/* Whether it is such a small difference. */
bool compare_is_slight(const struct compared *c, const struct compared_answer *a);
/* What speaks against an answer, to be said in the same sentence: "half of the runs of a side lie 139 % apart"; "":
 * nothing. */
const char *compare_doubt(const struct compared *c, const struct compared_pair *p, int measure);
/* The smallest difference that matters: "1 pt", "2 %". */
const char *compare_practical(const struct compared *c, const struct measure *m);
/* "1.033× [1.01, 1.06]", "+0.4 pt [-0.1, +0.9]"; "-": there is none. */
const char *compare_effect(const struct compared *c, const struct compared_pair *p, int measure);
/* Fills in the notes: what more runs or seeds would tell, what the validation set allows, where an interval and p seem to
 * disagree. Part of compare_judge. */
void compare_notes(struct compared *c);
/* Finds the part of the validation set in a pair's difference in accuracy: of_set, and the error in its statistics. Part
 * of compare_judge. */
void compare_set(struct compared *c, const struct compared_pair *p, int measure);
/* What tuning may have missed, as an error of the first measure's difference. Part of compare_judge. */
void compare_choice(const struct compared *c, const struct compared_pair *p);
/* The tries of a cell that is tuned, in words: "adamw: val_accuracy is 95.2 % at optimizer.lr 0.003, the best of 8 tries
 * ...". */
const char *compare_tuned(const struct experiment *x, int cell);
/* All of it for people and programs: a row for each try, and an empty line; nothing where nothing is tuned. */
void compare_tuned_table(const struct experiment *x, void (*write)(const struct table *, FILE *), FILE *f);
void compare_tuned_json(const struct experiment *x, const char *key, struct json *j);
/* tuning.json and the best configurations. */
MUST_CHECK enum error compare_tuned_write(const struct experiment *x, const char *folder);
/* A measure's value, as tables have it: "93.10 %". */
const char *compare_value(const struct measure *m, double v, char out[32]);
/* The runs of both sides that belong to one repeat, by their numbers in their cells; gives how many. */
int compare_together(const struct compared *c, const struct compared_pair *p, int run[STATISTICS_RUNS][2]);
/* Whether it has a p: enough samples, and not the same training on both sides. */
bool compare_is_tested(const struct compared_answer *a);
/* Whether all runs have the same bits; which pairs have, and where they begin to differ. Part of compare_judge. */
MUST_CHECK enum error compare_all_bits(struct compared *c);
/* Warns of what makes the numbers doubtful. Part of compare_judge. */
void compare_doubts(struct compared *c);
void compare_warn(struct compared *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The same numbers for people and programs. */
void compare_table(const struct compared *c, FILE *f);
void compare_markdown(const struct compared *c, FILE *f);
void compare_csv(const struct compared *c, FILE *f);      /* a line a run */
void compare_verdicts(const struct compared *c, FILE *f); /* as csv, a line a pair and measure */
MUST_CHECK enum error compare_json(const struct compared *c, struct json *j);
/* results.json, .csv, .md and verdicts.csv in the folder. */
MUST_CHECK enum error compare_write(const struct compared *c);

/* The first tensor of the newest checkpoints that differs, where both runs have one of the same step; NULL: none. */
const char *compare_tensors(const char *a, const char *b, struct pool *pool);

/* The value of a quantity over the cell's runs: the median if it is a number. */
void quantity_value(const struct compared *c, const struct quantity *q, int cell, struct check_value *out);
void gate_judge(const struct compared *c, int gate, struct compared_gate *out);
