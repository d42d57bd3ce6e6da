/* Which way of sharing gradients is better, by how much, and why. Every way is tried on every number of devices by the
 * simulator, from steps that were measured; nothing is measured here.
 *
 * Better is faster: more samples a second. Simpler is what comes first in this order, of which the first difference
 * decides:
 *
 *   1  fewer devices
 *   2  the precision that is configured, before another
 *   3  single; dp with its shared server; ddp; dp with a sharded server; ddp with optimizer.shard; dp with a dedicated
 *      server, which is one of the devices; ps with servers apart, which are too, the fewer the simpler; fsdp that keeps
 *      weights, and that frees them; pipeline by 1f1b, and by gpipe, the fewer stages the simpler
 *   4  an algorithm that the engine chooses, before one that is named
 *   5  buckets as configured, before others
 *   6  the faster one */
#pragma once
#include "lab/predict/sweep.h"
#include "lab/report/report.h"

enum { ADVISE_DEVICES = 32, ADVISE_MEASURED = 4, ADVISE_RATES = 9, ADVISE_TURNS = 8, ADVISE_NOTES = 12 };
enum { ADVISE_MODES = 8, ADVISE_NONE = ADVISE_MODES /* nothing fits */ };
/* A mode is its place in mode_kinds. */
const struct mode_row *advise_mode(int mode);
/* How many there are; and the one that shares nothing. */
int advise_modes(void);
int advise_alone(void);
static const double ADVISE_NEAR = 1.05; /* the simplest way may take this many times the fastest's step */

struct advise_ask {
    const struct run_config *config;
    int nmeasured; /* precisions; the first is the configuration's */
    struct {
        const char *precision;
        const struct measured_step *step;
    } measured[ADVISE_MEASURED];
    int ndevices;
    int64_t devices[ADVISE_DEVICES]; /* ascending; the first is 1 */
    bool without[ADVISE_MODES];      /* modes that cannot be had here */
    struct wire port[ADVISE_MODES];  /* of each mode's devices */
    bool fitted;                     /* to links of this machine, so that what moves the bytes is in them */
    enum scheme usual; /* of all-reduces, where the engine chooses; SCHEMES: by formula, and others are tried */
    const struct algo_ops *own; /* a plug-in that is tried where others are, too; NULL: none */
    bool weak;                  /* the batch grows with the devices */
    double memory;              /* bytes that a device has */
    int cores;                  /* that all devices share; 0: each has its own */
};
struct advise_way {
    int64_t devices; /* with those that only serve */
    int mode;
    struct way way;
    int64_t bucket; /* bytes; 0: as configured */
    int measured;   /* in which precision */
};
/* Those of its devices that do not only serve. */
int64_t advise_computing(const struct advise_ask *a, const struct advise_way *w);
struct advise_row {
    struct advise_way as;
    struct sweep_answer answer;
    double rate; /* samples a second */
    bool fits;   /* its memory */
};
struct advise_turn { /* from there on another mode is the fastest */
    double at;
    int from, to;
};
struct advise_turns {
    int n;
    struct advise_turn turn[ADVISE_TURNS];
};
/* Shares of a step: what computing takes; what would be saved by ports without end, and by no latency; and for which
 * stages wait for each other though links cost nothing (0: there are none). */
struct advise_limits {
    double compute, bandwidth, latency, bubble;
};
struct advise_check { /* a way that has run here, beside what was predicted of that run */
    const char *label;
    int mode;
    double samples;             /* of a step */
    double predicted, measured; /* seconds */
    const char *why;            /* it has not run; NULL: it has */
};
struct advise_notes { /* what was left out, and what is assumed */
    struct pool *pool;
    const char *text[ADVISE_NOTES];
    int n;
};
struct advice {
    const struct advise_ask *ask;
    struct advise_row *row;
    int nrows;
    int fastest, simplest;
    int configured[2]; /* both in the configuration's precision; the first two where nothing fits in that */
    int other;  /* the fastest of another mode in its precision, on as many devices as the fastest or alone; -1 */
    int barred; /* the fastest one that memory forbids, where it is faster; -1 */
    struct {    /* in the configuration's precision, on this many devices; -1: none fits */
        int best[ADVISE_MODES], fastest, simplest;
    } at[ADVISE_DEVICES];
    struct advise_limits limits; /* of the fastest */
    int map[ADVISE_RATES][ADVISE_DEVICES];
    int64_t turned; /* devices of the next two */
    struct advise_turns devices, rates, batches;
    struct advise_check check[ADVISE_MODES];
    int nchecks;
    struct advise_notes notes;
    struct pool *pool;
};
/* Bytes a second of the i-th row of the map. */
double advise_rate(int i);
/* Whether a is simpler than b, by the order above. */
bool advise_simpler(const struct advise_row *a, const struct advise_row *b);
/* ERR_CONFIG: nothing fits. The rows lie in the pool. */
MUST_CHECK enum error advise_decide(const struct advise_ask *ask, struct pool *pool, struct advice *out);
/* How far off the predictions were at worst, as a share; NaN: nothing was checked. And how far off they were of which
 * of two modes is how much faster. One device alone is what predictions are made from. */
double advise_off(const struct advice *a);
double advise_doubt(const struct advice *a, int x, int y);
/* Whether a check was off by more than half: then nothing is advised. */
bool advise_is_refuted(const struct advice *a);
void advise_note(struct advise_notes *notes, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* "4 devices, ddp, ring, buckets of 1.0 MB"; and how to ask for it: "--mode ddp --devices cpu:4 ...". */
const char *advise_text(const struct advice *a, const struct advise_way *w);
const char *advise_words(const struct advice *a, const struct advise_way *w);
/* The keys and values of a way but for its devices, as --set takes them; n: how many. */
enum { ADVISE_SETS = 6 };
MUST_CHECK enum error advise_sets(const struct advise_ask *a, const struct advise_way *w, struct pool *pool,
                                  const char *out[ADVISE_SETS], int *n);
/* Reports the advice in sentences, tables and a picture. */
MUST_CHECK enum error advise_report(const struct advice *a, struct report *out);
MUST_CHECK enum error advise_json(const struct advice *a, struct json *j);
