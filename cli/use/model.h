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
};
/* Prints the layers, the totals and the order in which gradients become ready, or one JSON object. */
MUST_CHECK enum error model_summarize(const struct model_view *v, bool json);
