/* The whole configuration of a run as the engine's parts read it; run_schema is its schema, one
 * table a section. */
#pragma once
#include "engine/base/leaves.h"
#include "engine/base/limits.h"
#include "engine/base/links.h"
#include "engine/data/dataset.h"
#include "engine/optim/groups.h"
#include "engine/save/init.h"
#include "engine/settings/compress.h"
#include "engine/settings/inject_config.h"
#include "engine/settings/loss.h"
#include "engine/settings/sharing.h"

#include <string.h>

enum { RUN_DEVICES_MAX = RANKS_MAX, RUN_SHARDS_MAX = LEAVES_MAX };
struct device_choice { /* auto | cpu:4 | ref:2 | cuda | cuda:0,2 */
    const char *kind;
    int count;      /* of the whole run */
    int local;      /* of this node; the same on all */
    bool automatic; /* the count was chosen by us */
    int listed;     /* of an accelerator: how many units are named in 'unit'; 0: all, from 0 on */
    int unit[RUN_DEVICES_MAX];
    int server; /* of an accelerator: the unit of a rank that only serves */
};
enum comm_order { COMM_ORDER_AUTO, COMM_ORDER_TREE, COMM_ORDER_RING };
enum comm_backend { BACKEND_AUTO, BACKEND_HOST, BACKEND_PEER, BACKEND_NCCL };
enum dp_server { SERVER_SHARED, SERVER_DEDICATED, SERVER_SHARDED, SERVER_CPU };
enum dp_overlap { DP_OVERLAP_AUTO, DP_OVERLAP_ON, DP_OVERLAP_OFF, DP_OVERLAP_WORDS }; /* true, false; and on, off */
enum dp_scatter { SCATTER_DIRECT, SCATTER_SERVER };
enum sync_state { SYNC_LOCAL, SYNC_AVERAGE };
enum lr_scale { LR_SCALE_NONE, LR_SCALE_LINEAR, LR_SCALE_SQRT };
enum resumed_data { DATA_SAME, DATA_ANY };
enum cuda_graph { CUDA_GRAPH_AUTO, CUDA_GRAPH_OFF };
enum determinism { DETERMINISTIC_FALSE, DETERMINISTIC_TRUE, DETERMINISTIC_BITWISE };

