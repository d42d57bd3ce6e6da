/* Results of a lab that were handed in, held against the lecturer's copy of the lab (the key): whether they are of this lab,
 * whether a file was changed since the lab had run, whether summaries follow from the steps' own lines, and what the claims
 * are by the files. Nothing is run, and what a hand-in says of itself is only compared. */
#pragma once
#include "engine/base/json.h"
#include "lab/lesson/digests.h"
#include "lab/lesson/lesson.h"

#include <stdio.h>

enum { AUDIT_FINDINGS = 64 };
struct audit {
    const struct lesson *key;
    const char *hand_in, *name; /* "class/anna", "anna" */
    struct digests files;       /* as its files.sha256 has them */
    int hold, claims;           /* by the files, of those that were judged; claims 0: they cannot be read */
    int nfindings, more;        /* more: of which there was no room */
    const char *finding[AUDIT_FINDINGS];
};
/* Whatever a hand-in holds is in *out; an error is of this program. */
MUST_CHECK enum error audit_run(const struct lesson *key, const char *hand_in, struct audit *out);
/* Adds a finding to each of the hand-ins that have a run of another one before them: a run's id comes once. */
void audits_find_copies(struct audit *all, int n);
void audits_print(const struct audit *all, int n, FILE *f);
MUST_CHECK enum error audits_json(const struct audit *all, int n, struct json *j);
