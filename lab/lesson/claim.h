/* What a lab says will be seen, held against what was: a check (check.h) whose quantities are its steps'.
 *
 *   STEP.QUANTITY   of a comparison (quantity.h); the claim must hold in every place that the first term's side and
 *                   the conditions leave
 *   STEP.METRIC     of a run: what 'engine compare' measures, weights, losses, or a path in its summary.json
 *   STEP.PATH       of what else a step has printed as JSON: results.ring.alpha_s; of an array a number, 'last', or a
 *                   text that the element has
 *   STEP.exit, STEP.seconds   of every step
 *
 * Terms of different steps must be one number each. */
#pragma once
#include "engine/base/json.h"
#include "lab/compare/compare.h"
#include "lab/lesson/lesson.h"

/* The result of a step. */
struct lesson_outcome {
    bool done;
    int exit;
    double seconds;
    const struct compared *compared; /* of a comparison; or NULL */
    const struct run_result *run;    /* of a run that has finished; or NULL */
    const struct json_value *told;   /* its JSON output; or NULL */
};
struct claim_result {
    int holds;           /* 1, 0; -1: not judged */
    const char *numbers; /* of the place that decides: "ddp devices=cpu:4: 81.2 < 96" */
    double value;        /* of the first term there; NaN: not measured, or a text */
};
/* Reads a claim of the lesson, or its score, looks whether it can hold at all, and notes whether it is about time and
 * whether more of the score is better. Errors go to e. */
MUST_CHECK enum error claim_check(struct lesson *l, struct lesson_claim *at, struct config_errors *e);
/* outcome: of each step. Texts live in the lesson's pool. */
struct claim_result claim_judge(const struct lesson *l, const struct lesson_claim *at,
                                const struct lesson_outcome *outcome);
