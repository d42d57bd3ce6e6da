/* How gradients become one update: sections dp, ddp, ps, pipeline and comm. */
#pragma once
#include "engine/base/emulation.h"
#include "engine/config/schema.h"

enum comm_order { COMM_ORDER_AUTO, COMM_ORDER_TREE, COMM_ORDER_RING };
enum comm_backend { BACKEND_AUTO, BACKEND_HOST, BACKEND_PEER, BACKEND_NCCL };
enum dp_server { SERVER_SHARED, SERVER_DEDICATED, SERVER_SHARDED, SERVER_CPU };
enum dp_overlap { DP_OVERLAP_AUTO, DP_OVERLAP_ON, DP_OVERLAP_OFF, DP_OVERLAP_WORDS }; /* true, false; and on, off */
enum dp_scatter { SCATTER_DIRECT, SCATTER_SERVER };
enum ps_place { PS_APART, PS_WORKERS };
enum sync_state { SYNC_LOCAL, SYNC_AVERAGE };
struct dp_config {
    int server, scatter;
    int overlap;       /* enum dp_overlap; 'auto' is resolved by run_settings_load */
    int64_t staleness; /* steps that a worker may be ahead of the slowest; -1: any number */
};
#define BUCKET_STANDARD "25MB"
#define TUNE_WORD "tune" /* of ddp.bucket.cap and comm.algorithm: see sharing.tunes */
struct ddp_config {
    struct bucket_config {
        int64_t first, cap; /* bytes; INT64_MAX: all at once */
    } bucket;
    struct sync_config {
        int64_t every;    /* steps */
        const char *with; /* a way of mode ddp: all | neighbour | a plug-in's file, whose digest sha256 is */
        const char *sha256;
        int state; /* enum sync_state */
        struct outer_config {
            double lr, momentum; /* lr 0: there is no outer step */
        } outer;
    } sync;
    struct reduce_config {
        const char *with; /* sum | adasum | a plug-in's file, whose digest sha256 is */
        const char *sha256;
    } reduce;
    bool overlap;
};
struct ps_config {
    int64_t servers, partition; /* partition: bytes */
    int64_t staleness;          /* as of dp_config */
    int place;                  /* enum ps_place */
    int hosts;                  /* enum server_hosts */
    bool overlap;
};
enum reshard { RESHARD_FORWARD, RESHARD_BACKWARD, RESHARD_NEVER };
struct fsdp_config {
    int reshard;  /* enum reshard */
    int64_t unit; /* bytes */
    bool overlap;
};
enum pipeline_schedule { PIPELINE_GPIPE, PIPELINE_1F1B };
struct pipeline_config {
    struct config_list stages; /* of const char *: auto, their number, or the first layers of all but the first */
    int schedule;              /* enum pipeline_schedule */
};
struct links_config {
    struct config_list ranks, to; /* of const char *: "3", "0-3" */
    bool one_way;
    double value[EMULATED_KEYS];
};
struct comm_config {
    int backend;           /* enum comm_backend */
    int link;              /* enum comm_link; 'auto' is resolved by run_settings_load */
    const char *algorithm; /* auto | a name of algos.def | the path of a plug-in */
    const char *sha256;    /* of that plug-in, once resolved; else NULL */
    int order;             /* enum comm_order, likewise */
    double timeout, heartbeat;
    const char *interface; /* address or name; auto */
    int secure;            /* enum secure */
    struct emulate_config {
        struct emulation as;
        struct config_list links; /* of struct links_config: what 'as' has, as it was written */
    } emulate;
    struct config_variant compress; /* index: enum compress_kind; config: compress_config */
};
extern const struct config_section dp_section;
extern const struct config_section ddp_section;
extern const struct config_section ps_section;
extern const struct config_section fsdp_section;
extern const struct config_section pipeline_section;
extern const struct config_section comm_section;
