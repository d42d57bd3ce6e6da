/* What is trained and for how long: sections batch, train, optimizer, ema and lr_scale. */
#pragma once
#include "engine/base/leaves.h"
#include "engine/optim/groups.h"

enum { RUN_SHARDS_MAX = LEAVES_MAX };
enum lr_scale { LR_SCALE_NONE, LR_SCALE_LINEAR, LR_SCALE_SQRT };
struct batch_config {
    int64_t size;           /* global */
    int64_t shards;         /* V; 0: auto, resolved by run_settings_load */
    const char *shards_why; /* of auto: ", as many as it can be cut in"; or "" */
    int64_t accumulate;
    bool drop_last, pad;
};
struct train_config {
    struct config_span length; /* key 'for' */
    struct node *until;        /* {val.accuracy: 0.97} */
    const char *until_metric;  /* a name of metric_find; NULL: none */
    double until_value;
    struct node *patience;          /* {val.loss: 5, min_delta: 0.01} */
    const char *patience_metric;    /* a name of metric_find; NULL: none */
    int64_t patience_most;          /* evaluations without an improvement */
    double min_delta;               /* what is more than that is one */
    struct config_span noise_scale; /* how often it is measured; off: never */
    struct config_span stop;        /* where this part of the training ends; off: at its end */
};
struct optimizer_config {
    struct config_variant kind;
    double clip; /* 0: off */
    bool shard;
    struct node *groups_node, *freeze;
    struct optim_groups groups; /* from these, by run_settings_load */
};
struct ema_config {
    double decay; /* 0: off */
};
struct lr_scale_config {
    int rule;     /* enum lr_scale */
    int64_t base; /* reference global batch: factor is size / base or its root */
};
extern const struct config_section batch_section;
extern const struct config_section train_section;
extern const struct config_section optimizer_section;
extern const struct config_section ema_section;
extern const struct config_section lr_scale_section;
