/* What goes wrong on purpose (section 'inject'): a device that is slow, to see who waits for it; a fault at one step,
 * to see what is said of it and what survives it; a mistake of those that are made by hand elsewhere, to see what it
 * costs. A run that does not ask for it has nothing of it. */
#pragma once
#include "engine/config/schema.h"

enum fault_kind { FAULT_NONE, FAULT_KILL, FAULT_STOP, FAULT_NAN };
enum mistake {
    MISTAKE_NONE,
    MISTAKE_NO_SET_EPOCH,  /* each epoch in the order of the first */
    MISTAKE_NO_BROADCAST,  /* each rank begins with first weights of its own */
    MISTAKE_PADDED_EVAL,   /* validation repeats samples until all shards have as many */
    MISTAKE_MEAN_OF_MEANS, /* a device's mean counts as one, of however many samples it is */
};

struct inject_config {
    struct slow_config {
        int64_t device;    /* of those that compute; -1: each draws for itself */
        double by, chance; /* shares; by 0: none is slow */
    } slow;
    struct fault_config {
        int64_t device, step; /* step: counted from 1, as metrics do */
        int kind;             /* enum fault_kind */
    } fault;
    int mistake; /* enum mistake */
};
extern const struct config_section inject_section;

struct run_config;
struct trainer;
enum { INJECT_TEXT = 400 };
/* What is planted, in words; "" where nothing is. */
char *inject_text(const struct run_config *c, char out[INJECT_TEXT]);
/* The same of what decides which numbers are computed: for trainer_identity. */
char *inject_identity(const struct run_config *c, char out[INJECT_TEXT]);
enum mistake inject_mistake(const struct run_config *c);

/* ---- a fault: once a run, which then has a file that says so ---- */
/* A new run begins in this folder: it has had none. */
void inject_forget(const char *run_dir);
/* Before a step's computation: kills or stops this process if that is due. */
MUST_CHECK enum error inject_strike(struct trainer *t);
/* Where grads[0] has become final from 'from' up to 'upto': puts a NaN there if that is due. */
MUST_CHECK enum error inject_spoil(struct trainer *t, int64_t from, int64_t upto);

/* ---- a slow device: it sleeps for a share of the time that it has just computed ---- */
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
