/* Faults on purpose, as far as they can be done in one place. */
#include "engine/train/inject.h"

#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/rng.h"
#include "engine/device/runtime.h"
#include "engine/settings/run_config.h"
#include "engine/train/internal.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    *due = c->kind && t->standing.worker == c->device && t->at.step + 1 == c->step;
    if (!*due) return ERR_NONE;
    inject_fault_text(c, text);
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

/* The first gradient that backward makes is of the last layer, after which nothing can hide it. */
enum error inject_spoil(struct trainer *t, int64_t from, int64_t upto) {
    static const float not_a_number = NAN;
    int64_t at = t->model->params[0].offset;
    bool due;
    if (t->config->inject.fault.kind != FAULT_NAN || at < from || at >= upto) return ERR_NONE;
    TRY(is_due(t, &due));
    return due ? device_write(t->device, t->arena.grads[0] + at, &not_a_number, sizeof not_a_number) : ERR_NONE;
}

/* ---- a slow device ---- */

/* Shorter sleeps are lengthened by the kernel, so they are saved up. */
enum { SLEEP_LEAST_NS = 100000 };

/* The factor by which this rank is slower in this step. */
static double lag_drawn(const struct trainer *t) {
    const struct slow_config *c = &t->config->inject.slow;
    bool meant = t->standing.worker >= 0 && (c->device < 0 || c->device == t->standing.worker);
    if (!inject_is_slow(c) || !meant) return 0;
    struct rng_key key = rng_key((uint64_t)t->config->seed, RNG_INJECT);
    double u = (double)rng_float(key, (uint64_t)t->at.step, (uint64_t)t->standing.worker);
    return u < c->chance ? c->by : 0;
}

void inject_begin(struct trainer *t) {
    t->lag.by = lag_drawn(t);
    t->lag.mark = clock_ns();
}

/* Sleeps what is owed. What the kernel always gives too much is taken from what comes next; what it gave because
 * others had the core is not, or a step that is to be slow would not be. */
static int64_t lag_sleep(struct lag *l) {
    if (l->owed < SLEEP_LEAST_NS) return 0;
    int64_t ns = (int64_t)l->owed, begin = clock_ns();
    clock_nap(ns); /* a signal may end it: the rest stays owed */
    int64_t slept = clock_ns() - begin;
    l->owed = fmax(l->owed - (double)slept, -SLEEP_LEAST_NS);
    return slept;
}

static int64_t lag_take(struct lag *l) {
    l->owed += (double)(clock_ns() - l->mark) * l->by;
    int64_t slept = lag_sleep(l);
    l->mark = clock_ns();
    return slept;
}

void inject_lag(struct trainer *t) {
    if (t->lag.by > 0 && !inject_holds(t)) lag_take(&t->lag);
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
    t->lag.unseen += lag_take(&t->lag);
    return ERR_NONE;
}

void inject_settle(struct trainer *t) {
    t->phase_ns[PHASE_BACKWARD] += t->lag.unseen;
    t->lag.unseen = 0;
}
