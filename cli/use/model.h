/* engine model: what its files share. */
#pragma once
#include "cli/line/cli.h"

#include "cli/line/load.h"
#include "engine/settings/run_config.h"
#include "lab/predict/planned.h"

extern const struct command model_export; /* a form of it */

struct model_view { /* a network that was named or configured, without its weights */
    const char *title;
    struct run_settings settings;
    struct planned_data data;
    struct planned network; /* for 'samples' on the device */
    bool shares;            /* what a device of several has to hold is asked for, */
    const char *mode;       /* in this mode; NULL: in all */
    bool whole;             /* 'samples' are as configured: a step may make several passes */
};
/* Prints the layers, the totals and the order in which gradients become ready, or one JSON object. gpu: what a step should
 * take there, as well; NULL: nowhere. */
MUST_CHECK enum error model_summarize(const struct model_view *v, const char *gpu, bool json);

/* model_cost.c: the GPUs that it knows, by number, NULL after the last; and what a step should take on one. */
const char *model_gpu_name(int i);
void model_cost_print(const struct model_view *v, const char *gpu);
struct json;
void model_cost_put(const struct model_view *v, const char *gpu, struct json *j);

/* model_memory.c: what a device has to hold, printed, or put into an object. */
MUST_CHECK enum error model_memory(const struct model_view *v, struct json *j);
