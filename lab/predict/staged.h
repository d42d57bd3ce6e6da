/* Mode pipeline, predicted: which layers each stage has, and what it computes, sends and holds (the essay:
 * modes/pipeline.c). */
#pragma once
#include "engine/settings/held.h"
#include "lab/predict/measured.h"

/* Whether the devices of the configuration can share the layers as it asks for; ERR_CONFIG says why not. Fills in the
 * number of stages. */
MUST_CHECK enum error staged_fit(struct run_config *c, const struct model *m);

struct staged_ask {
    const struct run_config *config; /* staged_fit has passed it */
    const struct model *model;
    const double *work; /* of each layer, the share of computing (measured_find_work) */
    int leaves;         /* shards of the batch */
};
/* The step of a device: of a batch that is 'batches' times the measured one. ERR_CONFIG: stages share weights. */
MUST_CHECK enum error staged_shape(const struct staged_ask *a, const struct measured_step *m, double batches,
                                   const struct cutting *cut, struct step_shape *out);

/* What the stage holds that holds the most: activations are of the micro-batches that it keeps. */
MUST_CHECK enum error staged_hold(const struct staged_ask *a, struct held *out);
