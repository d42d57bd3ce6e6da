/* The interface between compressed.c and the kinds of compression, one file each: compress_NAME.c. */
#pragma once
#include "engine/base/plugin.h"
#include "modes/share/share.h"

enum { COMPRESS_RATIO = 0 }; /* the engine's own coders: which parameter */
struct compress;
struct packet {    /* of a bucket */
    float *g;      /* its gradients, without the arena's header */
    float *rest;   /* what was not sent of them, by error feedback; NULL without */
    int64_t begin; /* their positions in the arena */
    int64_t n;
    void *wire, *back;    /* what travels: of the first exchange, of the second */
    int64_t nwire, nback; /* for the kind: how much of it */
    int64_t *part;        /* with servers apart: rank r's is [part[r], part[r + 1]) of g; else NULL */
    void *inbox;          /* of a server apart: what all workers send it, in memory of its own */
    struct work *work;
};
struct compress_ops {
    bool feedback;                         /* of a plug-in, it says so itself */
    const struct engine_compressor *coder; /* of compress_coded.c */
    enum dtype type;                       /* of compress_half.c */
    /* Memory of one bucket: wire and back, by compress_alloc. All ranks alike. */
    enum error (*open)(struct compress *c, struct packet *p);
    enum error (*send)(struct compress *c, struct packet *p, struct dispatch how);
    enum error (*turn)(struct compress *c, struct packet *p, struct dispatch how); /* may be NULL */
    /* The last exchange is done. */
    void (*receive)(struct compress *c, struct packet *p);
    /* In place of these with servers apart: workers send each server its part; at the end this rank's part of g is the
     * sum. NULL, both: the kind makes its sums among all ranks. */
    enum error (*push)(struct compress *c, struct packet *p, struct dispatch how);
    void (*pushed)(struct compress *c, struct packet *p);
    void (*close)(struct compress *c); /* of 'own'; may be NULL */
};
struct compress {
    const struct compress_ops *ops;
    const struct compress_config *config;
    const char *name;
    struct trainer *t;
    struct group *group;
    int count; /* of buckets */
    struct packet *packets;
    struct work *header;                   /* the arena's travels apart, as it is */
    float *rest;                           /* of the whole arena */
    int64_t *parts;                        /* twice ranks + 1, for the kinds' calls */
    void *own;                             /* the kind's */
    const struct engine_compressor *coder; /* of kinds that are a coder, and: */
    const struct plugin *plugin;           /* whose it is; NULL: the engine's */
    double parameter[ENGINE_PARAMETERS];
    struct share_ops owner; /* of the update */
    bool left;              /* something is on its way */
    int64_t before;         /* bytes sent before this step's gradients */
    int64_t dense, packed;  /* that gradients would have taken, and took */
};
/* Memory that peers read. Collective. */
MUST_CHECK enum error compress_alloc(struct compress *c, size_t bytes, void **out);

/* The functions of kinds that are a coder and nothing else (compress_coded.c): a row is COMPRESS_CODED(&its_coder). */
MUST_CHECK enum error coded_open(struct compress *c, struct packet *p);
MUST_CHECK enum error coded_send(struct compress *c, struct packet *p, struct dispatch how);
MUST_CHECK enum error coded_turn(struct compress *c, struct packet *p, struct dispatch how); /* of blocks alone */
void coded_receive(struct compress *c, struct packet *p);
MUST_CHECK enum error coded_push(struct compress *c, struct packet *p, struct dispatch how);
void coded_pushed(struct compress *c, struct packet *p);
#define COMPRESS_CODED(by, left_over)                                                                                  \
    {                                                                                                                  \
        .feedback = left_over, .coder = (by), .open = coded_open, .send = coded_send, .turn = coded_turn,              \
        .receive = coded_receive, .push = coded_push, .pushed = coded_pushed                                           \
    }
