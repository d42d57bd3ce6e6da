/* Section inject: what goes wrong on purpose. */
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
enum { INJECT_TEXT = 400 };
/* The planted faults in words; "" if there are none. */
char *inject_text(const struct run_config *c, char out[INJECT_TEXT]);
/* The same of what decides which numbers are computed: for trainer_identity. */
char *inject_identity(const struct run_config *c, char out[INJECT_TEXT]);
bool inject_is_slow(const struct slow_config *c);
void inject_fault_text(const struct fault_config *c, char out[INJECT_TEXT]);
enum mistake inject_mistake(const struct run_config *c);
