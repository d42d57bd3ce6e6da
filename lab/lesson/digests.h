/* The digests of a lab's files and of what its steps have left:
 *
 *   FOLDER/runs/files.sha256    "HEX  lab.yaml", "HEX  runs/race/results.json", ...; FOLDER/quick/... in quick form
 *
 * in the form of sha256sum, which checks them from FOLDER as well. What is there to be looked at alone (pages, logs,
 * checkpoints, notes) is not among them. */
#pragma once
#include "engine/base/digest.h"
#include "engine/base/memory.h"

struct digest_line {
    const char *path; /* seen from the lab's folder */
    char hex[SHA256_TEXT];
};
struct digests {
    struct digest_line *of; /* ascending by their paths */
    int n, room;
    char whole[SHA256_TEXT]; /* of the file itself, once it was read or written */
};
/* below: "runs", "quick"; NULL: the lab's own files alone. */
MUST_CHECK enum error digests_take(const char *folder, const char *below, struct pool *pool, struct digests *out);
MUST_CHECK enum error digests_read(const char *folder, const char *below, struct pool *pool, struct digests *out);
MUST_CHECK enum error digests_write(const char *folder, const char *below, struct pool *pool, struct digests *d);
/* NULL: there is none. */
const struct digest_line *digests_find(const struct digests *d, const char *path);
MUST_CHECK enum error digest_of_file(const char *path, char hex[SHA256_TEXT]);
