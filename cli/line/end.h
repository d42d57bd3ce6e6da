/* How a command ends: its exit code, its error, its JSON. */
#pragma once
#include "engine/base/json.h"

#include <stdio.h>

/* Prints the last error and its hint on standard error; gives the exit code. */
int cli_fail(enum error err);
/* The exit code of a command that ends with err: 0, or that of cli_fail, which prints the error. */
int cli_end(enum error err);
/* The same of an error of which a report tells more; NULL: there is none. */
int cli_reported(enum error err, const char *report);
/* Prints what has been written as one line, unless that has failed with err, and frees it. */
MUST_CHECK enum error cli_json(enum error err, struct json *j, FILE *out);
