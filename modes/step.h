/* A rank of a run, in whatever mode: what the step and its share work with. */
#pragma once
#include "modes/bucket.h"
#include "modes/place/place.h"
#include "modes/team.h"

struct share; /* each share's own */
struct mode {
    struct trainer *t;         /* read; what it is told, it is by calls */
    struct standing *standing; /* its, to fill while the mode opens */
    const struct sharing *how;
    const struct place *place;
    struct team team; /* of all ranks; none where this one is alone */
    const struct share_ops *ops;
    struct share *share;       /* what it keeps; NULL: nothing */
    struct compress *packed;   /* the same of share_compressed, beside its owner's */
    struct buckets buckets;    /* of the configuration */
    const struct buckets *cut; /* these, or the share's */
    int leaving;               /* buckets that leave in each step: all, or 0 */
    int left;                  /* of them, in this step */
    enum lane lane;            /* on which they do */
    int64_t began;             /* this step */
    struct learned learned;    /* by it */
    struct flight flight;
    struct scatter *scatter; /* samples come through rank 0; else NULL */
};
/* What all rows of modes.def have in common: the slots of mode_ops that this step fills. */
enum error mode_open(struct trainer *t, struct standing *standing, struct mode **out);
enum error mode_start(struct mode *m);
enum error mode_step(struct mode *m, struct learned *out);
enum error mode_bring(struct mode *m, const struct step_batch **out);
enum error mode_sum(struct mode *m, double *v, int n);
enum error mode_share_buffers(struct mode *m);
enum error mode_collect(struct mode *m);
void mode_abort(struct mode *m, const char *reason);
void mode_note(struct mode *m, const char *doing, int64_t step);
void mode_stats(struct mode *m, struct mode_stats *out);
enum error mode_watch(struct mode *m, struct trace_clock *clock);
const char *mode_describe(struct mode *m);
void mode_close(struct mode *m);
#define MODE_STEP                                                                                  \
    .open = mode_open, .start = mode_start, .step = mode_step, .bring = mode_bring,                \
    .sum = mode_sum, .share_buffers = mode_share_buffers, .collect = mode_collect,                 \
    .abort = mode_abort, .note = mode_note, .stats = mode_stats, .watch = mode_watch,              \
    .describe = mode_describe, .close = mode_close
