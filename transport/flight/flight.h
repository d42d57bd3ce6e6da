/* The recordings of groups that programs open through the library. A run has them in its folder; a program's group has
 * its own folder in this host's shared memory, /dev/shm/engine-flight-UID/GROUP, with a file for each of its ranks
 * here. 'engine inspect' finds it there, and only the user can read it. When all ranks have left well, the folder is
 * removed; what killed or failed ranks leave stays until newer recordings need its room. The variable ENGINE_FLIGHT
 * names another folder; if it is empty, nothing is recorded. */
#pragma once
#include "transport/flight/recorder.h"

enum { FLIGHT_NAME = 64 };
struct group;
struct group_flight;
/* Called by all ranks of a group that has just been opened. *out is NULL if nothing is recorded. If a recording cannot
 * be made, that is only logged. parent: the recording of the group that this one was split from, for its name. */
MUST_CHECK enum error flight_open(struct group *g, const struct group_flight *parent, int split, int color,
                                  struct group_flight **out);
/* Called after the group is closed. failed: for another reason than a call, which the recording knows. */
void flight_close(struct group_flight *f, bool failed);
/* The group's name, the same on all ranks: "18a9c5d2f0417e33.1-0"; "" for NULL. */
const char *flight_name(const struct group_flight *f);
struct recorder *flight_recorder(const struct group_flight *f);

struct flight_group {
    const char *name;
    struct recording *ranks; /* those that this host has */
    int n;
    bool lives;     /* at least one of their processes does */
    bool over;      /* all of them have left well, or exited */
    int64_t opened; /* ns of the wall clock, when the first rank opened it */
    size_t bytes;
};
/* All groups that have recordings here, the oldest first. Damaged files and files of other users are left out. */
MUST_CHECK enum error flight_list(struct pool *pool, struct flight_group **out, int *n);
