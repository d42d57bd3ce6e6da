/* Starting one rank's process, and the line by which it learns who it is. */
#pragma once
#include "transport/launch/launch.h"
#include <sys/types.h>

#define LAUNCH_VARIABLE "ENGINE_LAUNCH"
enum { LAUNCH_TEXT = 200 };
void launch_text(char out[LAUNCH_TEXT], const struct launch_self *s, int parent);

/* Runs p's program as 'self': standard output and error are 'output', input is empty. Its process group is 'group', 0: a
 * new one. All descriptors given must be above 2. */
MUST_CHECK enum error rank_spawn(const struct launch_params *p, const struct launch_self *self, int output, pid_t group,
                                 pid_t *out);
