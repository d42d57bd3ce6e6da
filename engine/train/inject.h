/* What goes wrong on purpose (section 'inject'): a device that is slow, to see who waits for it; a fault at one step,
 * to see what is said of it and what survives it; a mistake of those that are made by hand elsewhere, to see what it
 * costs. A run that does not ask for it has nothing of it. */
#pragma once
#include "engine/settings/inject_config.h"

struct trainer;
/* ---- a fault: once a run, which then has a file that says so ---- */
/* A new run begins in this folder: it has had none. */
void inject_forget(const char *run_dir);
/* Before a step's computation: kills or stops this process if that is due. */
MUST_CHECK enum error inject_strike(struct trainer *t);
/* Where grads[0] has become final from 'from' up to 'upto': puts a NaN there if that is due. */
MUST_CHECK enum error inject_spoil(struct trainer *t, int64_t from, int64_t upto);

/* ---- a slow device: it sleeps for a share of the time that it has just computed ---- */
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
