/* The current devices of a run of several processes: all at first, fewer once some are lost and the others continue
 * (run.elastic), all again when they are tried again; and the text by which the ranks learn of it. */
#pragma once
#include "engine/settings/job.h"
#include "engine/settings/places.h"
#include "transport/launch/launch.h"
#include "transport/launch/nodes.h"

struct run_config;
struct left {
    const struct run_config *config;
    int count;                /* of this node */
    int *which;               /* of those that the configuration gives it, ascending */
    struct job_change change; /* the last one; to 0: all devices have been there all the time */
    struct {
        bool done;   /* they have been tried again */
        int wait;    /* checkpoints until they are; 0 is 1 */
        int64_t due; /* the last step of which a checkpoint was due before they were */
    } retry;
};
/* All of this node. The pool keeps what is lost later, too. */
MUST_CHECK enum error left_all(struct left *l, const struct run_config *c, struct pool *pool);
/* Without the devices of the ranks of this node that were lost. The change then names them, of all ranks. */
MUST_CHECK enum error left_lose(struct left *l, const struct launch_result *r, const struct nodes_round *round,
                                struct pool *pool);
/* All of this node are to be tried again; due: the last step of which a checkpoint was due. */
void left_return(struct left *l, const struct launch_result *r, int64_t due);
/* One of all devices was lost. If it was before another checkpoint was due, it is tried half as often as before. */
void left_back_off(struct left *l, int64_t due);
/* The devices of all nodes change from 'from' to what the round has. Where only nodes are missing, those that come
 * decide when devices are tried again. */
void left_note(struct left *l, int from, const struct nodes_round *round);
/* The value of the key 'devices' for them: "cpu:3", "cuda:0,2". */
MUST_CHECK enum error left_devices(const struct left *l, struct pool *pool, const char **out);

/* Says how ranks were lost, in the log and as the job's reason. */
void left_tell(const struct job *job, const struct launch_result *r);

/* A change as text that a rank is given in its environment; "" where there was none. */
MUST_CHECK enum error change_write(const struct job_change *c, struct pool *pool, const char **out);
/* *out has to 0 where the text tells of none. */
MUST_CHECK enum error change_read(const char *text, struct pool *pool, struct job_change *out);
