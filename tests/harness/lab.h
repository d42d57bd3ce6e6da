/* The claims of a lab that was run. */
#pragma once
#include "tests/harness/program.h"

/* Fails the test unless 'engine lab run --json' has ended well and every claim that it judged holds. A claim about time counts in the
 * job 'timing' alone; elsewhere one that does not hold is printed. Returns how many claims there were. */
int lab_assert_holds(const struct program *p, const char *name);
