#include "engine/settings/output.h"

#include "engine/settings/metric.h"
#include "engine/settings/section.h"

static const struct config_field eval_fields[] = {
    {"every", CONFIG_SPAN, offsetof(struct eval_config, every), "1ep",
     "How often to evaluate, besides at the end; end: only at the end; off: never", ABOVE_ZERO, .choices = "off|end",
     .also = "eval_every|eval_steps|eval_interval|val_check_interval"},
    {.key = NULL},
};
SECTION(eval, "every", "Evaluation on validation data");

static const struct config_field checkpoint_fields[] = {
    {"every", CONFIG_SPAN, offsetof(struct checkpoint_config, every), "1ep", "How often to save", ABOVE_ZERO,
     .choices = "off", .also = "save_every|save_steps|save_interval"},
    {"keep", CONFIG_INT, offsetof(struct checkpoint_config, keep), "2", "Number of checkpoints to keep", .min = 1,
     .max = 1000000},
#define CHOICE(key, ...) "|val." #key
    {"best", CONFIG_STRING, offsetof(struct checkpoint_config, best), "off",
     .help = "Also keep the best checkpoint by this metric; of equal values the one with the lower val.loss, then the "
             "later one",
     .choices = "off" VAL_METRICS_LIST(CHOICE)},
#undef CHOICE
    {"resume", CONFIG_PATH, offsetof(struct checkpoint_config, resume), "never",
     .help = "never; auto: continue the newest run of this name; or the path of a checkpoint or run",
     .choices = "never|auto", .also = "resume_from_checkpoint|ckpt_path"},
    {"data", CONFIG_ENUM, offsetof(struct checkpoint_config, data), "same",
     "same: a checkpoint that was saved with other data is refused; any: training continues with the new data",
     .choices = "same|any"},
    {.key = NULL},
};
SECTION(checkpoint, "every", "Checkpoints, from which a stopped run can resume");

/* "|jsonl|csv|..." */
static const char sink_words[] =
#define SINK(name) "|" #name
#include "engine/settings/sinks.def"
    ;
static const struct config_field log_fields[] = {
    {"dir", CONFIG_STRING, offsetof(struct log_config, dir), "runs/$name-$time",
     .help = "Folder of the run's files, relative to the working directory",
     .also = "output_dir|output|out_dir|out|logdir|log_dir|save_dir|run_dir"},
    {"every", CONFIG_SPAN, offsetof(struct log_config, every), "50st",
     "How often to print a line if there is no terminal for a progress bar", ABOVE_ZERO,
     .also = "log_every|log_interval|logging_steps|print_freq"},
    {"sinks", CONFIG_ENUMS, offsetof(struct log_config, sinks), "[jsonl]",
     .help = "Files for the numbers of every step: jsonl writes metrics.jsonl (always), csv metrics.csv, tensorboard "
             "tb/ for TensorBoard",
     .choices = sink_words + 1, .also = "logger|loggers|tensorboard|report_to"},
    {"dashboard", CONFIG_STRING, offsetof(struct log_config, dashboard), "off",
     .help = "Show the run in a browser: PORT for this host only, HOST:PORT, or off; port 0 is any free port"},
    {"trace", CONFIG_STRING, offsetof(struct log_config, trace), "off",
     .help =
         "Steps for which RUN_DIR/trace.json records what each rank did and when: 10..20st, one step as 10, or off"},
    {.key = NULL},
};
/* Each once, and jsonl among them. */
static void sinks_check(const struct config_list *sinks, const struct node *at, struct config_errors *e) {
    static const char *const names[] = {
#define SINK(name) #name,
#include "engine/settings/sinks.def"
    };
    bool seen[SINK_KINDS] = {false};
    for (int i = 0; i < sinks->count; i++) {
        int kind = ((const int *)sinks->items)[i];
        if (seen[kind])
            config_error(e, at && at->kind == NODE_LIST ? at->items[i] : at, false, "'log.sinks' names %s twice",
                         names[kind]);
        seen[kind] = true;
    }
}

static void check_log(const void *config, const struct node *at, struct config_errors *e) {
    const struct log_config *c = config;
    sinks_check(&c->sinks, node_get(at, "sinks"), e);
}

const struct config_section log_section = {.name = "log",
                                           .fields = log_fields,
                                           .size = sizeof(struct log_config),
                                           .shorthand = "every",
                                           .help = "What a run writes",
                                           .check = check_log};
