/* The TCP ports of another process, and strangers who connect to them. */
#pragma once
#include "tests/harness/harness.h"

#include <sys/types.h>

/* The ports at which the process listens; how many. */
int ports_of(pid_t pid, int *ports, int most);

/* One of the loopback at which nobody listens now. */
int port_free(void);

enum { STRANGERS = 1000 };
struct strangers {
    int fd[STRANGERS], count; /* when there are more, the first leave */
};
/* Connects to a port of the loopback and sends the bytes, without waiting for anything. */
void stranger_send(struct strangers *s, int port, const void *bytes, size_t n);
void strangers_leave(struct strangers *s);
