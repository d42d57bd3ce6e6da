/* What a run measures and keeps: sections eval, checkpoint and log. */
#pragma once
#include "engine/config/schema.h"

enum sink_kind {
#define SINK(name) SINK_##name,
#include "engine/settings/sinks.def"
    SINK_KINDS
};
enum resumed_data { DATA_SAME, DATA_ANY };
struct eval_config {
    struct config_span every; /* besides at the end; SPAN_END: there alone */
};
struct checkpoint_config {
    struct config_span every;
    int64_t keep;
    const char *best;   /* off, or a name of metric_find that validation measures */
    const char *resume; /* never | auto | PATH */
    int data;           /* enum resumed_data */
};
struct log_config {
    const char *dir; /* runs/$name-$time */
    struct config_span every;
    struct config_list sinks;        /* of enum sink_kind */
    const char *dashboard;           /* off | PORT | HOST:PORT, of that form */
    const char *trace;               /* off | 10..20st */
    int64_t trace_first, trace_last; /* from it, by run_settings_load; 0: off */
};
extern const struct config_section eval_section;
extern const struct config_section checkpoint_section;
extern const struct config_section log_section;
