/* A training to disturb: a small network on generated data, thousands of steps a second, in a run
 * directory of the scratch folder. What it computes depends on its number of steps alone: not on
 * mode, link or ranks, as long as these are a power of two up to four. A rank that is lost is named after 1 or 2 s in the job
 * 'timing', after 3 or 6 s elsewhere, where the machine may be busy. */
#pragma once
#include "tests/harness/program.h"

/* more: settings ("comm.link=tcp"), NULL-terminated. Starts it, for ever unless they say how long.
 */
void training_start(struct program *p, const char *dir, const char *const *more);
/* The same, and waits until it has taken ten steps. */
void training_begin(struct program *p, const char *dir, const char *const *more);
/* Starts 'engine run RUN_DIR': goes on from the last checkpoint to the given step. */
void training_resume(struct program *p, const char *dir, long steps);
/* The hash of the weights after so many steps that nobody disturbed, in a static buffer: of one
 * device, but for what more says. */
const char *training_hash(long steps, const char *const *more);
/* The last step of the newest checkpoint; -1: there is none. */
long training_saved(const char *dir);
/* The newest of a step before this one. */
long training_saved_before(const char *dir, long end);
/* Fails the test if a process of this test is left 2 s later (timing_limit), or a temporary file. Shared memory has no name that could be
 * left (transport/link/board.h). */
void training_gone(void);
/* Fails the test unless the program's standard error holds the text. */
void training_says(const struct program *p, const char *text);
/* What 'engine inspect' says of the run, in a static buffer. */
const char *training_inspect(const char *dir);
/* The first n numbers of this name in the run's metrics.jsonl. */
void training_numbers(const char *dir, const char *name, double *out, int n);
/* Takes the text from 'from' up to 'to' out of the manifest of a checkpoint ("step-000000040"), which stays whole: as an
 * older version would have written it. */
void training_forget(const char *dir, const char *step, const char *from, const char *to);
/* Waits for the end, and fails the test if that took more than limit_s from now on. */
double training_ends(struct program *p, double limit_s);

/* ---- what every mode shows ---- */

enum { TRAINING_WAYS = 4 }; /* of a mode two, and of others two */
/* A checkpoint of a network ("model=...") that was trained in one of these ways ("mode=fsdp", "devices=cpu:4", ...) goes on
 * in each, but from others to others: to the weights of one device that has taken twice as many steps by itself. */
void training_goes_anywhere(const char *const *network, const char *const ways[TRAINING_WAYS][3], int steps);
/* A rank is killed: the run names it and ends, by 75. more: settings, NULL-terminated, here and below. */
void training_names_lost(const char *const *more, int rank);
/* A rank is killed: the run starts again by itself, and ends in the weights of one that nobody disturbed. */
void training_replaces_lost(const char *const *more, int rank, int steps);
/* One of four devices is killed: the others go on, to the weights of one that nobody disturbed. */
void training_goes_on_without(const char *const *more);
