/* A port's alpha and beta, from what 'engine bench comm --json' has measured. */
#pragma once
#include "engine/base/error.h"
#include "lab/predict/cost.h"

/* Fitted to that file's rows; *off: the median of the fit's relative errors. */
MUST_CHECK enum error port_fit_read(const char *path, struct wire *out, double *off);
