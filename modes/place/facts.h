/* The facts that must be equal on all hosts of a run, or on all ranks that another launcher has started. */
#pragma once
#include "engine/train/job_check.h"
#include "transport/launch/rendezvous.h"

enum { OWN_FACTS = 4, FACTS = OWN_FACTS + JOB_KEYS };
struct facts {
    int count;
    struct fact of[FACTS];
    char build[SHA256_TEXT], threads[32];
    struct job_keys keys;
};
/* f holds what its texts are in; they live as long as f and the job. */
MUST_CHECK enum error facts_find(const struct job *job, struct facts *f);
