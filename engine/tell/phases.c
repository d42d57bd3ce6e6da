#include "engine/tell/phases.h"

const struct phase_names phase_names[PHASES] = {
#define X(name, metric, key, words, traced) {metric, key, words, traced},
    STEP_PHASES(X)
#undef X
};
