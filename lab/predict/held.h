/* The memory of a rank by its plan: what it holds at a time of weights, gradients and the optimizer's state, in bytes. */
#pragma once
#include "engine/settings/sharing.h"

struct held_ask {
    const struct exchange_plan *plan;
    int devices, owners; /* that compute; that update, where parts have owners */
    bool serves_apart;   /* owners are not among the devices */
    int passes, slots;   /* that a step is computed in; of the optimizer */
    double arena;        /* bytes of all weights */
    const double *bytes; /* of each bucket */
    int buckets;
};
struct held {
    double weights;   /* that the rank keeps */
    double gathered;  /* of others' weights, at most, while it computes */
    double gradients; /* with the sums of several passes */
    double leaving;   /* gradients on their way, apart from these */
    double state;
};
struct held held_find(const struct held_ask *ask);
double held_all(const struct held *h);
