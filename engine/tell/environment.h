/* The machine and the time at which a run began, which a reader of its times must know: env.json in its directory. */
#pragma once
#include "engine/base/json.h"

enum { LOADS = 3 };
/* Load averages of 1, 5 and 15 minutes; false if the system does not provide them. */
bool environment_load(double out[LOADS]);
/* One object: processor, cores (that this process may use), governor, load, memory, kernel, host (a
 * digest: machines are told apart, none is named), time, engine, compiler. What cannot be known is
 * null. */
void environment_json(struct json *j, const char *key);
/* Writes DIR/env.json. */
MUST_CHECK enum error environment_save(const char *dir, struct pool *pool);
