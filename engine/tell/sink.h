/* A sink: a destination of a run's numbers. Each sink is one file in sinks/ and one line in sinks.def. Sinks belong
 * to rank 0: all calls come from its thread, in the order of events. A failed sink is closed with a warning and never
 * used again; the run continues without it. */
#pragma once
#include "engine/settings/metric.h"
#include "engine/settings/output.h"
#include "engine/tell/trace.h"
#include "engine/tell/usage.h"

#include <stdio.h>

struct job_change;
struct step_record {
    int64_t step, epoch;
    float loss, accuracy;         /* accuracy: NaN without classes */
    double lr, norm, ms, samples; /* norm: of the gradient; 0: nobody asked for it */
    double phase_ms[PHASES];      /* of this rank, communication as far as the step waited for it */
    double loss_scale;            /* fp16; else 0 */
    double noise, signal;         /* train.noise_scale; NaN: this step was not measured */
    bool skipped;
    struct usage_sample usage; /* a few times a second; elsewhere seconds is 0 */
};
struct sink_event {
    int64_t step;
    const char *name, *text; /* text: may be NULL */
    /* Of "started": whose steps follow, an epoch, and where training is to end: steps, or seconds of steps of which
     * 'seconds' are spent; else NULL and 0. */
    const char *run_id;
    int64_t per_epoch, steps;
    double budget, seconds;
    /* Of "devices": what was lost or is back, 'seconds' before the next step had ended (NaN: not known); else NULL. */
    const struct job_change *change;
};
struct sink_place {
    const char *run_dir;
    int64_t step;                /* training begins after it; above 0: it is resumed */
    const struct node *settings; /* the whole configuration */
};
struct sink_ops {
    const char *name;
    /* Makes the file, or goes on with it: of what is there, steps after p->step will come again.
     * When it fails, the run does not begin. */
    enum error (*open)(const struct sink_place *p, void **out);
    /* Their data may stay in memory until the next flush. NULL: the sink does not need this event. */
    enum error (*step)(void *sink, const struct step_record *r);
    enum error (*val)(void *sink, int64_t step, const struct val_result *v);
    enum error (*event)(void *sink, const struct sink_event *e);
    /* What has been written can be read by others. settled: all of the last step, too; else the sink
     * may keep back what validation of that step would change. */
    enum error (*flush)(void *sink, bool settled);
    void (*close)(void *sink);
};
const struct sink_ops *sink_find(enum sink_kind kind);
/* A file of lines that a sink appends to, through a buffer. */
struct sink_file {
    FILE *f;
    const char *name; /* "metrics.jsonl" */
    char buffer[1 << 16];
};
/* Goes on after the last whole line: a process that was killed may have left a piece of one. */
MUST_CHECK enum error sink_file_open(struct sink_file *s, const char *run_dir, const char *name);
MUST_CHECK enum error sink_file_check(const struct sink_file *s); /* all could be written so far */
MUST_CHECK enum error sink_file_flush(struct sink_file *s);
void sink_file_close(struct sink_file *s);
