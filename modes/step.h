/* A rank of a run, in any mode: the data of its step and its share. */
#pragma once
#include "modes/bucket.h"
#include "modes/place/place.h"
#include "modes/team.h"

struct mode;
struct share_ops {
    /* Allocates what the share keeps, m->share. May set m->cut (else the buckets of the configuration), m->part and the
     * trainer's slices. Collective where it allocates what peers read. */
    enum error (*open)(struct mode *m);
    void (*close)(struct mode *m); /* after an open that has failed, too */
    /* Collective. Rank 0 has the optimizer's state, in the trainer's slots or (where ranks have slices) in its 'whole':
     * all leave with what is theirs. */
    enum error (*start)(struct mode *m);
    /* Collective, before an evaluation: all leave with the buffers of the network of which shard 0 was computed. */
    enum error (*buffers)(struct mode *m);
    /* The gradients of bucket b, summed over this rank's shards, are final: begins what makes them the sum over all
     * ranks, on m->lane. Comes for b = 0, 1, ... once a step, on every rank the same, where the plan moves gradients. */
    enum error (*leave)(struct mode *m, int b);
    /* All have left. Returns when the gradients that this rank updates by are sums. */
    enum error (*land)(struct mode *m);
    /* Updates the weights and has them where they are needed: returns with the step's values and trainer.sums on this
     * rank, as step_ops.run says. */
    enum error (*update)(struct mode *m);
    /* If ranks have slices: rank 0's trainer.whole receives the state of all ranks. */
    enum error (*collect)(struct mode *m);
    /* Where each rank averages the weights that it steps (trainer.average), or has no others: all receive the whole. */
    enum error (*spread)(struct mode *m);
    /* Where ranks have weights in parts: rank 0 has the whole of them, and of their average, until the next step. */
    enum error (*gather)(struct mode *m);
    /* Waits until nothing that it has begun is under way. */
    enum error (*settle)(struct mode *m);
    /* Waits for calls that have begun and whose bytes belong to the steps so far, and adds its own counts. */
    enum error (*stats)(struct mode *m, struct mode_stats *out);
    /* Completes the banner's line, which says already what moves gradients in how many buckets. */
    void (*describe)(const struct mode *m, char *line, size_t size);
};

struct share; /* each share's own */
struct mode {
    struct trainer *t;         /* only read here: its own calls change it */
    struct standing *standing; /* of the trainer; filled while the mode opens */
    const struct sharing *how;
    const struct place *place;
    struct team team; /* all ranks; zeroed where this one is alone */
    struct share_ops ops;
    struct share *share;       /* the share's own state; NULL: it keeps none */
    struct slots *slots;       /* of gradients on their way (full.c); NULL: they leave from where they are */
    struct ahead *ahead;       /* of weights that come before the layers that need them; NULL: none do */
    struct compress *packed;   /* the state of share_compressed, beside that of its owner */
    float *spare;              /* room for a bucket, where the share needs it */
    struct tries *tries;       /* of what the first steps choose; NULL: nothing */
    struct buckets buckets;    /* as the configuration cuts them */
    const struct buckets *cut; /* the buckets of this run: these, or the share's */
    const int64_t *part;       /* of bucket b rank r has [part[b(W+1) + r], part[b(W+1) + r + 1]); NULL: no rank has */
    int leaving;               /* how many buckets leave in each step: all in which weights are trained, or 0 */
    int left;                  /* how many have left in this step */
    int taken;                 /* of slots: how many of these have given their sums */
    enum lane lane;            /* the lane on which they leave */
    int64_t began;             /* when this step began */
    struct learned learned;    /* what this step has learned */
    struct flight flight;      /* calls of this step that have begun and may still run */
    struct scatter *scatter;   /* samples come through rank 0; else NULL */
    enum error (*compute)(struct mode *m); /* this rank's part of a step */
};
/* Gives a share how the next call of a step runs, which carries what the label says; and the wait for all such calls,
 * as share_ops.land. */
enum error step_send(struct mode *m, int64_t label, struct dispatch *out);
enum error step_land(struct mode *m);

/* The step of every row of modes.def. */
extern const struct step_ops mode_step;
/* Sets the current work of this rank, as step_ops.note. */
void mode_note(struct mode *m, const char *doing, int64_t step);
