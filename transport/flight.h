/* The recordings of groups that programs open by the library. A run has them in its folder; a group of a program has a
 * folder of its own in this host's shared memory, /dev/shm/engine-flight-UID/GROUP with a file for each of its ranks here,
 * where 'engine inspect' finds it without being told. Nobody but the user can read them. When all ranks have left well
 * the folder goes; what killed or failed ranks leave stays until newer ones take its room. The variable ENGINE_FLIGHT
 * names another folder; empty: nothing is recorded. */
#pragma once
#include "transport/recorder.h"

enum { FLIGHT_NAME = 64 };
struct group;
struct flight;
/* Of a group that has just been opened, by all its ranks: *out is NULL where nothing is recorded; that a recording cannot be
 * made is logged, as the group is as good without it. parent: of a group that was split from that one's, for its name. */
MUST_CHECK enum error flight_open(struct group *g, const struct flight *parent, int split, int color,
                                  struct flight **out);
/* Once the group is closed. failed: not by its calls, which the recording knows. */
void flight_close(struct flight *f, bool failed);
/* Of the group, the same on all ranks: "18a9c5d2f0417e33.1-0"; "" for NULL. */
const char *flight_name(const struct flight *f);
struct recorder *flight_recorder(const struct flight *f);

struct flight_group {
    const char *name;
    struct recording *ranks; /* those that this host has */
    int n;
    bool lives;     /* one of their processes does */
    int64_t opened; /* ns of the wall clock, by the rank that came first */
    size_t bytes;
};
/* All groups that have recordings here, the oldest first. Files that are damaged or of others are left out. */
MUST_CHECK enum error flight_list(struct pool *pool, struct flight_group **out, int *n);
/* One of them; ranks: how many there were, n of them can be read. */
MUST_CHECK enum error flight_read(const char *folder, const char *name, struct pool *pool, struct flight_group *out);
