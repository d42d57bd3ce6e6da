/* Learning rate schedules: a factor of the base rate as a pure function of the step. One table,
 * schedule.c. */
#pragma once
#include "engine/config/schema.h"

/* constant, step, cosine, linear, exponential, restarts: each with warmup; one_cycle. */
extern const struct config_variants schedule_variants;
/* The factor at optimizer step 'step' (0-based) of 'steps', with 'per_epoch' steps an epoch. */
double schedule_factor(const struct config_variant *schedule, int64_t step, int64_t steps, int64_t per_epoch);
/* Steps of its warm-up; 0: it has none. */
int64_t schedule_warmup(const struct config_variant *schedule, int64_t per_epoch);
/* Whether the schedule goes on to the end of training, whose step has to be known beforehand then. */
bool schedule_needs_end(const struct config_variant *schedule);
/* More steps than any run takes. */
#define SPAN_ENDLESS (INT64_C(1) << 62)
/* Steps that a span means, at least 1 when it is positive; -1 when off; SPAN_ENDLESS of a time. */
int64_t span_steps(struct config_span s, int64_t per_epoch);
