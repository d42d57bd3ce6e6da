/* The network of a configuration, planned as its run would plan it: what a measured step is laid out by. */
#pragma once
#include "engine/model/graph_plan.h"

struct run_config;
struct planned {
    struct model *model;
    struct device *device;
    struct plan *plan; /* of one pass */
};
/* The batch of one pass of a device of this configuration. */
struct segments planned_segments(const struct run_config *c, const struct device *dev);
/* How many passes the device with the longest run of shards makes. */
int planned_passes(const struct run_config *c);
/* What the data give to a network, and ask of it. samples: of a pass, as one segment; 0: as configured. */
struct planned_data {
    struct shape input;
    int64_t classes, samples;
};
MUST_CHECK enum error planned_shapes(const struct run_config *c, struct planned_data *out);
/* kind: of the device; "ref" plans at once, since it has nothing to prepare. What is wrong with the model goes to e;
 * planned_close in any case. */
MUST_CHECK enum error planned_create(const struct run_config *c, const char *kind, const struct planned_data *data,
                                     struct config_errors *e, struct planned *out);
/* The same with the shapes of the configured data. */
MUST_CHECK enum error planned_open(const struct run_config *c, const char *kind, struct config_errors *e,
                                   struct planned *out);
void planned_close(struct planned *p);
