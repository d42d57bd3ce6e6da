/* What engine inspect has in a file of its own. */
#pragma once
#include "engine/base/json.h"
#include "engine/data/preprocessing.h"

/* Prints what a network was trained on: sizes, mean and deviation, classes, columns, vocabulary. */
void inspect_preprocessing(const struct preprocessing *p);
/* Prints where the ranks of this host's groups are (transport/flight/flight.h): all groups briefly, or in full those that the
 * word means, a process or a group's name. With j as one JSON object. */
MUST_CHECK enum error inspect_groups(const char *word, struct json *j, struct pool *pool);
