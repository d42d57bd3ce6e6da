/* How the ranks of a run share gradients: plain data, decided once from the configuration by the row of its mode. All
 * code that depends on the mode reads this; no code compares a mode's name. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum place_kind { /* where the ranks are */
                  PLACE_ALONE,
                  PLACE_THREADS,
                  PLACE_PROCESSES
};

/* The exchanges of a step, as data. The step runs them; the bytes, the formula, the simulator and the advice are
 * computed from them. A move is a collective call of all ranks; rank 0 is the root of those that have one. */
enum move_by {
    MOVE_ALL_REDUCE,     /* all receive the sum of gradients, or the mean of weights */
    MOVE_REDUCE,         /* the root receives the sum */
    MOVE_BROADCAST,      /* all receive what the root has */
    MOVE_REDUCE_SCATTER, /* each receives the sum of its part */
    MOVE_ALL_GATHER,     /* all receive the part that each has */
    MOVE_NEIGHBOUR,      /* two ranks receive the mean of both */
    MOVE_PAIRS,          /* ranks 1, 2, 4, ... apart swap all that they have (modes/share/adasum.c) */
    MOVE_OWN,            /* as a plug-in says */
};
enum move_end { /* when a move of weights has to end */
                END_OF_STEP,
                BEFORE_LAYER, /* of each bucket, before the next forward computes with it */
                EACH_FORWARD, /* the same, but it begins anew for each forward, shortly before it is needed; */
                EACH_BACKWARD /* for each backward */
};
struct move {
    enum move_by by;
    bool whole;        /* the arena is one message; else each bucket is */
    enum move_end end; /* of weights */
    const char *doing; /* the work of a rank that waits for it, for the others' messages; "": it has no name */
};
enum update_by { UPDATE_BY_ALL, UPDATE_BY_ROOT, UPDATE_BY_OWNERS /* of the parts */ };
/* How long a rank keeps those weights that others update. */
enum weights_kept { WEIGHTS_KEPT, WEIGHTS_A_PASS /* forward and backward */, WEIGHTS_A_LAYER };
enum { PLAN_MOVES = 2, PLAN_AHEAD = 2 /* buckets that are on their way beside the one in use */ };
struct exchange_plan {
    int nbefore, nafter;
    struct move before[PLAN_MOVES]; /* of gradients: of each bucket, when they are final */
    enum update_by update;          /* when all of these have ended */
    struct move after[PLAN_MOVES];  /* of weights, when they are updated */
    enum weights_kept kept;
    bool lean;     /* nor are gradients kept that others update by */
    bool alone;    /* ranks step alone: 'after' comes in every sharing.every-th step */
    bool staged;   /* ranks have stages, and activations travel between them; 'before' is of the ranks with one stage */
    bool by_turns; /* each rank exchanges with the root by itself: none of these calls is made */
};

enum server_hosts { SERVERS_FIRST, SERVERS_SPREAD, SERVERS_OWN };
struct cutting {
    int64_t first, cap; /* bytes of the first bucket, and of the others; INT64_MAX: all are one */
    bool anywhere;      /* cuts lie at blocks of the norm; else at the ends of parameters */
};

/* What a run may choose by the time of its own first steps (train/tuning.c): ddp.bucket, comm.algorithm. */
enum tunable { TUNABLE_BUCKET, TUNABLE_ALGORITHM, TUNABLES };
extern const char *const tunable_keys[TUNABLES];

struct share_row; /* of modes/share */
struct sharing {
    enum place_kind place;
    const struct share_row *share; /* how gradients become an update */
    struct exchange_plan plan;     /* the share's */
    bool compressed;               /* gradients travel in fewer bytes; else as they are */
    const char *title;             /* of the server, for people; "": there is none */
    const char *key;               /* that asks for this way, where a run learns otherwise than by the gradient of the
                                      whole batch; NULL: it does not */
    int64_t staleness;             /* steps that a worker may be ahead of the slowest; -1: any number; 0: all wait */
    int servers;                   /* ranks that compute nothing, the first of the group */
    int hosts;                     /* enum server_hosts: the nodes that they are on */
    int servers_here;              /* of them, those of this node */
    int stages;                    /* parts of the model, each on a rank of its own: those that follow each other have
                                      one copy of it, which is trained on a share of the batch; 1: ranks have all of it */
    bool ahead;                    /* where there are stages: all forwards of a step come before its backwards */
    int owners;                    /* ranks that have parts, where there are parts: the servers, or as many of all
                                      ranks, as far apart as possible (sharing_owner); 0: all have */
    bool on_host;                  /* these have no device, but the host's memory */
    bool overlap;                  /* buckets leave while backward still computes the layers before them */
    bool streams;                  /* an owner updates each bucket, and its weights leave, as soon as its gradients have
                                      landed, while others still travel */
    bool brought;                  /* samples come through rank 0's port; else each rank loads its own */
    bool rescues;       /* run.elastic: after a loss rank 0 saves the last step that has ended, which it holds whole */
    bool in_one;        /* there is one bucket, whatever the configuration says */
    struct cutting cut; /* of the arena in buckets */
    int64_t every;      /* steps between two meetings where ranks step alone; else 1 */
    bool tunes[TUNABLES]; /* the key is 'tune'; its own value is then its default */
};

/* Whether weights come beside the layers before those that need them: what nothing runs beside ends with its step. */
static inline bool plan_comes_ahead(const struct exchange_plan *p, bool overlap) {
    return p->nafter && (p->after[0].end >= EACH_FORWARD || (p->after[0].end == BEFORE_LAYER && overlap));
}
/* How many buckets, from the last layers' on, stay from forward to backward, though backward gathers what left: those that
 * it asks for while what is on its way ahead of it is still forward's. */
static inline int plan_stays(bool overlap) {
    return (overlap ? PLAN_AHEAD : 0) / 2 + 1;
}
/* The share of a step in which a stage waits for others: of 'passes' micro-batches. */
static inline double sharing_bubble(int stages, int64_t passes) {
    return (double)(stages - 1) / (double)(passes + stages - 1);
}

/* How many of the ranks have parts, and the i-th of them. */
static inline int sharing_owners(const struct sharing *s, int ranks) {
    return s->owners && s->owners < ranks ? s->owners : ranks;
}
static inline int sharing_owner(const struct sharing *s, int ranks, int i) {
    return s->servers ? i : (int)((int64_t)i * ranks / sharing_owners(s, ranks));
}
