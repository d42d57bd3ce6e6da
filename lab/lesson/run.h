/* Runs a lab: its steps as processes of the engine, in its folder, and then judges its claims.
 *
 *   FOLDER/runs/STEP        what a step has made (quick/STEP in quick form); STEP.json where it is JSON
 *   FOLDER/runs/claims.json what came out
 */
#pragma once
#include "lab/lesson/claim.h"

#include <stdio.h>

struct lesson_runner {
    const char *program; /* the engine's */
    bool quiet;          /* no progress */
    bool silent;         /* nothing on standard output, neither by this nor by what it starts */
};
struct lesson_result {
    const char *runs; /* the folder of all that was made: "labs/03-ps-vs-ring/runs" */
    struct lesson_outcome outcome[LESSON_STEPS];
    const char *command[LESSON_STEPS]; /* as it would be typed in the lab's folder */
    const char *report[LESSON_STEPS];  /* a page, or NULL */
    int failed;                        /* the step that ended otherwise than it should, and was the last; or -1 */
    bool stopped;                      /* by a signal */
    double seconds;
    struct claim_result claim[LESSON_CLAIMS];
    int hold, broken, open; /* claims: how many; open: not judged in quick form */
    double score;           /* NaN: there is none, or it was not measured */
};
/* A step that ends with another code than it should is no error of this: it is in out->failed. */
MUST_CHECK enum error lesson_run(const struct lesson_runner *r, const struct lesson *l, struct lesson_result *out);

void lesson_print(const struct lesson *l, const struct lesson_result *r, FILE *f);
MUST_CHECK enum error lesson_json(const struct lesson *l, const struct lesson_result *r, struct json *j);
