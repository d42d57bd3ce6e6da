/* Where and when a run began: what a reader of its times must know of the machine. env.json in its
 * directory. */
#pragma once
#include "engine/base/json.h"

enum { LOADS = 3 };
/* Load averages of 1, 5 and 15 minutes; false where the system tells none. */
bool environment_load(double out[LOADS]);
/* One object: processor, cores (that this process may use), governor, load, memory, kernel, host (a
 * digest: machines are told apart, none is named), time, engine, compiler. What cannot be known is
 * null. */
void environment_json(struct json *j, const char *key);
