/* The data of reports: cells of an experiment with their runs. A single run is an experiment with one cell. */
#pragma once
#include "engine/base/json.h"
#include "lab/numbers/statistics.h"
#include "lab/report/report.h"
#include "lab/results/result.h"

enum { REPORT_NEUTRAL = PLOT_COLOURS - 1 }; /* the colour of communication that no trace has divided */
enum { REPORT_SIDES = 7, REPORT_CELLS = 512, REPORT_RUNS = STATISTICS_RUNS, REPORT_COUNTS = 16, REPORT_METRICS = 16 };
/* The metrics of an experiment; the first is the main question. */
struct report_metric {
    const char *name, *words; /* "val_accuracy", "validation accuracy" */
    const char *ahead;        /* "is faster than" */
    enum plot_unit unit;
    double factor;   /* of what results.json has, to that unit */
    bool training;   /* it is of what was learned: runs that end in the same weights are copies */
    bool difference; /* sides are held against each other by B minus A, not by a ratio */
};
/* The result of a metric for B against A; NaN: not known. A ratio is turned so that above 1 B is ahead. */
struct report_answer {
    double estimate, low, high, p;
    const char *verdict, *words; /* words: as it is read; "" */
    const char *doubt;           /* what speaks against it; "" */
    enum plot_won won;           /* PLOT_FIRST: A */
    bool paired;                 /* runs are compared with those of the same repeat or seed */
    int64_t needed;              /* samples a side that would tell; 0: not known */
    int64_t unreached[2];        /* runs of A and of B that never got there */
};
struct report_cell {
    const char *label;      /* "dp, cpu:2, 1Gbit" */
    int side;               /* of the axis under test */
    int64_t devices, batch; /* batch: samples of a step, 0 when unknown */
    const char *place;      /* the other axes but devices: "model mlp, bandwidth 1Gbit"; "" */
    const char *work;       /* those of them that change what one device does: "model mlp"; "" */
    struct run_result *run; /* all that a report says of a cell beside its time is that of its first run */
    double *step_s;         /* of each run */
    int nruns;
    double median_s, predicted_s, formula_s; /* NaN: no model has said */
    double samples_per_s;                    /* of the steps after the warm-up: the runs' median */
    const char *why, *port;                  /* why there is no prediction; what it goes through; "" */
    bool reference;                          /* others are predicted from it */
    const struct json_value *settings;       /* the values of its axes, or NULL */
    const struct json_value *medians, *told; /* of its runs, by the name of each metric, or NULL; the runs */
};
struct report_pair {
    int a, b;                     /* cells */
    struct report_answer *answer; /* of each metric */
    const char *difference;
    int same; /* losses and weights, bit for bit: 1, 0; -1 unknown */
};
struct report_data {
    const char *path, *name, *scaling, *command;
    bool experiment;
    int64_t warmup;
    double confidence;
    const char *axis, *key[REPORT_SIDES],
        *side[REPORT_SIDES]; /* key: as results.json has it; side: as people read it */
    int nsides;
    struct report_metric metric[REPORT_METRICS];
    int nmetrics; /* one at least */
    int seeds;    /* the number of seeds of a cell's runs; 0: all runs have one seed */
    struct report_cell *cell;
    int ncells;
    struct report_pair *pair;
    int npairs;
    const struct json_value *root;        /* results.json, or NULL */
    const struct json_value *environment; /* an object, or NULL */
};
/* Copies of one training; a run that does not tell its weights is none. */
bool report_copies(const struct run_result *a, const struct run_result *b);
MUST_CHECK enum error report_metrics_read(struct report_data *d, struct pool *pool);
MUST_CHECK enum error report_data_read(const char *path, struct pool *pool, struct report_data *out);

