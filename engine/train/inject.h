/* Faults on purpose (section 'inject'): a slow device, to see which ranks wait for it; a fault at one step, to see
 * what is reported and what survives; a common mistake of hand-written training code, to see its cost. Nothing is
 * injected unless the configuration asks for it. */
#pragma once
#include "engine/settings/inject_config.h"

struct trainer;
/* ---- a fault: once a run, which then has a file that says so ---- */
/* A new run begins in this folder: it has had none. */
void inject_forget(const char *run_dir);
/* Before a step's computation: kills or stops this process if that is due. */
MUST_CHECK enum error inject_strike(struct trainer *t);
/* Call it when grads[0] is final from 'from' up to 'upto': puts a NaN there if one is due. */
MUST_CHECK enum error inject_spoil(struct trainer *t, int64_t from, int64_t upto);

/* ---- a slow device: it sleeps for a share of the time that it has just computed ---- */
/* A step's computation begins. */
void inject_begin(struct trainer *t);
/* Sleeps, on the host, for the time computed since then or since the last call. */
void inject_lag(struct trainer *t);
/* Records that it has waited this long for others meanwhile. */
void inject_waited(struct trainer *t, int64_t ns);
/* For an accelerator, which computes asynchronously: whether this step must wait for it, and the sleep after that. */
bool inject_holds(const struct trainer *t);
MUST_CHECK enum error inject_hold(struct trainer *t);
/* At a step's end, adds to the phase 'backward' the time that no phase has counted. */
void inject_settle(struct trainer *t);
