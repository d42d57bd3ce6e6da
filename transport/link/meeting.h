/* Where the ranks of one group and one host find each other. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

/* It is made before the ranks start. Thread ranks share the object; process ranks
 * inherit its descriptor and join by meeting_join. It is for one group, and memory that the group allocates lives as
 * long as the meeting: free it after the last rank has ended. */
struct meeting;
MUST_CHECK enum error meeting_create(int size, struct meeting **out);        /* for threads */
MUST_CHECK enum error meeting_create_shared(int size, struct meeting **out); /* for processes; a memfd */
MUST_CHECK enum error meeting_join(int fd, int size, struct meeting **out);  /* in a started process */
/* The same of one that another process of this host has at its descriptor fd. */
MUST_CHECK enum error meeting_join_of(int64_t pid, int64_t fd, int size, struct meeting **out);
/* So many will free it, each for itself; else one. */
void meeting_share(struct meeting *m, int users);
void meeting_free(struct meeting *m);
/* The descriptor for meeting_join, -1 where the meeting is for threads. It is close-on-exec: a
 * starter hands it on (posix_spawn_file_actions_adddup2). */
int meeting_fd(const struct meeting *m);
