/* Runs a lab: its steps as processes of the engine, in its folder, and then judges its claims.
 *
 *   FOLDER/runs/STEP        what a step has made (quick/STEP in quick form); STEP.json where it is JSON
 *   FOLDER/runs/files.sha256 the digests of the lab's files and of the results (digests.h)
 *   FOLDER/runs/claims.json  what came out
 */
#pragma once
#include "engine/base/digest.h"
#include "lab/lesson/claim.h"

#include <stdio.h>

/* Of claims.json, which may be a stranger's. */
#define LESSON_CLAIMS_LIMITS ((struct json_limits){.depth = 8, .entries = 10000, .text = 65536})

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
    char program[SHA256_TEXT],
        files[SHA256_TEXT]; /* the engine's own, and that of files.sha256; "": no claim was judged */
};
/* A step that ends with another code than it should is no error of this: it is in out->failed. */
MUST_CHECK enum error lesson_run(const struct lesson_runner *r, const struct lesson *l, struct lesson_result *out);
/* The folder of results, seen from the lab's: "runs", or "quick". */
const char *lesson_below(const struct lesson *l);
/* Reads what a step has left below out->runs; its outcome has 'exit' already. */
MUST_CHECK enum error lesson_read(const struct lesson *l, int step, struct lesson_result *out);
/* Judges the claims by the outcomes. */
void lesson_judge(const struct lesson *l, struct lesson_result *out);

void lesson_print(const struct lesson *l, const struct lesson_result *r, FILE *f);
MUST_CHECK enum error lesson_json(const struct lesson *l, const struct lesson_result *r, struct json *j);
