#include "engine/settings/run_config.h"
#include "engine/settings/section.h"

#include <stdio.h>
#include <string.h>

/* ---- the section ---- */

static const struct config_field slow_fields[] = {
    {"device", CONFIG_INT, offsetof(struct slow_config, device), "0",
     "Number of the device among the computing ones, from 0; all: each device draws its own slow steps", .min = 0,
     .max = RUN_DEVICES_MAX - 1, .choices = "all", .word = -1},
    {"by", CONFIG_SHARE, offsetof(struct slow_config, by), "0%",
     "How much longer it computes, by sleeping: 100% is twice as long; 0%: nothing is injected", .min = 0, .max = 1000},
    {"chance", CONFIG_SHARE, offsetof(struct slow_config, chance), "100%",
     "Share of the steps that are slow; the seed draws them, so they are the same in every run", .min = 0, .max = 1},
    {.key = NULL},
};
static SECTION(slow, "by", "A device that computes slowly");

static const struct config_field fault_fields[] = {
    {"device", CONFIG_INT, offsetof(struct fault_config, device), "0",
     "Number of the device among the computing ones, from 0", .min = 0, .max = RUN_DEVICES_MAX - 1},
    {"step", CONFIG_INT, offsetof(struct fault_config, step), "1",
     "Step of the failure, counted from 1 as in metrics.jsonl; it happens once in a run, even if the run is started "
     "again",
     .min = 1, NO_LIMIT},
    {"kind", CONFIG_ENUM, offsetof(struct fault_config, kind), "none",
     "kill: the device's process is killed; stop: the process is stopped, as if it hung (mode ddp); nan: the device's "
     "gradient contains a NaN",
     .choices = "none|kill|stop|nan"},
    {.key = NULL},
};
static SECTION(fault, "kind", "A failure in one step");

static const struct config_field inject_fields[] = {
    {"slow", CONFIG_SECTION, offsetof(struct inject_config, slow), .extra = &slow_section},
    {"fault", CONFIG_SECTION, offsetof(struct inject_config, fault), .extra = &fault_section},
    {"mistake", CONFIG_ENUM, offsetof(struct inject_config, mistake), "none",
     "no_set_epoch: every epoch has the order of the first; no_broadcast: each rank begins with weights of its own; "
     "padded_eval: validation counts repeated samples; mean_of_means: devices with fewer samples weigh as much as "
     "others",
     .choices = "none|no_set_epoch|no_broadcast|padded_eval|mean_of_means"},
    {.key = NULL},
};
SECTION(inject, "mistake", "Faults that are injected on purpose, to see their effect");

/* ---- in words ---- */

bool inject_is_slow(const struct slow_config *c) {
    return c->by > 0 && c->chance > 0;
}

static void text_add(char out[INJECT_TEXT], const char *text) {
    size_t n = strlen(out);
    snprintf(out + n, INJECT_TEXT - n, "%s%s", n ? "; " : "", text);
}

static void tell_slow(const struct slow_config *c, char out[INJECT_TEXT]) {
    char text[160], who[32] = "every device", when[48] = "";
    if (c->device >= 0) snprintf(who, sizeof who, "device %lld", (long long)c->device);
    if (c->chance < 1) snprintf(when, sizeof when, " in %g %% of its steps", c->chance * 100);
    snprintf(text, sizeof text, "%s computes %g %% longer%s", who, c->by * 100, when);
    text_add(out, text);
}

void inject_fault_text(const struct fault_config *c, char out[INJECT_TEXT]) {
    static const char *const what[] = {"", "'s process is killed", "'s process is stopped", "'s gradient gets a NaN"};
    char text[160];
    snprintf(text, sizeof text, "device %lld%s at step %lld", (long long)c->device, what[c->kind], (long long)c->step);
    text_add(out, text);
}

enum mistake inject_mistake(const struct run_config *c) {
    return (enum mistake)c->inject.mistake;
}

static void tell_mistake(enum mistake m, char out[INJECT_TEXT]) {
    static const char *const what[] = {
        [MISTAKE_NO_SET_EPOCH] = "no_set_epoch: every epoch is in the order of the first",
        [MISTAKE_NO_BROADCAST] = "no_broadcast: each rank begins with weights of its own",
        [MISTAKE_PADDED_EVAL] = "padded_eval: validation counts repeated samples",
        [MISTAKE_MEAN_OF_MEANS] = "mean_of_means: each device's mean weighs the same, of however many samples"};
    text_add(out, what[m]);
}

char *inject_identity(const struct run_config *c, char out[INJECT_TEXT]) {
    *out = '\0';
    if (c->inject.mistake) tell_mistake(inject_mistake(c), out);
    if (c->inject.fault.kind == FAULT_NAN) inject_fault_text(&c->inject.fault, out);
    return out;
}

char *inject_text(const struct run_config *c, char out[INJECT_TEXT]) {
    *out = '\0';
    if (c->inject.mistake) tell_mistake(inject_mistake(c), out);
    if (c->inject.fault.kind) inject_fault_text(&c->inject.fault, out);
    if (inject_is_slow(&c->inject.slow)) tell_slow(&c->inject.slow, out);
    return out;
}
