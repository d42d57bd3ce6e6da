/* What goes wrong on purpose, where it can be done in one place. */
#include "engine/train/inject.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/rng.h"
#include "engine/device/runtime.h"
#include "engine/train/internal.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- the section ---- */

static const struct config_field slow_fields[] = {
    {"device", CONFIG_INT, offsetof(struct slow_config, device), "0",
     "Which of the computing devices, counted from 0; all: each draws its slow steps by itself",
     .min = 0, .max = RUN_DEVICES_MAX - 1, .choices = "all", .word = -1},
    {"by", CONFIG_SHARE, offsetof(struct slow_config, by), "0%",
     "How much longer it computes, by sleeping: 100% is twice as long; 0%: not at all", .min = 0,
     .max = 1000},
    {"chance", CONFIG_SHARE, offsetof(struct slow_config, chance), "100%",
     "In which share of the steps, drawn by the seed: the same steps in every run", .min = 0,
     .max = 1},
    {.key = NULL},
};
static const struct config_section slow_section = {.name = "slow",
                                                   .fields = slow_fields,
                                                   .size = sizeof(struct slow_config),
                                                   .shorthand = "by",
                                                   .help = "A device that computes slowly"};

static const struct config_field fault_fields[] = {
    {"device", CONFIG_INT, offsetof(struct fault_config, device), "0",
     "Which of the computing devices, counted from 0", .min = 0, .max = RUN_DEVICES_MAX - 1},
    {"step", CONFIG_INT, offsetof(struct fault_config, step), "1",
     "In which step, counted from 1 as in metrics.jsonl; once a run, however often it is started "
     "again",
     .min = 1, .max = -1},
    {"kind", CONFIG_ENUM, offsetof(struct fault_config, kind), "none",
     "kill: the device's process is killed; stop: it is stopped, as if it hung (mode ddp); nan: "
     "its gradient holds a NaN",
     .choices = "none|kill|stop|nan"},
    {.key = NULL},
};
static const struct config_section fault_section = {.name = "fault",
                                                    .fields = fault_fields,
                                                    .size = sizeof(struct fault_config),
                                                    .shorthand = "kind",
                                                    .help = "A failure in one step"};

static const struct config_field inject_fields[] = {
    {"slow", CONFIG_SECTION, offsetof(struct inject_config, slow), .extra = &slow_section},
    {"fault", CONFIG_SECTION, offsetof(struct inject_config, fault), .extra = &fault_section},
    {"mistake", CONFIG_ENUM, offsetof(struct inject_config, mistake), "none",
     "no_set_epoch: every epoch in the order of the first; no_broadcast: each rank begins with "
     "weights of its own; padded_eval: validation counts repeated samples; mean_of_means: devices "
     "with fewer samples weigh as much as others",
     .choices = "none|no_set_epoch|no_broadcast|padded_eval|mean_of_means"},
    {.key = NULL},
};
const struct config_section inject_section = {
    .name = "inject",
    .fields = inject_fields,
    .size = sizeof(struct inject_config),
    .shorthand = "mistake",
    .help = "What goes wrong on purpose, to see what it does"};

/* ---- in words ---- */

static bool is_slow(const struct slow_config *c) {
    return c->by > 0 && c->chance > 0;
}

static void add(char out[INJECT_TEXT], const char *text) {
    size_t n = strlen(out);
    snprintf(out + n, INJECT_TEXT - n, "%s%s", n ? "; " : "", text);
}

static void tell_slow(const struct slow_config *c, char out[INJECT_TEXT]) {
    char text[160], who[32] = "every device", when[48] = "";
    if (c->device >= 0) snprintf(who, sizeof who, "device %lld", (long long)c->device);
    if (c->chance < 1) snprintf(when, sizeof when, " in %g %% of its steps", c->chance * 100);
    snprintf(text, sizeof text, "%s computes %g %% longer%s", who, c->by * 100, when);
    add(out, text);
}

static void tell_fault(const struct fault_config *c, char out[INJECT_TEXT]) {
    static const char *const what[] = {"", "'s process is killed", "'s process is stopped",
                                       "'s gradient gets a NaN"};
    char text[160];
    snprintf(text, sizeof text, "device %lld%s at step %lld", (long long)c->device, what[c->kind],
             (long long)c->step);
    add(out, text);
}

enum mistake inject_mistake(const struct run_config *c) {
    return (enum mistake)c->inject.mistake;
}

static void tell_mistake(enum mistake m, char out[INJECT_TEXT]) {
    static const char *const what[] = {
        [MISTAKE_NO_SET_EPOCH] = "no_set_epoch: every epoch is in the order of the first",
        [MISTAKE_NO_BROADCAST] = "no_broadcast: each rank begins with weights of its own",
        [MISTAKE_PADDED_EVAL] = "padded_eval: validation counts repeated samples",
        [MISTAKE_MEAN_OF_MEANS] =
            "mean_of_means: each device's mean weighs the same, of however many samples"};
    add(out, what[m]);
}

char *inject_identity(const struct run_config *c, char out[INJECT_TEXT]) {
    *out = '\0';
    if (c->inject.mistake) tell_mistake(inject_mistake(c), out);
    if (c->inject.fault.kind == FAULT_NAN) tell_fault(&c->inject.fault, out);
    return out;
}

