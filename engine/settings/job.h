/* A job: the work on a configuration, its ranks, and the folder of its output. Plain data that all ranks of a run
 * share, set before they start. */
#pragma once
#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct mode_row;
struct normalization;
struct preprocessing;
struct run_settings;

enum job_task {
    JOB_TRAIN,
    JOB_EVALUATE, /* the weights of 'resume' on a set, once, as in training */
    JOB_ASK       /* trainer_load: no gradients, one device */
};

/* The change of a run that continues without lost devices, or with returned ones. */
struct job_change {
    int began, from, to; /* devices: of the run's first start, before the change, now */
    int losses, returns; /* of devices, since the first start */
    int wait;            /* the number of checkpoints before all devices are tried again; 0: no device is
                                 * missing */
    const int *lost;     /* ranks, as they were numbered before, nlost of them; none: devices are back */
    int nlost;
    int64_t seen; /* when, by clock_ns */
};

struct job {
    enum job_task task;
    bool on_train; /* JOB_EVALUATE: the training set, as it lies; else the validation set */
    const struct run_settings *settings;
    const struct mode_row *mode;
    const char *run_dir;
    const char *resume;              /* checkpoint to begin from, or NULL */
    const char *run_id;              /* rank 0's; NULL: this is no run, or not known here */
    const struct job_change *change; /* since the run's first start the last one; NULL: there was none */
    /* Of such a run: whether devices have come that were lost, which rank 0 asks after a checkpoint. NULL: none can. */
    bool (*comes)(void *user);
    void *user;
    /* Where a rank that another process ran has failed: ERROR_WORDS bytes for what it said; NULL: nobody asks. */
    char *reason;
    bool *renews; /* set where ranks end at a checkpoint for all devices to be tried again; NULL: they never are */
    /* Not of JOB_TRAIN: what 'resume' tells of its data, so that only a set to evaluate is opened,
     * and that has to be like it. NULL: it does not tell, and the training data do. */
    struct preprocessing *known;
    int console_out, console_err;
    bool json, quiet, progress;
    int processes;          /* that the run consists of */
    const char *command[4]; /* words that start a rank's process, before run_dir; none: "run" */
    struct rank_process {
        int rank;       /* of this process when it was started as a rank; else -1 */
        int locals;     /* that were started together with it here */
        int meeting_fd; /* where these find each other; -1: elsewhere */
    } process;
    const char *data_digest;          /* of job_facts, where several hosts must have the same */
    const struct normalization *norm; /* likewise, of a start in this process; NULL: rank 0 measures the data */
};
