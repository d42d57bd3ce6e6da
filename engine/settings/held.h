/* The memory of a rank by its plan: what it holds at a time of weights, gradients and the optimizer's state, in bytes. */
#pragma once
#include "engine/settings/sharing.h"

enum held_part {
    HELD_WEIGHTS,     /* that the rank keeps */
    HELD_GATHERED,    /* of others' weights, at most, while it computes */
    HELD_GRADIENTS,   /* with the sums of several passes */
    HELD_LEAVING,     /* gradients on their way, apart from these */
    HELD_OPTIMIZER,   /* its state */
    HELD_ACTIVATIONS, /* with their gradients and scratch, which no plan of exchanges knows: 0 */
    HELD_PARTS
};
extern const char *const held_keys[HELD_PARTS]; /* "weights", ... */
struct held {
    double of[HELD_PARTS];
};
struct held_ask {
    const struct exchange_plan *plan;
    int devices, owners; /* that compute; that update, where parts have owners */
    bool serves_apart;   /* owners are not among the devices */
    double sums;         /* of gradients that are kept at once (held_sums) */
    double slots;        /* of the optimizer: numbers of state for each weight */
    double arena;        /* bytes of all weights */
    const double *bytes; /* of each bucket */
    int buckets;
};
/* How many sums of gradients a step of so many passes keeps at once. */
double held_sums(int passes);
struct held held_find(const struct held_ask *ask);
double held_all(const struct held *h);
