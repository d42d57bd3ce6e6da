/* What goes wrong on purpose (section 'inject'): a device that is slow, to see who waits for it. Nothing of it is in
 * a run that does not ask for it. */
#pragma once
#include "engine/config/schema.h"

struct inject_config {
    struct slow_config {
        int64_t device;    /* of those that compute; -1: each draws for itself */
        double by, chance; /* shares; by 0: none is slow */
    } slow;
};
extern const struct config_section inject_section;

struct run_config;
enum { INJECT_TEXT = 400 };
/* What is planted, in words; "" where nothing is. */
char *inject_text(const struct run_config *c, char out[INJECT_TEXT]);

/* ---- a slow device: it sleeps for a share of the time that it has just computed ---- */
struct trainer;
struct lag {        /* of a rank */
    double by;      /* of this step; 0: it is as fast as it is */
    double owed;    /* ns of sleep that it has not slept yet; carried on, as sleeping is coarse */
    int64_t mark;   /* until when what it computed has been counted */
    int64_t unseen; /* ns slept that no phase has counted */
};
/* A step's computation begins. */
void inject_begin(struct trainer *t);
/* On the host: what was computed since then, or since the last call, has its sleep. */
void inject_lag(struct trainer *t);
/* That long it has waited for others meanwhile. */
void inject_waited(struct trainer *t, int64_t ns);
/* Of an accelerator, which computes by itself: whether this step is to wait for it, and the sleep after that. */
bool inject_holds(const struct trainer *t);
MUST_CHECK enum error inject_hold(struct trainer *t);
/* At a step's end: into backward what no phase has counted. */
void inject_settle(struct trainer *t);
