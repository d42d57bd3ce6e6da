/* A visit: the connection of one who comes to a door (door.h), for one thread at a time, which waits. Functions give 0
 * or nng's error: NNG_EPEERAUTH where one end does not hold the other's key, NNG_EPROTO where what answers is no door,
 * NNG_ECRYPTO where bytes were changed on the way, NNG_ETIMEDOUT at the deadline (clock_ns). What else they give may be better on another connection. */
#pragma once
#include "transport/door/door.h"

struct visit;
MUST_CHECK enum error visit_create(struct visit **out);
void visit_free(struct visit *v);
/* Connects to "tcp://HOST:PORT" and proves the key; again, after a failure, too. Gives nng's code; deadline: clock_ns. */
int visit_connect(struct visit *v, const char *url, const char *key, int64_t deadline);
/* Room for a message of n bytes; NULL: no memory. */
uint8_t *visit_room(struct visit *v, size_t n);
/* Sends the message in that room, whose head says how long it is, and awaits the reply, which takes its place: its head
 * is a door's, of whatever version, and its bytes are as many as it says, at most 'most'. */
int visit_ask(struct visit *v, size_t most, int64_t deadline);
/* The reply's first byte. */
const uint8_t *visit_reply(const struct visit *v, struct door_head *head);
/* Whether there is a connection, also where no door has answered by it. */
bool visit_arrived(const struct visit *v);
/* Whether the other end is a process of this user on this host. It must have answered already. */
bool visit_is_ours(const struct visit *v);
/* The stream is the caller's, with nothing of what follows the last reply read. */
MUST_CHECK enum error visit_end(struct visit *v, struct stream *out);
