/* The steps in a run's trace (log.trace), rank by rank: for reports and for the simulator. */
#pragma once
#include "engine/model/model.h"
#include "engine/tell/trace.h"

struct traced_step { /* of one rank; times in ns, of one clock for all ranks */
    int64_t step, begin, end;
    int64_t phase[PHASES];                  /* ns in each, by enum trace_kind */
    int64_t backward_begin, backward_end;   /* of the last one; 0: there was none */
    const struct trace_bucket *bucket;      /* that travelled; by their number */
    int nbuckets, first_event, event_after; /* of the rank's events: [first, after) */
};
struct step_trace {
    struct trace_rank *rank;
    struct traced_step **step; /* of each rank, ascending */
    int *nsteps;
    int nranks; /* 0: the run has no trace */
};
/* ERR_DATA: a file is damaged, or of another run. */
MUST_CHECK enum error step_trace_read(const char *run_dir, struct pool *pool, struct step_trace *out);
/* NULL: it is not there. rank: an index into out->rank. */
const struct traced_step *step_trace_find(const struct step_trace *t, int rank, int64_t step);
/* The step of the first rank's median duration, of the steps that all ranks have; 0: there are none. */
int64_t step_trace_typical(const struct step_trace *t);
/* Which share of the last backward was done when parameter i had its gradient: the median over steps and ranks. Returns
 * the number of steps of ranks that it is known from; 0: of none, as on accelerators, and nothing is changed. */
int step_trace_ready(const struct step_trace *t, const struct model *m, double *ready);
