/* The file by which the members of one host find their store's server: it holds the port on the loopback, and a secret.
 * Only its owner can read it, so who has the secret is this user's process. The server locks it as long as it serves. */
#pragma once
#include "engine/base/error.h"
#include "transport/base/secret.h"

/* Writes the file and holds it, as *fd. */
MUST_CHECK enum error signpost_raise(const char *path, int port, const char *key, int *fd);
/* Removes the file where it is still there; fd -1: there is none. */
void signpost_lower(const char *path, int fd);
/* Fails where no server holds the file. */
MUST_CHECK enum error signpost_read(const char *path, int *port, char key[SECRET_SIZE]);
