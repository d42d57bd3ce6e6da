/* A rank of a run, in any mode: the data of its step and its share. */
#pragma once
#include "modes/bucket.h"
#include "modes/place/place.h"
#include "modes/team.h"

struct share; /* each share's own */
struct mode {
    struct trainer *t;         /* only read here: its own calls change it */
    struct standing *standing; /* of the trainer; filled while the mode opens */
    const struct sharing *how;
    const struct place *place;
    struct team team; /* all ranks; zeroed where this one is alone */
    const struct share_ops *ops;
    struct share *share;       /* the share's own state; NULL: it keeps none */
    struct compress *packed;   /* the state of share_compressed, beside that of its owner */
    struct buckets buckets;    /* as the configuration cuts them */
    const struct buckets *cut; /* the buckets of this run: these, or the share's */
    int leaving;               /* how many buckets leave in each step: all in which weights are trained, or 0 */
    int left;                  /* how many have left in this step */
    enum lane lane;            /* the lane on which they leave */
    int64_t began;             /* when this step began */
    struct learned learned;    /* what this step has learned */
    struct flight flight;      /* calls of this step that have begun and may still run */
    struct scatter *scatter;   /* samples come through rank 0; else NULL */
};
/* For shares: how the next call of a step runs, which carries what the label says; and the wait for all such calls,
 * as share_ops.land. */
enum error step_send(struct mode *m, int64_t label, struct dispatch *out);
enum error step_land(struct mode *m);

/* The slots of mode_ops that all rows of modes.def have in common: this step fills them. */
enum error mode_open(struct trainer *t, struct standing *standing, struct mode **out);
enum error mode_start(struct mode *m);
enum error mode_step(struct mode *m, struct learned *out);
enum error mode_bring(struct mode *m, const struct step_batch **out);
enum error mode_sum(struct mode *m, double *v, int n);
enum error mode_share_buffers(struct mode *m);
enum error mode_share_average(struct mode *m);
enum error mode_collect(struct mode *m);
void mode_abort(struct mode *m, const char *reason);
void mode_note(struct mode *m, const char *doing, int64_t step);
void mode_stats(struct mode *m, struct mode_stats *out);
enum error mode_watch(struct mode *m, struct trace_clock *clock);
const char *mode_describe(struct mode *m);
void mode_close(struct mode *m);
#define MODE_STEP                                                                                                      \
    .open = mode_open, .start = mode_start, .step = mode_step, .bring = mode_bring, .sum = mode_sum,                   \
    .share_buffers = mode_share_buffers, .share_average = mode_share_average, .collect = mode_collect,                 \
    .abort = mode_abort, .note = mode_note, .stats = mode_stats, .watch = mode_watch, .describe = mode_describe,       \
    .close = mode_close
