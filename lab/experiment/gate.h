/* A gate: a condition that must not be true, such as "ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4". It is
 * a check (check.h) whose quantities are the experiment's (quantity.h). The gate fails in each place of the matrix
 * where it is true (compare.h). */
#pragma once
#include "lab/experiment/quantity.h"

struct gate {
    struct check check;
    int axis[CHECK_CONDITIONS];
    struct quantity quantity[2];
    bool word; /* the second term is a text as it stands: "inconclusive" */
};
/* false: wrong[] says what is not understood. */
bool gate_read(const struct experiment *x, const char *text, struct gate *g, char wrong[CHECK_WRONG]);
/* The cells of both terms at the place of 'cell'; false: the gate does not concern that place. */
bool gate_stands(const struct experiment *x, const struct gate *g, int cell, int out[2]);
/* Whether it can be read, and fail at all: a gate that stands nowhere is an error. */
MUST_CHECK enum error gate_check(const struct experiment *x, int gate, struct config_errors *e);
