/* Reasons to doubt an experiment's numbers: noise, too few cores, several machines. */
#include "lab/compare/compare.h"

#include "engine/device/device.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void compare_warn(struct compared *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char *kept = pool_vprintf(c->pool, fmt, ap);
    va_end(ap);
    if (kept && c->nwarnings < COMPARE_WARNINGS) c->warning[c->nwarnings++] = kept;
}

static void doubt_spread(struct compared *c) {
    const double much = 0.05;
    int wide = 0, worst = 0;
    if (c->x->measure[0].about == ABOUT_TRAINING) return; /* seeds differ, and a quieter machine changes nothing */
    for (int i = 0; i < c->x->ncells; i++) {
        if (!(c->cell[i].spread > much)) continue;
        if (!wide++ || c->cell[i].spread > c->cell[worst].spread) worst = i;
    }
    if (wide)
        compare_warn(c,
                     "noise: in %d of %d cells half of the runs lie more than %.0f %% apart, the furthest in '%s' "
                     "(%.0f %%): use more repeats or a quieter machine",
                     wide, c->x->ncells, much * 100, c->x->cell[worst].label, c->cell[worst].spread * 100);
}

static void doubt_cores(struct compared *c) {
    int cores = device_host_cores(), worst = -1, most = cores;
    for (int i = 0; i < c->x->ncells; i++) {
        const struct run_config *r = &c->x->cell[i].settings.config;
        int threads = r->devices.count * (int)r->threads;
        if (threads > most) most = threads, worst = i;
    }
    if (worst >= 0)
        compare_warn(c,
                     "oversubscribed: '%s' runs %d threads on %d cores, so devices wait for each other's computing; "
                     "only the times of emulated communication are right",
                     c->x->cell[worst].label, most, cores);
}

static void doubt_machine(struct compared *c) {
    double foreign[EXPERIMENT_CELLS], load = 0;
    const struct result_environment *first = NULL;
    int n = 0;
    bool moved = false;
    for (int i = 0; i < c->x->ncells; i++)
        for (int k = 0; k < c->cell[i].nruns; k++) {
            const struct compared_run *r = &c->cell[i].run[k];
            const struct result_environment *here = &r->result.environment;
            if (k == 0 && isfinite(r->foreign)) foreign[n++] = r->foreign;
            if (!first || (*here->time && strcmp(here->time, first->time) < 0)) first = here, load = here->load;
            moved |= strcmp(here->host, first->host) || strcmp(here->engine, first->engine);
        }
    double others = n ? statistics_median(foreign, n) : 0;
    int cores = device_host_cores();
    if (others > 0.1)
        compare_warn(c, "noise: other programs kept %.1f of %d cores busy while runs were measured", others, cores);
    if (load > cores / 2.0)
        compare_warn(c, "noise: the load average was %.1f on %d cores when the first run began", load, cores);
    if (moved) compare_warn(c, "the runs come from more than one machine or version of the engine");
    if (first && *first->governor && strcmp(first->governor, "performance") != 0)
        compare_warn(c, "the processor's clock is governed by '%s', so it changes during the runs", first->governor);
}

static void doubt_restarts(struct compared *c) {
    int runs = 0, again = 0;
    for (int i = 0; i < c->x->ncells; i++)
        for (int k = 0; k < c->cell[i].nruns; k++) {
            runs += c->cell[i].run[k].again > 0;
            again += c->cell[i].run[k].again;
        }
    if (runs)
        compare_warn(c, "lost ranks or hosts: %d run%s %s begun again, %d time%s in all", runs, runs == 1 ? "" : "s",
                     runs == 1 ? "was" : "were", again, again == 1 ? "" : "s");
}

void compare_doubts(struct compared *c) {
    c->nwarnings = 0;
    doubt_restarts(c);
    doubt_spread(c);
    doubt_cores(c);
    doubt_machine(c);
}
