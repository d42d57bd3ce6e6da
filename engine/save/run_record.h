/* The identity of the run in a directory: run.json, {"run_id", "job", "restarts", "exit", "error"}. A directory
 * belongs to one run, and each start of it writes the record anew. */
#pragma once
#include "engine/base/error.h"
#include "engine/base/memory.h"
#include <stdint.h>

struct run_record { /* "" and 0: it does not say */
    const char *run_id;
    const char *job; /* the launcher's name of the job that made it, and which start that was */
    int64_t restarts;
    int64_t code;      /* the exit code of a start that failed; 0: none has */
    const char *error; /* what it said then */
};
/* A file that is not there, or is none of ours, says nothing. */
struct run_record run_record_read(const char *dir, struct pool *pool);
MUST_CHECK enum error run_record_save(const char *dir, const struct run_record *r, struct pool *pool);
