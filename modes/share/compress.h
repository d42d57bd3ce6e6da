/* The interface between compressed.c and the kinds of compression, one file each: compress_NAME.c. */
#pragma once
#include "modes/share/share.h"

struct compress;
struct packet {    /* of a bucket */
    float *g;      /* its gradients, without the arena's header */
    float *rest;   /* what was not sent of them, by error feedback; NULL without */
    int64_t begin; /* their positions in the arena */
    int64_t n;
    void *wire, *back;    /* what travels: of the first exchange, of the second */
    int64_t nwire, nback; /* for the kind: how much of it */
    struct work *work;
};
struct compress_ops {
    bool feedback;
    /* Memory of one bucket: wire and back, by compress_alloc. All ranks alike. */
    enum error (*open)(struct compress *c, struct packet *p);
    enum error (*send)(struct compress *c, struct packet *p, struct dispatch how);
    enum error (*turn)(struct compress *c, struct packet *p, struct dispatch how); /* may be NULL */
    /* The last exchange is done. */
    void (*receive)(struct compress *c, struct packet *p);
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
    struct work *header;    /* the arena's travels apart, as it is */
    float *rest;            /* of the whole arena */
    int64_t *parts;         /* twice ranks + 1, for the kinds' calls */
    void *own;              /* the kind's */
    struct share_ops owner; /* of the update */
    int64_t before;         /* bytes sent before this step's gradients */
    int64_t dense, packed;  /* that gradients would have taken, and took */
};
/* Memory that peers read. Collective. */
MUST_CHECK enum error compress_alloc(struct compress *c, size_t bytes, void **out);
