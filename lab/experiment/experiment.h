/* An experiment: one configuration, varied. Its sides are the question (the first one is side A): named sets of keys, or
 * the values of the matrix's first axis. The other axes are the conditions under which it is asked; each cell is a run's
 * configuration, and each pair two cells that differ in their side alone.
 *
 *   name: ps-vs-ring
 *   base: {model: {zoo: mlp, hidden: [1024, 256]}, batch: 256, train: 60st}     # or a file, seen from this one
 *   matrix:
 *     mode: [dp, ddp]
 *     devices: [cpu:1, cpu:2]
 *   repeats: auto
 *
 *   sides: {dp: {mode: dp}, ddp: {mode: ddp}, int8: {mode: ddp, comm.compress: int8}}
 *   repeats: {seeds: 8}                                                        # run k of every cell has seed k
 *   tune: {optimizer.lr: log 1e-4..1e-1, budget: 16 runs}                      # each side at its best (tune.h)
 *
 * A cell that has a 'command' runs that instead of the engine (docs/compare-your-scripts.md). */
#pragma once
#include "engine/settings/run_config.h"
#include "lab/experiment/tune.h"
#include "lab/numbers/statistics.h"
#include "lab/results/measure.h"

enum {
    EXPERIMENT_AXES = 8,
    EXPERIMENT_VALUES = 32,
    EXPERIMENT_CELLS = 512,
    EXPERIMENT_MEASURES = 16,
    EXPERIMENT_GATES = 32,
    EXPERIMENT_LABEL = 80,
    EXPERIMENT_ASKED = 64,
    EXPERIMENT_PAIRS = 2048,
    EXPERIMENT_AUTO = 10,     /* repeats: auto makes at most this many, unless the experiment sets another number */
    EXPERIMENT_LEAST_RUNS = 4 /* fewer say nothing of one pair */
};
struct experiment_axis {
    const char *key; /* "side" of named sides, whose values are maps of keys */
    bool named;
    int count;
    const struct node *value[EXPERIMENT_VALUES];
    const char *label[EXPERIMENT_VALUES]; /* no two the same: the second "ddp" is "ddp#2" */
};
/* How the runs of a cell are started: 'engine run', or an external command. Lists end with NULL. */
struct experiment_start {
    const char *const *command;   /* the command's words; NULL: 'engine run' */
    const char *const *under;     /* words before either: srun -N 2, mpirun -np 2, nice */
    const char *const *variables; /* "NAME=value" */
    const char *const *hosts;     /* a process on each, by ssh; the first is the master. NULL: this one */
    int nhosts;
    const struct node *keys; /* all of that as it was given */
};
struct experiment_cell {
    const char *label;       /* "dp devices=cpu:2" */
    const char *name;        /* of its folder: label and digest, of characters that files have */
    int at[EXPERIMENT_AXES]; /* which value of each axis */
    struct experiment_start start;
    struct run_settings settings;   /* of a command: the tree, and config.devices alone */
    const char *config;             /* YAML that 'engine run' takes; a command finds it at ENGINE_CONFIG */
    char digest[17];                /* of the resolved configuration and of the engine's build; of a command and of
                                       the files that its words name */
    struct result_setting *setting; /* the resolved configuration */
    int nsettings;
};
struct experiment_pair {
    int cell[2];
};
struct experiment_gate {
    const char *text;
    const struct node *place; /* for errors */
};
struct experiment {
    const char *name;
    const char *command; /* to run it again; NULL: not known */
    const char *folder;  /* of its file: where commands work */
    double timeout;      /* seconds that a run may take; 0: any number */
    int naxes;
    struct experiment_axis axis[EXPERIMENT_AXES];
    bool weak;      /* the batch grows with the devices */
    bool model_fit; /* links that are not emulated are measured before the runs */
    const char
        *asked[EXPERIMENT_ASKED + 1]; /* the keys that are the question, in which sides may differ; NULL ends them */
    bool all_pairs;                   /* each side against each other one, not only against A */
    int repeats;                      /* runs of a cell */
    int most; /* with repeats: auto the maximum, where 'repeats' runs decide too little; else the same */
    struct tune tune;
    const struct tuned *tuned;      /* what has come of it; NULL: nothing is tuned, or not yet */
    int nseeds;                     /* 0: all runs have the configuration's */
    int64_t seeds[STATISTICS_RUNS]; /* of each repeat */
    int64_t warmup;
    double confidence, practical; /* practical: of ratios; each measure has its own */
    uint64_t seed;                /* of the order of runs */
    int nmeasures;
    struct measure measure[EXPERIMENT_MEASURES]; /* the first one is what verdicts are about */
    int ngates;
    struct experiment_gate gate[EXPERIMENT_GATES];
    int ncells, npairs;
    struct experiment_cell *cell;
    struct experiment_pair *pair;
    struct pool *pool;
};

/* The two experiments of one that is tuned: its tries as a further axis, with the seeds of tuning and no pairs; and the
 * comparison of what was chosen for each cell. With neither, each cell has the first try, to be checked. */
struct experiment_search {
    bool alone; /* only the search is asked for: there may be one cell, and nothing is compared */
    const struct tune_try *tries;
    int ntries;
    const struct tuned *tuned; /* what was chosen */
};
struct experiment_source {
    const char *path;        /* of the experiment; NULL: 'text' is it */
    const char *text;        /* made of options */
    const char *command;     /* that asks for it */
    int repeats;             /* instead of what it says; 0: not given */
    bool quick;              /* 'repeats' may be too few for verdicts; 0: one run */
    const char *const *sets; /* on top of its base */
    int nsets;
    const char *const *gates; /* beside its own */
    int ngates;
    const struct experiment_search *search; /* NULL: nothing is known of a search */
};
/* Reads it and checks every cell as a run's configuration, and that no pair differs in more than it should: all that is
 * wrong is in *report (in the experiment's pool) then, ERR_CONFIG; ERR_INPUT when a file is missing.
 * experiment_close in any case. */
MUST_CHECK enum error experiment_open(const struct experiment_source *source, struct experiment *out, char **report);
void experiment_close(struct experiment *x);
/* The configuration of a cell as a file of its own: without what experiments add to it. NULL: no memory. */
char *experiment_cell_file(const struct experiment *x, int cell);
/* Puts '-' for each character that a folder's name may not have; returns it. */
char *experiment_clean(char *name);
/* Pairs times measures: what is asked, whatever comes of it. */
int experiment_questions(const struct experiment *x);
/* "8 seeds are too few to compare seed by seed ...": so many runs are compared as two groups; NULL: they are not, or no
 * runs of two sides belong together, or there is no verdict anyway. */
const char *experiment_too_few(const struct experiment *x, int runs);
/* The cell at the same place but for the first axis, which is at 'side'; -1: it is excluded. */
int experiment_beside(const struct experiment *x, int cell, int side);

/* Whether a device computes the same whatever this key's value, and only shares its work in another way. */
bool setting_shares(const char *key);
/* Whether an external command ran with these settings. */
bool settings_of_command(const struct result_setting *s, int n);
struct setting_difference {
    const char *key, *a, *b; /* "": there is none */
    bool guarded;            /* a fair comparison has it equal: it decides what is computed, or slows it,
                      or how gradients are used */
    bool computes;           /* the first */
};
/* The settings that differ, at most 'most' of them; how many there are. Left out: the keys at and below those that are
 * asked (NULL: none; NULL ends them), and what only names a run. */
int settings_differ(const struct experiment_cell *a, const struct experiment_cell *b, const char *const *asked,
                    struct setting_difference *out, int most);