/* ---- building ---- */
struct report_section *report_section(struct report *r, const char *id, const char *title);
/* A text in the report's pool; "" when there is no memory. */
const char *report_say(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The last part of a key: "bandwidth". */
const char *report_short(const char *key);
/* 'between' only where there is text before. */
const char *report_join(struct report *r, const char *text, const char *between, const char *more);
/* The text with a capital first letter. */
const char *report_title(struct report *r, const char *text);
void report_paragraph(struct report_section *s, const char *text);
void report_print(struct report *r, struct report_section *s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* A zeroed array in the pool. */
MUST_CHECK enum error report_take(struct report *r, size_t n, size_t size, void *out);
/* The next plot of the section, with room for series; NULL when it is full: the section then says so. */
MUST_CHECK enum error report_plot(struct report *r, struct report_section *s, enum plot_kind kind, int series,
                                  struct plot **out);
MUST_CHECK enum error report_table(struct report *r, struct report_section *s, const char *title, int columns, int rows,
                                   const char *const *heads, struct table **out);
/* The places of the cells, each once, in their order; gives how many. */
int report_places(const struct report_data *d, const char *place[REPORT_CELLS]);
/* The cell of that side and place on this many devices, -1: none. */
int report_find(const struct report_data *d, int side, const char *place, int64_t devices);
/* What a cell's speed is a multiple of: the same side's one device, if need be over another link or of another side;
 * else the fewest devices of side and place. -1: none. */
int report_base(const struct report_data *d, int side, const char *place);
/* What c does in a step, in steps of the base. */
double report_work(const struct report_cell *base, const struct report_cell *c);
/* The numbers of devices, each once, ascending, at most REPORT_COUNTS; gives how many. */
int report_device_counts(const struct report_data *d, double *x);
/* "in place" for titles: ", bandwidth 1Gbit" or "". */
const char *report_in(struct report *r, const char *place);
/* "ddp x 4". */
const char *report_cell_name(struct report *r, const struct report_data *d, const struct report_cell *c);
/* A value as tables and tool tips show it; of seconds. */
const char *report_value(struct report *r, enum plot_unit unit, double v);
const char *report_ms(struct report *r, double seconds);
/* "4 devices, bandwidth 1Gbit". */
const char *report_where(struct report *r, const struct report_cell *c);

/* The median of the cell's runs; NaN where there is none. */
double report_median(const struct report_data *d, const struct report_cell *c, const struct report_metric *m);
/* The values of its runs into v, one of each training where the metric is about that; gives how many are numbers. */
int report_values(const struct report_data *d, const struct report_cell *c, const struct report_metric *m,
                  double v[REPORT_RUNS]);
/* A value in the metric's unit; "-" for none. */
const char *report_amount(struct report *r, const struct report_metric *m, double v);

/* The page of a file that ./bootstrap gpu-test has written. */
MUST_CHECK enum error report_proof(const char *path, struct pool *pool, struct report *out);

/* ---- words of an answer ---- */
/* The side that is held against another, which is named where it is not always the same. */
const char *report_versus(struct report *r, const struct report_data *d, const struct report_pair *p);
/* The answer of one metric over all pairs: "ddp is faster than dp in 5 of 7 comparisons, up to 6.42 times [2.95, 8.95]
 * (8 devices)."; "": nothing was tested */
const char *report_sentence(struct report *r, const struct report_data *d, int metric);
/* Tables of every comparison and metric, with what their columns mean. */
MUST_CHECK enum error report_comparisons(struct report *r, struct report_section *s, const struct report_data *d);
/* The runs of a metric as dots. */
MUST_CHECK enum error report_dots(struct report *r, struct report_section *s, const struct report_data *d, int metric);
/* The curves of the cells at one's place, or the first of them. */
MUST_CHECK enum error report_curves(struct report *r, struct report_section *s, const struct report_data *d,
                                    const struct report_cell *like, bool first);
/* "The best validation accuracy was 97.5 %, after step 450"; "": there was no validation. */
const char *report_best(struct report *r, const struct run_result *run);
/* What the gradient-noise scale says of the batch; "": it was not measured. */
const char *report_noise(struct report *r, const struct run_result *run);
/* The question in words, and the pictures that carry the answer, at the end of the section. */
MUST_CHECK enum error report_lead(struct report *r, struct report_section *s, const struct report_data *d);

/* The curves by which runs have chosen what is 'tune', at the end of the section. */
MUST_CHECK enum error report_chosen(struct report *r, struct report_section *s, const struct report_data *d);

/* Amdahl, Gustafson, Karp and Flatt: a table and what it says, at the end of the section. */
MUST_CHECK enum error report_laws(struct report *r, struct report_section *s, const struct report_data *d);

/* ---- the sections, in their order ---- */
enum error report_verdict(struct report *r, const struct report_data *d);
enum error report_tuning(struct report *r, const struct report_data *d);
enum error report_final(struct report *r, const struct report_data *d);
enum error report_metrics(struct report *r, const struct report_data *d);
enum error report_same_bits(struct report *r, const struct report_data *d);
enum error report_learning(struct report *r, const struct report_data *d);
enum error report_phases(struct report *r, const struct report_data *d);
enum error report_speedup(struct report *r, const struct report_data *d);
enum error report_bytes(struct report *r, const struct report_data *d);
enum error report_timeline(struct report *r, const struct report_data *d);
enum error report_memory(struct report *r, const struct report_data *d);
enum error report_predicted(struct report *r, const struct report_data *d);
enum error report_settings(struct report *r, const struct report_data *d);
enum error report_environment(struct report *r, const struct report_data *d);
enum error report_again(struct report *r, const struct report_data *d);
