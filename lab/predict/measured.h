/* A step as a run has measured it, put into the terms of the simulator: the time of its parts from the run's summary,
 * the order and the times of the gradients within backward from its trace, or from what each layer computes. */
#pragma once
#include "engine/base/json.h"
#include "engine/model/graph_plan.h"
#include "lab/predict/simulate.h"
#include "lab/predict/step_trace.h"
#include "lab/results/result.h"

struct run_config;
struct measured_step {
    double load, forward, backward, update; /* seconds, of the whole batch on one device with a core to itself */
    double work;                            /* of the first three, what a device of the run had: 1 / devices */
    int64_t batch;                          /* the whole one */
    int64_t passes;                         /* forwards and backwards of it */
    int64_t samples;                        /* of one of them */
    /* of the network */
    const struct model *model;
    double *by_layer;            /* of each layer, its share of computing, estimated from what it computes */
    double unit;                 /* bytes of an element of an activation */
    double *ready;               /* share of backward that is done when parameter i has its gradient */
    int traced;                  /* steps whose trace gave 'ready'; 0: it is estimated from what each layer computes */
    double activations, scratch; /* bytes of a pass */
    double slots;                /* of the optimizer: numbers of state for each weight */
};
struct measured_ask {
    const struct run_result *run;
    const struct run_config *config;
    const struct model *model;
    const struct plan *plan; /* of one pass */
    int cores;               /* that the run's devices shared; 0: each had its own */
    double quantile;         /* of the times of its steps, which is typical: 0.5, or less if others disturbed it */
};
MUST_CHECK enum error measured_read(const struct measured_ask *ask, struct pool *pool, struct measured_step *out);
/* Of each layer, the share of computing. */
void measured_find_work(const struct model *m, const struct plan *plan, double *work);
/* When gradients are ready, as the run has traced it; nothing changes where it has not. */
void measured_take_trace(struct measured_step *m, const struct step_trace *t);
/* The step of a batch that is 'times' as large, in as many passes: computing takes that much longer. */
struct measured_step measured_grow(const struct measured_step *m, double times);
/* What one of 'devices' does, where each has that share of the batch; buckets as bucket.h cuts them. */
MUST_CHECK enum error measured_shape(const struct measured_step *m, double share, const struct cutting *cut,
                                     struct step_shape *out);
/* Bytes of the busiest device: weights, gradients, optimizer, activations. state: the share of the optimizer's
 * state that it has. */
double measured_memory(const struct measured_step *m, double share, double state);
/* Of which activations, scratch and buffers. */
double measured_beside(const struct measured_step *m, double share);
/* What the configuration's own run should take a step, in its mode, on its devices, with its batch shared by all: of
 * the same network, where a batch of another size is so much more or less of the same work; *formula is the formulas' answer. port: NULL is the one that it emulates. ERR_CONFIG: no port is known, or it sends
 * what is not simulated (compressed gradients, moments of sync_batchnorm, scattered samples). */
MUST_CHECK enum error measured_predict(const struct measured_step *m, const struct run_config *c,
                                       const struct wire *port, int cores, struct simulated *out, double *formula);
/* The first key of the configuration whose effect is not simulated, and the value that leaves it out; NULL: none. */
struct unsimulated {
    const char *key, *without;
};
struct unsimulated measured_unknown(const struct run_config *c);
/* ERR_CONFIG as above, with what to set instead. */
MUST_CHECK enum error measured_refuse(const struct run_config *c);
/* Writes a step's times, bytes and trace as members of the object that is open. */
void measured_json(const struct measured_step *m, struct json *j);
