/* A client of the dashboard. */
#pragma once
#include "tests/harness/program.h"

/* Asks localhost at this port. The body's place in 'to', which holds the whole answer; NULL: nobody is there, or the
 * answer is another than 200, and 'to' holds it then. */
const char *http_get(int port, const char *target, char *to, size_t room);
/* The port of the first "http://127.0.0.1:PORT/" in the file, waiting for it up to 30 s; fails the test then. */
int http_port(const char *path);
