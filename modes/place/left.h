/* The devices that a run of several processes has just now: all at first, fewer once some are lost and the others go on
 * (run.elastic), all again when they are tried again. What the ranks are told of it. */
#pragma once
#include "engine/settings/run_config.h"
#include "engine/train/job.h"
#include "transport/launch/launch.h"

struct left {
    const struct run_config *config;
    int count;                  /* of this node */
    int which[RUN_DEVICES_MAX]; /* of those that the configuration gives it, ascending */
    struct job_change change;   /* the last one; to 0: all devices have been there all the time */
};
void left_all(struct left *l, const struct run_config *c);
/* Without the ranks that were lost here; first: this node's first one. The change then names them, of all ranks. */
void left_lose(struct left *l, const struct launch_result *r, int first);
/* All of this node are to be tried again. */
void left_return(struct left *l, const struct launch_result *r);
/* What the key 'devices' says of them: "cpu:3", "cuda:0,2". */
MUST_CHECK enum error left_devices(const struct left *l, struct pool *pool, const char **out);

/* A change as text that a rank is given in its environment; "" where there was none. */
MUST_CHECK enum error change_write(const struct job_change *c, struct pool *pool, const char **out);
/* false: the text tells of none. */
bool change_read(const char *text, struct job_change *out);
