/* The flight recorder: the last calls of one rank, in a mapped file that survives the rank, however it dies. 'engine
 * inspect' merges the files of all ranks into a report of where each rank was. */
#pragma once
#include "engine/base/memory.h"
#include <stdint.h>

enum { RECORDER_CALLS = 2048, RECORDER_TEXT = 48 };
struct recorder;
struct recorder_params {
    const char *path; /* "RUN_DIR/flight/rank3.bin" */
    int rank, size;
    int calls;    /* how many are kept of each lane, at most RECORDER_CALLS */
    bool mail;    /* keep as many messages that were sent, and as many that were received */
    bool private; /* only this user may read the file */
};
/* Creates the folder and the file, or replaces the file; the file never grows afterwards. */
MUST_CHECK enum error recorder_open(const struct recorder_params *p, struct recorder **out);
/* How a rank has left: it closed the recording after all went well, or after a failure; or its process exited without
 * closing it. A recording that stays open is that of a rank that runs or was killed. */
enum recorded_end { RECORDED_OPEN, RECORDED_CLEAN, RECORDED_FAILED, RECORDED_EXIT };
void recorder_leave(struct recorder *r, enum recorded_end how);
/* Leaves and closes the recording; the file stays. */
void recorder_close(struct recorder *r, bool clean);
/* What the recording is called where several are shown. */
void recorder_label(struct recorder *r, const char *label);

struct recorded_call { /* as it stands in the file */
    int64_t count, tag;
    uint32_t sequence;            /* of collectives on the lane; 0 for send and recv */
    int32_t peer;                 /* root or peer; -1: none, or any */
    uint8_t lane, kind, type, op; /* as the group numbers them */
    uint8_t unused[4];
};
/* Each of these is a few stores without a lock: a lane has one thread at a time. Gives the number of the call on its lane,
 * by which it is ended: others may have begun since. If r is NULL, nothing is recorded. */
uint64_t recorder_begin(struct recorder *r, const struct recorded_call *c);
void recorder_end(struct recorder *r, int lane, uint64_t number, int error);
/* A call that ends now: a receive, of which many are asked for at a time and end in any order. */
void recorder_add(struct recorder *r, const struct recorded_call *c, int64_t began, int error);
/* The receive that the rank waits for, since 'began', in a place of its own; NULL: it waits for none (any more). */
void recorder_wait(struct recorder *r, const struct recorded_call *c, int64_t began);
/* Records the current work of the rank: "backward of conv4". */
void recorder_note(struct recorder *r, const char *doing, int64_t step);
bool recorder_failed(const struct recorder *r); /* whether any call has */

/* ---- reading, after the fact; the file may be cut or hold anything ---- */
struct recording_call {
    struct recorded_call call;
    int64_t began, ended; /* ns of the monotonic clock; ended 0: it never ended */
    int error;
    int64_t number; /* among the lane's calls, from 0 */
    int64_t bytes;  /* of the payload */
    char name[24];  /* "all_reduce": as the writer called it */
    char type[8];   /* "f32" */
};
/* What is known of the rank's process. */
enum recorded_process {
    PROCESS_UNKNOWN, /* it is on another host */
    PROCESS_GONE,
    PROCESS_LIVES,
    PROCESS_STOPPED, /* by a signal or a debugger */
};
struct recording {
    int rank, size, pid;
    enum recorded_process process;
    char host[64], label[RECORDER_TEXT];
    int64_t wall, clock; /* ns: what both clocks showed when it was opened, to compare hosts */
    bool closed;         /* the rank has ended by itself; else it was killed, or still runs */
    bool clean;          /* and all went well */
    bool exited;         /* its process has ended by itself without leaving the group */
    char doing[RECORDER_TEXT];
    int64_t step, noted;          /* the note's step, and when it was noted */
    struct recording_call *calls; /* oldest first; on LANE_IN receives that have ended, and the one it waits for */
    int ncalls;
};
/* ERR_DATA: not a recorder's file, or damaged. pool NULL: all but the calls, from the head of the file alone. */
MUST_CHECK enum error recording_read(const char *path, struct pool *pool, struct recording *out);
/* The text that 'engine inspect' prints for the recordings of one run's or group's ranks: what they wait for, and, if
 * whole, where each rank is or was. */
MUST_CHECK enum error recording_merge(const struct recording *ranks, int n, bool whole, struct pool *pool, char **text);

/* ---- reading by the process itself, while it writes ---- */
/* This rank's calls on a lane from that number on, as far as they are kept; at most n. Gives how many. A call that
 * still runs has no end. Any thread may ask. */
int recorder_recall(const struct recorder *r, int lane, int64_t number, struct recording_call *out, int n);