char *inject_text(const struct run_config *c, char out[INJECT_TEXT]) {
    *out = '\0';
    if (c->inject.mistake) tell_mistake(inject_mistake(c), out);
    if (c->inject.fault.kind) tell_fault(&c->inject.fault, out);
    if (is_slow(&c->inject.slow)) tell_slow(&c->inject.slow, out);
    return out;
}

/* ---- a fault ---- */

static void marker_path(const char *run_dir, char path[4096]) {
    snprintf(path, 4096, "%s/inject.fault", run_dir);
}

void inject_forget(const char *run_dir) {
    char path[4096];
    marker_path(run_dir, path);
    unlink(path);
}

/* Whether this fault has struck: by its file in the run's folder, which each node has. A rank that another launcher
 * has started has none: there a run that goes on from a checkpoint counts as struck. */
static bool has_struck(const struct trainer *t, const char *path, const char *text) {
    char said[INJECT_TEXT] = "";
    if (!t->job->run_dir) return t->resumed;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    size_t n = fread(said, 1, sizeof said - 1, f);
    fclose(f);
    said[n] = '\0';
    return !strcmp(said, text);
}

/* Whether the fault is this rank's and this step's; it has then struck. */
static enum error is_due(struct trainer *t, bool *due) {
    const struct fault_config *c = &t->config->inject.fault;
    char path[4096], text[INJECT_TEXT] = "";
    *due = c->kind && t->worker == c->device && t->at.step + 1 == c->step;
    if (!*due) return ERR_NONE;
    tell_fault(c, text);
    if (t->job->run_dir) marker_path(t->job->run_dir, path);
    *due = !has_struck(t, path, text);
    if (!*due) return ERR_NONE;
    log_warn("planted on purpose: %s", text);
    return t->job->run_dir ? file_replace(path, text, strlen(text)) : ERR_NONE;
}

enum error inject_strike(struct trainer *t) {
    int kind = t->config->inject.fault.kind;
    bool due;
    if (kind != FAULT_KILL && kind != FAULT_STOP) return ERR_NONE;
    TRY(is_due(t, &due));
    if (due) kill(getpid(), kind == FAULT_KILL ? SIGKILL : SIGSTOP);
    return ERR_NONE;
}

/* The first gradient that backward makes is of the last layer, behind which nothing can hide it. */
enum error inject_spoil(struct trainer *t, int64_t from, int64_t upto) {
    static const float not_a_number = NAN;
    int64_t at = t->model->params[0].offset;
    bool due;
    if (t->config->inject.fault.kind != FAULT_NAN || at < from || at >= upto) return ERR_NONE;
    TRY(is_due(t, &due));
    return due ? device_write(t->device, t->grads[0] + at, &not_a_number, sizeof not_a_number)
               : ERR_NONE;
}

/* ---- a slow device ---- */

/* Shorter sleeps are lengthened by the kernel, so they are saved up. */
enum { SLEEP_LEAST_NS = 100000 };

/* By how much this rank is slower in this step. */
static double drawn(const struct trainer *t) {
    const struct slow_config *c = &t->config->inject.slow;
    bool meant = t->worker >= 0 && (c->device < 0 || c->device == t->worker);
    if (!is_slow(c) || !meant) return 0;
    struct rng_key key = rng_key((uint64_t)t->config->seed, RNG_INJECT);
    double u = (double)rng_float(key, (uint64_t)t->at.step, (uint64_t)t->worker);
    return u < c->chance ? c->by : 0;
}

void inject_begin(struct trainer *t) {
    t->lag.by = drawn(t);
    t->lag.mark = clock_ns();
}

/* Sleeps what is owed. What the kernel always gives too much is taken from what comes next; what it gave because
 * others had the core is not, or a step that is to be slow would not be. */
static int64_t repay(struct lag *l) {
    if (l->owed < SLEEP_LEAST_NS) return 0;
    int64_t ns = (int64_t)l->owed, begin = clock_ns();
    struct timespec s = {ns / 1000000000, ns % 1000000000};
    nanosleep(&s, NULL); /* a signal may end it: the rest stays owed */
    int64_t slept = clock_ns() - begin;
    l->owed = fmax(l->owed - (double)slept, -SLEEP_LEAST_NS);
    return slept;
}

static int64_t lag(struct lag *l) {
    l->owed += (double)(clock_ns() - l->mark) * l->by;
    int64_t slept = repay(l);
    l->mark = clock_ns();
    return slept;
}

void inject_lag(struct trainer *t) {
    if (t->lag.by > 0 && !inject_holds(t)) lag(&t->lag);
}

void inject_waited(struct trainer *t, int64_t ns) {
    t->lag.mark += ns;
}

bool inject_holds(const struct trainer *t) {
    return t->lag.by > 0 && device_runtime(t->device)->asynchronous;
}

/* The wait is counted as communication, where timers_settle looks for what an accelerator computed; the sleep has to
 * be kept from it. */
enum error inject_hold(struct trainer *t) {
    int64_t mark = clock_ns();
    TRY(device_wait(t->device));
    trainer_phase(t, PHASE_COMM, &mark);
    t->lag.unseen += lag(&t->lag);
    return ERR_NONE;
}

void inject_settle(struct trainer *t) {
    t->phase_ns[PHASE_BACKWARD] += t->lag.unseen;
    t->lag.unseen = 0;
}
