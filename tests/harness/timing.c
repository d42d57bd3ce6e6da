#include "tests/harness/timing.h"

#include <stdlib.h>

bool timing_checked(void) {
    return getenv("ENGINE_TEST_TIMING") != NULL;
}

double timing_limit(double seconds) {
#ifdef ENGINE_SANITIZED
    seconds *= 5;
#endif
    return timing_checked() ? seconds : seconds + 60;
}
