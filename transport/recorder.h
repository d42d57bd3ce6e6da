/* The flight recorder: the last calls of one rank, in a mapped file that survives the rank, however it dies. 'engine
 * inspect' merges the files of all ranks into a report of where each rank was. */
#pragma once
#include "engine/base/memory.h"
#include <stdint.h>

enum { RECORDER_CALLS = 4096, RECORDER_TEXT = 48 };
struct recorder;
/* Creates or replaces path ("RUN_DIR/flight/rank3.bin") and its folder, never grows it afterwards.
 */
MUST_CHECK enum error recorder_open(const char *path, int rank, int size, struct recorder **out);
/* Closes the recording; the file stays and records how the rank ended. If this is never called, the file shows that
 * the rank did not end by itself. */
void recorder_close(struct recorder *r, bool clean);

struct recorded_call {
    uint32_t sequence;            /* of collectives on the lane; 0 for send and recv */
    uint8_t lane, kind, type, op; /* as the group numbers them */
    int32_t peer;                 /* root or peer; -1: none */
    int64_t count;
};
/* Both are a few stores, without a lock: one thread a lane, one call at a time in it. r may be
 * NULL: nothing is recorded. */
void recorder_begin(struct recorder *r, const struct recorded_call *c);
void recorder_end(struct recorder *r, int lane, int error);
/* Records the current work of the rank: "backward of conv4". */
void recorder_note(struct recorder *r, const char *doing, int64_t step);

/* ---- reading, after the fact; the file may be cut or hold anything ---- */
struct recording_call {
    struct recorded_call call;
    int64_t began, ended; /* ns of the monotonic clock; ended 0: it never did */
    int error;
    char name[24]; /* "all_reduce": as the writer called it */
    char type[8];  /* "f32" */
};
struct recording {
    int rank, size, pid;
    char host[64];
    int64_t wall, clock; /* ns: what both clocks showed when it was opened, to compare hosts */
    bool closed;         /* the rank has ended by itself; else it was killed, or still runs */
    bool clean;          /* and well */
    char doing[RECORDER_TEXT];
    int64_t step, noted;          /* of the note; and when */
    struct recording_call *calls; /* oldest first */
    int ncalls;
};
/* ERR_DATA: not a recorder's file, or damaged. */
MUST_CHECK enum error recording_read(const char *path, struct pool *pool, struct recording *out);
/* The text that 'engine inspect' prints for the recordings of one run's ranks: where each rank was. */
MUST_CHECK enum error recording_merge(const struct recording *ranks, int n, struct pool *pool, char **text);
