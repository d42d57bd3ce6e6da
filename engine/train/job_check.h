/* What can be known of a job before its ranks start: the errors in it, its sizes, and the keys that all hosts must share. */
#pragma once
#include "engine/base/digest.h"
#include "engine/data/loader.h"
#include "engine/settings/job.h"

struct config_errors;

/* Opens the data and builds the model of a configuration, without running: finds all errors that can be found before
 * ranks start. Errors at a place of the configuration are added to errors. */
struct job_facts {
    int64_t parameters, train, val, steps, per_epoch;
    char data[SHA256_TEXT];    /* digest of shapes, sizes and samples; "" on one host */
    struct normalization norm; /* no channels: nothing was measured */
};
MUST_CHECK enum error job_check(const struct job *job, struct config_errors *errors, struct job_facts *out);

/* Which step a checkpoint is of. ERR_CONFIG: by its manifest it is of another experiment than the job. */
MUST_CHECK enum error job_check_resume(const struct job *job, const char *path, int64_t *step);

/* Checks that this host has the units that the configuration lists, if this can be known without opening one. */
MUST_CHECK enum error job_check_units(const struct job *job);

/* The keys of a configuration that must be the same on all hosts of a run (but for devices and
 * threads, where 'auto' may differ), each with its value on one line, or a digest of a long one. */
enum { JOB_KEYS = 48 };
struct job_keys {
    int count;
    const char *name[JOB_KEYS], *text[JOB_KEYS];
};
MUST_CHECK enum error job_list_keys(const struct job *job, struct job_keys *out);
