/* Each side at its best: the runs that choose the tuned values of an experiment's cells, before these are compared.
 *
 *   FOLDER/tune/cells/...      the tries, as the cells of an experiment (runner.h): what was run before is taken as it is
 *   FOLDER/tuning.json         the scores, and what was chosen
 *   FOLDER/best.yaml           the best configuration; of several cells best-CELL.yaml, for each of them */
#pragma once
#include "lab/runner/runner.h"

/* x: the experiment, opened from the source without a search, or alone. Fills *out, whose memory is x's. ERR_NONE with
 * out->done false where this process was asked to stop. ERR_RESULT where all tries of a cell have diverged. */
MUST_CHECK enum error search_run(const struct runner *r, const struct experiment_source *source,
                                 const struct experiment *x, struct tuned *out);
