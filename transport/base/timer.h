/* Timeouts of nng's requests, by the monotonic clock. nng's own go by the wall clock in some of its
 * builds, so a clock that is set back would make them wait for as long. One thread of the process
 * aborts the requests whose time is over. */
#pragma once
#include "engine/base/error.h"
#include <stdint.h>

#include <nng/nng.h>

struct timer { /* all zero: it is not set */
    nng_aio *aio;
    int64_t when;
    struct timer *next, *before;
};
/* Sets it, before the request is begun: at 'when' (clock_ns) the request ends with NNG_ETIMEDOUT. The
 * aio's own timeout is none then. */
void timer_set(struct timer *t, nng_aio *aio, int64_t when);
/* After the request, before the aio's next one, and before it is freed; also when it is not set. */
void timer_clear(struct timer *t);
/* A request that ends with NNG_ETIMEDOUT at 'when', or before that when it is aborted. */
void timer_sleep(struct timer *t, nng_aio *aio, int64_t when);
