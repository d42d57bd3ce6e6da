/* A mode, as the trainer sees it: how the ranks start and how their gradients become one update. Modes are
 * implemented in modes/, one file each; the engine calls them and knows none of them. */
#pragma once
#include "engine/base/memory.h"
#include "engine/settings/held.h"

struct resolve;
struct run_config;
struct model;
struct trainer;
struct job;
struct trace_clock;
struct mode; /* each mode's own */
struct standing;
struct learned;
struct step_batch;
struct mode_stats {
    int64_t sent, received, lane_ns;
    int64_t dense, packed; /* compressed gradients: bytes that they would have taken, and took */
    /* A server that does not wait: updates from one gradient each, how many others had come since
     * these gradients' weights were given away, in all and at most. Workers: nanoseconds of their
     * steps, and those that they did not compute in. */
    int64_t updates, old, oldest, stepped_ns, waited_ns;
};
/* What the first steps of a run may try, where sharing.tunes says so. */
struct trials {
    const char *place;                 /* where they are tried, in words: elsewhere another choice may be the best */
    const char *const *name[TUNABLES]; /* of each choice, as a configuration says it; the first is the default */
    int count[TUNABLES];               /* at least 1 */
};
/* What happens in a run: the calls of the trainer, on every rank. */
struct step_ops {
    /* Once a rank: joins the others, opens the device (trainer_open_device), and fills *standing,
     * which is t->standing. What it points to lives until close. */
    enum error (*open)(struct trainer *t, struct standing *standing, struct mode **out);
    /* All ranks leave with rank 0's values, buffers and (those that step it) optimizer state: each
     * with that of its slices, of rank 0's t->whole; NULL there: state begins as zero. */
    enum error (*start)(struct mode *m);
    /* One whole optimizer step, seen from this rank. On return t->values and t->sums are the same on
     * every rank, and *out are these sums; where ranks step alone or by turns (struct exchange_plan) they
     * need be so only where trainer_meets. */
    enum error (*run)(struct mode *m, struct learned *out);
    /* If sharing.brought: loads the next batch of this rank's shards. */
    enum error (*bring)(struct mode *m, const struct step_batch **out);
    /* v[0..n) = the sum over ranks, exact where all but one rank hold zero. */
    enum error (*sum)(struct mode *m, double *v, int n);
    /* All ranks leave with the buffers of the rank that computes shard 0. */
    enum error (*share_buffers)(struct mode *m);
    /* All ranks leave with the whole of t->average, if there is one, and of t->values: where ranks that compute nothing
     * update parts of these, 'run' need not have brought them the others. Where ranks have weights in parts: none has more
     * than its own. */
    enum error (*share_average)(struct mode *m);
    /* Where ranks have weights in parts: rank 0 has the whole of t->values and t->average until the next step. */
    enum error (*gather)(struct mode *m);
    /* If ranks have slices: rank 0's t->whole receives the state of all ranks. */
    enum error (*collect)(struct mode *m);
    /* This rank stops because of 'reason': the others must not wait for it. */
    void (*abort)(struct mode *m, const char *reason);
    /* Sets the current work of this rank, for the others' messages; the text must live as long as the run. */
    void (*note)(struct mode *m, const char *doing, int64_t step);
    /* Payload bytes to and from other ranks, and nanoseconds that communication ran beside computing, so far: of all that
     * has begun, for which it waits. */
    enum error (*stats)(struct mode *m, struct mode_stats *out);
    /* What this rank holds, but for activations. */
    enum error (*hold)(const struct mode *m, struct held *out);
    /* The run is traced from here on: t->trace hears of every call; *clock: how this rank's clock is compared with
     * rank 0's. NULL: no longer. Collective. */
    enum error (*watch)(struct mode *m, struct trace_clock *clock);
    /* If sharing.tunes: the same on all ranks; it lives until close. */
    void (*trials)(const struct mode *m, struct trials *out);
    /* From the next step on, on every rank: choice i of it. */
    void (*take)(struct mode *m, enum tunable what, int i);
    /* One line for the banner: what moves gradients, and why that. */
    const char *(*describe)(struct mode *m);
    void (*close)(struct mode *m);
};
/* A way of sharing that a mode has: what a run takes, and what the simulator and the advice try. */
struct share_row;
struct mode_way {
    const char *name;  /* of its row in a simulation; "": that of its all-reduce's algorithm */
    const char *words; /* after the mode's name in advice; NULL: nothing to add */
    const char *set;   /* "KEY=VALUE" that asks for it; NULL: nothing does, or advice does not try it */
    const char *unset; /* the same that leaves it out, where other ways and modes refuse the key; NULL: none does */
    const struct share_row *share;
    int servers;        /* ranks that only serve */
    const char *counts; /* the key of another number of these, or of stages, of which advice tries several; or NULL */
    /* Sets what of sharing follows from the configuration, such as another number of these; NULL: nothing does. */
    void (*fill)(const struct run_config *c, struct sharing *s);
    bool in_one; /* without overlap there is one bucket */
    int order;   /* in which advice counts ways as simple, over all modes; 0: advice does not try it */
};
/* A row of modes/modes.def. */
struct mode_row {
    const char *name, *summary;
    const char *also; /* "a|b": what other tools call it */
    enum place_kind place;
    /* Called once for a configuration, when its own values and kind of devices are known: decides the mode's keys
     * that are 'auto', and r->c->sharing except its place and the sizes of buckets. mode: this row. */
    enum error (*choose)(struct resolve *r, const struct mode_row *mode);
    /* When all else is decided: adds errors about what makes no sense together. */
    void (*check)(struct resolve *r);
    /* When the model is known, before the ranks are started: ERR_CONFIG where the mode cannot train it so. NULL: it can
     * train any. */
    enum error (*suits)(const struct run_config *c, const struct model *m);
    /* Called once for a run: starts the ranks (here, as threads, or as processes), each of which calls trainer_run,
     * and returns when all have ended. The exit code is for main; ERR_NONE with a code other than 0 means that a rank
     * has already reported the reason. */
    enum error (*launch)(const struct job *job, int *exit_code);
    const struct step_ops *step;
    /* Whether gradients leave while backward still computes. */
    bool (*overlaps)(const struct run_config *c);
    const struct mode_way *ways; /* until one without a name */
    /* The one of these that a configuration asks for. */
    const struct mode_way *(*way)(const struct run_config *c);
};
