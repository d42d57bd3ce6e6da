/* Hand-ins of a class, each run against the lecturer's copy of a lab (the key).
 *
 * Of a hand-in only the files are taken that the key's lab.yaml names in hand_in. They go into a fresh copy of the key's
 * files, and the lab runs there, as a process: the key may have claims that the class has not seen, and what a hand-in says
 * of itself, its lab.yaml and its claims.json, plays no part. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/json.h"
#include "lab/lesson/lesson.h"

#include <stdio.h>

struct grader {
    const char *program;      /* the engine's */
    const struct lesson *key; /* its head */
    const char *dir;          /* where the copies go: DIR/NAME */
    double timeout;           /* seconds that a hand-in may take */
    bool quick;
    struct pool *pool;
};
struct grade {
    const char *hand_in, *name; /* "class/anna", "anna" */
    const char *folder;         /* its copy, in which its lab has run */
    const char *digest;         /* of its files, in their order: equal ones are copies; "": it lacks one */
    const char *reason;         /* why no claim was judged; NULL: claims were judged */
    int hold, claims;           /* of those that were judged */
    const char *broken;         /* the first that does not hold, with its numbers; NULL: all hold */
    double score;               /* NaN: there is none */
    bool rises;                 /* more of it is better */
};
/* The n characters of a hand-in's path that are its name: "anna" of "class/anna/". */
const char *grade_name(const char *hand_in, size_t *n);
/* Whatever a hand-in does is in *out; an error is the grader's own, or ERR_RESULT where a signal has stopped it. */
MUST_CHECK enum error grade_run(const struct grader *g, const char *hand_in, struct grade *out);
/* The one with more claims that hold comes first, and of equal ones the one with the better score. */
void grades_sort(struct grade *all, int n);
void grades_print(const struct grade *all, int n, FILE *f);
MUST_CHECK enum error grades_json(const struct grader *g, const struct grade *all, int n, struct json *j);
