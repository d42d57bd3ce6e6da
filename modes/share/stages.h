/* What the files of share_stages have in common: the parts of the model, which rank has which, and their messages. */
#pragma once
#include "engine/settings/exchange.h"
#include "modes/share/share.h"

struct relay; /* a rank's messages to those with the parts before and after its own: stages_relay.c */
/* Rank c * stages + s has stage s of copy c. */
struct stages {
    struct mode *m;
    int count, copies, stage, copy; /* stage, copy: this rank's */
    struct model_part *part;        /* (count) */
    struct group *peers;            /* the ranks with this stage; NULL: there is one copy */
    struct buckets buckets;         /* of this part; none where there is one copy */
    struct slice own;
    struct relay *relay;
    struct graph_ends ends;
    double *told; /* what ranks tell each other in a step: the sums, and the partial sums of squares */
    float *border;
    bool whole; /* rank 0 may have more than its own stage */
    int64_t stepped_ns;
    const char *how; /* the cut is so; for people */
};
static inline int stages_rank(const struct stages *s, int stage) {
    return s->copy * s->count + stage;
}
/* The next stage after (step 1) or before (-1) this one that has the parameter; -1: none. */
int stages_user(const struct stages *s, int param, int step);

MUST_CHECK enum error relay_open(struct stages *s);
void relay_close(struct relay *r);
MUST_CHECK enum error relay_settle(struct relay *r); /* nothing is on its way from here */
int64_t relay_waited(const struct relay *r);         /* ns, in steps */

/* ---- stages_cut.c: where each stage begins ---- */
/* first (count + 1): the first node of each stage, and the number of nodes. Collective: all ranks get rank 0's, with what
 * that goes by in *how. ERR_CONFIG: the model cannot be cut so. */
MUST_CHECK enum error stages_cut(struct mode *m, int count, int *first, const char **how);
/* The same for layers that take these times. */
MUST_CHECK enum error stages_cut_by(const struct run_config *c, const struct model *m, int count, const double *seconds,
                                    int *first);
/* Whether the configuration's stages are possible for a model; mode_row.suits. */
MUST_CHECK enum error stages_suit(const struct run_config *c, const struct model *m);
/* The number of stages that the configuration asks for on so many devices; 0: it has no such number. */
int stages_count(const struct pipeline_config *c, int devices);

/* ---- stages_state.c: what lies in parts, whole on rank 0 ---- */
MUST_CHECK enum error stages_start(struct mode *m);
MUST_CHECK enum error stages_collect(struct mode *m);
MUST_CHECK enum error stages_gather(struct mode *m);
MUST_CHECK enum error stages_buffers(struct mode *m);
void stages_give_back(struct stages *s); /* of what rank 0 has gathered, or begun with */
/* Of an arena (NULL: of none): gives the parameters that later stages borrow to these. */
MUST_CHECK enum error stages_lend(struct stages *s, float *arena);
