/* A gate: a condition that must not be true, such as "ddp.step_time > 1.05 * dp.step_time @ devices >= cpu:4". It is
 * a check (check.h) whose quantities are the experiment's (quantity.h). The gate fails in each place of the matrix
 * where it is true. */
#pragma once
#include "lab/compare.h"

/* Reads it, and looks whether it can fail at all: a gate that stands nowhere is an error. */
MUST_CHECK enum error gate_check(const struct experiment *x, int gate, struct config_errors *e);
void gate_judge(const struct compared *c, int gate, struct compared_gate *out);
