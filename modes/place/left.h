/* The devices that a run of several processes still has: all at first, fewer once some are lost and the others go on
 * (run.elastic). What the ranks that go on are told of it. */
#pragma once
#include "engine/settings/run_config.h"
#include "engine/train/job.h"
#include "transport/launch/launch.h"

struct left {
    const struct run_config *config;
    int count;                  /* of this node */
    int which[RUN_DEVICES_MAX]; /* of those that the configuration gives it, ascending */
    struct job_loss loss;       /* the last one; to 0: all devices are there */
};
void left_all(struct left *l, const struct run_config *c);
/* Without the ranks that were lost here; first: this node's first one. The loss then names them, of all ranks. */
void left_lose(struct left *l, const struct launch_result *r, int first);
/* What the key 'devices' says of them: "cpu:3", "cuda:0,2". */
MUST_CHECK enum error left_devices(const struct left *l, struct pool *pool, const char **out);

/* A loss as text that a rank is given in its environment; "" where all devices are there. */
MUST_CHECK enum error loss_write(const struct job_loss *loss, struct pool *pool, const char **out);
/* false: the text tells of none. */
bool loss_read(const char *text, struct job_loss *out);
