/* Starts the ranks of mode ddp on this host: with the other nodes if there are any, and again after a loss. */
#pragma once
#include "engine/settings/job.h"

/* The environment variables that it sets for its ranks, besides the meeting place (station.h). */
#define RESUME_VARIABLE "ENGINE_RESUME"
#define RUN_VARIABLE "ENGINE_RUN_ID"
#define DEVICES_VARIABLE "ENGINE_DEVICES"

/* The exit code of a rank that ended at a checkpoint for all devices to be tried again. */
enum { STARTER_AGAIN = 79 };

MUST_CHECK enum error starter_run(const struct job *job, int *exit_code);

/* Around waiting for others to come, which the first signal may end; 'file' (NULL: there is none) is then removed. */
void place_meeting_begins(const char *file);
MUST_CHECK enum error place_meeting_ends(enum error err);
