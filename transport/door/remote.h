/* The process at the other end of a TCP stream. */
#pragma once
#include "engine/base/error.h"

#include <nng/nng.h>

enum { REMOTE_MAX = 64 };
/* "10.0.0.2:41234", "[::1]:41234"; "an unknown address" when the stream has ended. */
void remote_name(nng_stream *s, char out[REMOTE_MAX]);
/* Whether the socket at the other end is on this host and belongs to this process's user, by the kernel's table of
 * sockets. Call it while the other end waits for an answer: a socket that its process has closed has no owner. */
bool remote_is_ours(nng_stream *s);
