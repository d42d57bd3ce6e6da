/* The whole configuration of a run. Each section's struct stands beside its schema's table, in a pair of files of this
 * folder; what needs one section includes that. run_schema names them all. */
#pragma once
#include "engine/data/dataset.h"
#include "engine/save/init_source.h"
#include "engine/settings/exchange.h"
#include "engine/settings/inject_config.h"
#include "engine/settings/output.h"
#include "engine/settings/places.h"
#include "engine/settings/sharing.h"
#include "engine/settings/training.h"

enum determinism { DETERMINISTIC_FALSE, DETERMINISTIC_TRUE, DETERMINISTIC_BITWISE };

struct run_config {
    const char *name;
    const char *mode;       /* a name of modes.def */
    struct sharing sharing; /* from all of this, by run_settings_load */
    const char *devices_text;
    struct device_choice devices; /* from devices_text, by run_settings_load */
    int64_t threads;              /* a device; 0: auto, resolved by run_settings_load */
    struct node *model;
    struct init_source init;    /* from model, by run_settings_load */
    struct config_variant loss; /* index: enum loss; config: loss_config */
    int precision;              /* enum precision */
    bool winograd;              /* of the cpu's convolutions */
    bool sync_batchnorm;
    int64_t recompute; /* stretches of steps, at whose borders activations are kept; 0: auto, 1: all are kept */
    struct data_config data;
    struct batch_config batch;
    struct train_config train;
    struct optimizer_config optimizer;
    struct ema_config ema;
    struct config_variant schedule;
    struct lr_scale_config lr_scale;
    int64_t seed;
    int deterministic; /* enum determinism */
    struct cuda_config cuda;
    struct dp_config dp;
    struct ddp_config ddp;
    struct ps_config ps;
    struct fsdp_config fsdp;
    struct pipeline_config pipeline;
    struct comm_config comm;
    struct place_config run;
    struct run_launched launched; /* by NULL: our own launcher starts the ranks, or has (size > 0) */
    bool asks;                    /* a trained network is asked: any number of devices will do */
    struct eval_config eval;
    struct checkpoint_config checkpoint;
    struct log_config log;
    struct inject_config inject;
};
extern const struct config_section run_schema;

/* Everything a command needs of a configuration. */
struct mode_row;
struct run_settings {
    struct run_config config;
    const struct mode_row *mode;
    struct node *tree; /* complete, with origins: what 'engine config' prints */
    char *given;       /* the text as given, for config.yaml */
    size_t given_length;
    struct pool *pool;
};
/* What a trained network is asked: nothing (it is trained), or something by the devices of its run, or by one here. */
enum asks { ASKS_NOTHING, ASKS_THERE, ASKS_HERE };
struct run_ask {             /* what settings are loaded from */
    const char *path;        /* NULL: the empty configuration */
    const char *const *sets; /* "key=value" */
    int nsets;
    const struct mode_row *const *modes; /* those that may stand under 'mode', NULL-terminated */
    const char *const *algorithms;       /* likewise, their names */
    const struct run_launched *launched; /* what the environment says of a launcher, or NULL */
    /* If nothing is trained, the file's keys of training are left out, devices need not share the shards evenly, and mode
     * single takes the first of a run's devices. */
    enum asks asks;
};
/* Reads the path, applies the sets, checks keys, values and combinations, resolves what is 'auto'. On error all that is
 * wrong is in *report (text for standard error, owned by the pool of *out): ERR_CONFIG, or ERR_INPUT when the file is
 * missing. run_settings_free in any case. */
MUST_CHECK enum error run_settings_load(const struct run_ask *ask, struct run_settings *out, char **report);
/* The same from a tree in place of path and sets, which becomes the settings' own but lives as long as its pool does; what
 * is wrong goes to e. */
MUST_CHECK enum error run_settings_from(struct node *tree, const struct run_ask *ask, struct run_settings *out,
                                        struct config_errors *e);
/* Whether a way to share the update cuts matrices that the optimizer works on as a whole: that way is not possible. */
static inline bool run_cuts_matrices(const struct run_config *c, const struct exchange_plan *p) {
    return optim_of(&c->optimizer.kind)->whole && p->update == UPDATE_BY_OWNERS && !p->staged;
}
/* Ranks of the run, or of this node: devices, and servers that stand apart from them. */
static inline int run_all_ranks(const struct run_config *c) {
    return c->devices.count + c->sharing.servers;
}
static inline int run_local_ranks(const struct run_config *c) {
    return c->devices.local + c->sharing.servers_here;
}
/* A valid address of the dashboard: PORT, HOST:PORT or [V6]:PORT. */
bool run_is_address(const char *text);
void run_settings_free(struct run_settings *s);
