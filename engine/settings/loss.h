/* 'loss': what is minimised. */
#pragma once
#include "engine/config/schema.h"
#include "engine/model/graph.h"

#define LOSS_BALANCED (-1.0) /* a single weight: classes weigh as their number of samples says */
struct loss_config {         /* of cross_entropy; the others have none of it */
    double smoothing;
    struct config_list weights; /* of double, one for each class, or LOSS_BALANCED; count 0: all weigh 1 */
};
extern const struct config_variants loss_variants; /* in the order of enum loss */
/* Cross-entropy itself, neither smoothed nor weighted: the logarithm of a perplexity. */
bool loss_is_plain(const struct config_variant *loss);
bool loss_is_balanced(const struct config_variant *loss);