/* This process was started as one rank of many. */
struct run_launched {
    const char *by;        /* a launcher other than ours: "torchrun", ...; NULL: 'engine run', of whose ranks size and
                              locals alone are told, or (size 0) nobody */
    const char *variables; /* by which it was recognised: "RANK, WORLD_SIZE, ..." */
    int rank, size;
    int local, locals;   /* of those on this host; -1, 0: not told */
    const char *master;  /* HOST:PORT or file:///PATH, where the ranks meet; NULL: unknown */
    const char *job;     /* distinguishes this run from others; "" if nothing does */
    const char *problem; /* why its variables cannot be used; NULL: they can */
};

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
    struct batch_config {
        int64_t size;           /* global */
        int64_t shards;         /* V; 0: auto, resolved by run_settings_load */
        const char *shards_why; /* of auto: ", as many as it can be cut in"; or "" */
        int64_t accumulate;
        bool drop_last, pad;
    } batch;
    struct train_config {
        struct config_span length; /* key 'for' */
        struct node *until;        /* {val.accuracy: 0.97} */
        const char *until_metric;  /* a name of metric_find; NULL: none */
        double until_value;
        struct node *patience;       /* {val.loss: 5, min_delta: 0.01} */
        const char *patience_metric; /* a name of metric_find; NULL: none */
        int64_t patience_most;       /* evaluations without an improvement */
        double min_delta;            /* what is more than that is one */
    } train;
    struct optimizer_config {
        struct config_variant kind;
        double clip; /* 0: off */
        bool shard;
        struct node *groups_node, *freeze;
        struct optim_groups groups; /* from these, by run_settings_load */
    } optimizer;
    struct ema_config {
        double decay; /* 0: off */
    } ema;
    struct config_variant schedule;
    struct lr_scale_config {
        int rule;     /* enum lr_scale */
        int64_t base; /* reference global batch: factor is size / base or its root */
    } lr_scale;
    int64_t seed;
    int deterministic; /* enum determinism */
    struct cuda_config {
        int graph; /* enum cuda_graph */
    } cuda;
    struct dp_config {
        int server, scatter;
        int overlap;       /* enum dp_overlap; 'auto' is resolved by run_settings_load */
        int64_t staleness; /* steps that a worker may be ahead of the slowest; -1: any number */
    } dp;
    struct ddp_config {
        struct bucket_config {
            int64_t first, cap; /* bytes; INT64_MAX: all at once */
        } bucket;
        struct sync_config {
            int64_t every;    /* steps */
            const char *with; /* a row of modes/share that ranks meet by */
            int state;        /* enum sync_state */
        } sync;
        bool overlap;
    } ddp;
    struct comm_config {
        int backend;           /* enum comm_backend */
        int link;              /* enum comm_link; 'auto' is resolved by run_settings_load */
        const char *algorithm; /* auto | a name of algos.def */
        int order;             /* enum comm_order, likewise */
        double timeout, heartbeat;
        const char *interface; /* address or name; auto */
        struct emulate_config {
            double bandwidth, latency; /* 0: not emulated */
        } emulate;
        struct config_variant compress; /* index: enum compress_kind; config: compress_config */
    } comm;
    struct place_config { /* section run */
        int64_t nodes, node_rank;
        const char *master;       /* HOST or HOST:PORT */
        int64_t port;             /* of master */
        const char *init;         /* auto | none | env:// | tcp://HOST:PORT | file:///PATH */
        int64_t rank, world_size; /* with init tcp:// and file://; -1, 0: from the environment */
        int64_t restarts;
        struct elastic_config {
            int64_t min; /* devices that are enough to go on when others are lost; 0: all are needed */
        } elastic;
        const char *token; /* auto | none | env:NAME | file:PATH */
        double join_timeout;
    } run;
    struct run_launched launched; /* by NULL: our own launcher starts the ranks, or has (size > 0) */
    bool asks;                    /* a trained network is asked: any number of devices will do */
    struct eval_config {
        struct config_span every; /* off: only at the end */
    } eval;
    struct checkpoint_config {
        struct config_span every;
        int64_t keep;
        const char *best;   /* off, or a name of metric_find that validation measures */
        const char *resume; /* never | auto | PATH */
        int data;           /* enum resumed_data */
    } checkpoint;
    struct log_config {
        const char *dir; /* runs/$name-$time */
        struct config_span every;
        struct config_list sinks;        /* of enum sink_kind */
        const char *dashboard;           /* off | PORT | HOST:PORT, of that form */
        const char *trace;               /* off | 10..20st */
        int64_t trace_first, trace_last; /* from it, by run_settings_load; 0: off */
    } log;
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
/* Reads path (NULL: the empty configuration), applies sets, checks keys, values and combinations,
 * resolves what is 'auto'. launched: what the environment says of a launcher, or NULL. On error all
 * that is wrong is in *report (text for standard error, owned by pool of *out): ERR_CONFIG, or
 * ERR_INPUT when missing. modes: those that may stand under 'mode', NULL-terminated; algorithms:
 * likewise, their names. asks: nothing is trained, so the file's keys of training are left out, devices need not share the
 * shards evenly, and mode single takes the first of a run's devices. run_settings_free in any case. */
MUST_CHECK enum error run_settings_load(const char *path, const char *const *sets, int nsets,
                                        const struct mode_row *const *modes, const char *const *algorithms,
                                        const struct run_launched *launched, enum asks asks, struct run_settings *out,
                                        char **report);
/* A valid address of the dashboard: PORT, HOST:PORT or [V6]:PORT. */
bool run_is_address(const char *text);
/* The same from a tree, which becomes the settings' own but lives as long as its pool does; what is wrong goes to e.
 */
MUST_CHECK enum error run_settings_from(struct node *tree, const struct mode_row *const *modes,
                                        const char *const *algorithms, struct run_settings *out,
                                        struct config_errors *e);
void run_settings_free(struct run_settings *s);
