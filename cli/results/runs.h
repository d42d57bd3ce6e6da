/* The table of runs, for printing and for the dashboard. */
#pragma once
#include "engine/base/json.h"
#include "lab/results/runs.h"

/* {"folder","runs":[],"experiments":[]}; of the rows that have changed since that version, which it then names; 0: of all. */
MUST_CHECK enum error runs_json(const char *folder, const struct listing *all, int64_t since, struct json *j);
