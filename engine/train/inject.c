/* What goes wrong on purpose, where it can be done in one place. */
#include "engine/train/inject.h"

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/device/accel.h"
#include "engine/train/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

static const struct config_field inject_fields[] = {
    {"slow", CONFIG_SECTION, offsetof(struct inject_config, slow), .extra = &slow_section},
    {.key = NULL},
};
const struct config_section inject_section = {
    .name = "inject",
    .fields = inject_fields,
    .size = sizeof(struct inject_config),
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

char *inject_text(const struct run_config *c, char out[INJECT_TEXT]) {
    *out = '\0';
    if (is_slow(&c->inject.slow)) tell_slow(&c->inject.slow, out);
    return out;
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

/* Sleeps what is owed. What the kernel gave too much is taken from what comes next. */
static int64_t repay(struct lag *l) {
    if (l->owed < SLEEP_LEAST_NS) return 0;
    int64_t ns = (int64_t)l->owed, begin = clock_ns();
    struct timespec s = {ns / 1000000000, ns % 1000000000};
    nanosleep(&s, NULL); /* a signal may end it: the rest stays owed */
    int64_t slept = clock_ns() - begin;
    l->owed -= (double)slept;
    return slept;
}

static int64_t lag(struct lag *l) {
    l->owed += (double)(clock_ns() - l->mark) * l->by;
    int64_t slept = repay(l);
    l->mark = clock_ns();
    return slept;
}

void inject_lag(struct trainer *t) {
    if (t->lag.by > 0 && !device_accel(t->device)) lag(&t->lag);
}

void inject_waited(struct trainer *t, int64_t ns) {
    t->lag.mark += ns;
}

bool inject_holds(const struct trainer *t) {
    return t->lag.by > 0 && device_accel(t->device);
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
