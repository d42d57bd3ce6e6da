/* A run of an external command, written into its folder as 'engine run' writes its own: metrics.jsonl, summary.json,
 * resolved.yaml and env.json, so that everything that reads runs reads this one, too.
 *
 * What the command has to tell it writes as lines of JSON into the file that ENGINE_METRICS names, or prints; or as CSV
 * or TensorBoard's event files anywhere below its run's folder. The names of numbers are those of docs/metrics.md. */
#pragma once
#include "engine/config/tree.h"

#define FOREIGN_MODE "command"
struct foreign {
    const char *dir;             /* of the run */
    const char *metrics, *out;   /* the file of ENGINE_METRICS, which may be missing; its standard output */
    const struct node *settings; /* for resolved.yaml */
    int devices;
    int64_t warmup; /* steps that the experiment leaves out */
    double memory;  /* bytes; of its largest process */
};
/* Makes its folder, with env.json: how the machine is before the command begins. */
MUST_CHECK enum error foreign_begin(const char *dir, struct pool *pool);
/* ERR_DATA: it reported no steps, or something invalid; the message says what to do. */
MUST_CHECK enum error foreign_finish(const struct foreign *f, struct pool *pool);
