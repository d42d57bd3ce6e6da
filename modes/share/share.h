/* How gradients become an update. A share is a row that owns all that depends on it: the exchanges of a step as data,
 * the checks of its keys, and the functions that run in a step, chosen once, when a run opens. step.c alone calls these,
 * on every rank; ranks that only serve (sharing.servers) are called like the others, but have computed nothing.
 *
 *   open         the group, if there is one, is open; the arenas are not there yet
 *   start        once, before the first step: values and buffers are the same on all ranks
 *   leave, land  in each step: each bucket, then all of them
 *   update       in each step, after them
 *   collect      between steps, where a checkpoint is saved, and after it
 *   gather       likewise, and at the end
 *   spread       between steps, where the averaged weights are asked for
 *   close        at the end of the run, however it ends */
#pragma once
#include "modes/step.h"

struct resolve;
struct share_row {
    struct exchange_plan plan;
    /* The keys that ask for it, each of its mode, where a run learns otherwise than by the gradient of the whole batch, and
     * the value which leaves it out; NULL: it learns as a single device does. */
    const char *keys[2], *without;
    bool subtrees; /* a rank's subtrees may leave each by itself: as dispatch.apart says, trainer.arena.apart */
    /* For the configuration of any run, in any mode: adds errors about keys that ask for this share if it is not
     * possible. */
    void (*check)(struct resolve *r);
    struct share_ops ops; /* what it leaves out is as the plan says (share_ops_of) */
};
#define SHARE(name) extern const struct share_row share_##name;
#include "modes/share/shares.def"
const struct share_row *const *share_rows(void); /* NULL after the last */

/* mode_row.choose: gradients are shared in this way. */
void share_take(struct resolve *r, const struct share_row *row);
/* The same of a server that does not wait, as a mode's key with that bound asks for. */
void share_take_stale(struct resolve *r, const char *key, int64_t bound);
/* mode_row.check: of all shares. */
void shares_check(struct resolve *r);

/* The functions of a row, each slot filled: without its own, nothing is kept, the moves before and after the update are
 * those of the plan, and the ranks update that the plan says. */
struct share_ops share_ops_of(const struct share_row *row);

/* A span of an arena, and the collective call that moves it: a sum of gradients, a mean of all else. */
struct span {
    float *arena;
    int64_t begin, end;
    const int64_t *part; /* of MOVE_REDUCE_SCATTER and MOVE_ALL_GATHER: rank r has [part[r], part[r + 1]) */
};
MUST_CHECK enum error share_move(struct mode *m, enum move_by by, const struct span *span, struct dispatch how);
/* Room for the largest bucket: m->spare, which whoever asked for it frees. */
MUST_CHECK enum error share_open_spare(struct mode *m);
/* Gives the pages of [begin, end) of an arena of the host's back. */
void share_release(float *arena, int64_t begin, int64_t end);
/* Bucket b of an arena. */
struct span share_bucket(const struct mode *m, float *arena, int b);

/* Ranks that have slices (slices.c). */
MUST_CHECK enum error slices_open(struct mode *m);
void slices_close(struct mode *m);
MUST_CHECK enum error slices_start(struct mode *m);
MUST_CHECK enum error slices_update(struct mode *m);
MUST_CHECK enum error slices_collect(struct mode *m);
MUST_CHECK enum error slices_spread(struct mode *m);
MUST_CHECK enum error slices_settle(struct mode *m);
MUST_CHECK enum error slices_stats(struct mode *m, struct mode_stats *out);
void slices_describe(const struct mode *m, char *line, size_t size);

/* Ranks that step alone and meet as the plan says (average.c). */
enum error average_open(struct mode *m);
void average_close(struct mode *m);
MUST_CHECK enum error average_start(struct mode *m);
enum error average_update(struct mode *m);
void average_describe(const struct mode *m, char *line, size_t size);
#define AVERAGE_OPS                                                                                                    \
    {                                                                                                                  \
        .open = average_open, .close = average_close, .start = average_start, .update = average_update,                \
        .describe = average_describe                                                                                   \
    }
/* What a plug-in makes of the weights of a span (own.c). */
MUST_CHECK enum error own_meet(struct mode *m, const struct span *span, struct dispatch how);
/* Gradients that do not become their mean (mixed.c): what a share of that kind runs, and the engine's own. */
enum error mixed_open(struct mode *m);
void mixed_close(struct mode *m);
MUST_CHECK enum error mixed_leave(struct mode *m, int b);
MUST_CHECK enum error mixed_update(struct mode *m);
void mixed_describe(const struct mode *m, char *line, size_t size);
#define MIXED_OPS                                                                                                      \
    {                                                                                                                  \
        .open = mixed_open, .close = mixed_close, .leave = mixed_leave, .update = mixed_update,                        \
        .describe = mixed_describe                                                                                     \
    }
extern const struct plugin mixer_adasum;
/* Under comm.compress: the arena of gradients becomes the sum of all ranks' (compressed.c). */
MUST_CHECK enum error compressed_sum(struct mode *m);
/* The mean of two neighbours (neighbour.c), which m->spare has room for. */
MUST_CHECK enum error neighbour_mean(struct mode *m, const struct span *span);
