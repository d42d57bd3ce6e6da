/* A visit: the end of a connection that comes to a door (door.h), for one thread at a time, which waits, but no longer than
 * until the deadline (clock_ns). Functions give 0 or an errno, as those of talk.h: EPROTO where what answers is no door,
 * ETIMEDOUT at the deadline. What else they give may be better on another connection. */
#pragma once
#include "transport/door/door.h"

#define VISIT_NONE ((struct talk){.fd = -1, .most = SIZE_MAX})
/* Connects, and proves the key; again, after a failure, too. */
int visit_connect(struct talk *t, const struct endpoint *to, const char *key, int64_t deadline);
/* Before coming again: sleeps for about so many ns, never beyond the deadline, and doubles them. False: it has passed. */
bool visit_pause(int64_t *ns, int64_t deadline);
enum { VISIT_PAUSE = 5000000 }; /* at first */
/* Sends the message in t's room, whose head says how long it is, and awaits the reply, which takes its place: its head,
 * *head too, is a door's, of whatever version, and its bytes are as many as it says, at most 'most'. */
int visit_ask(struct talk *t, size_t most, int64_t deadline, struct door_head *head);
