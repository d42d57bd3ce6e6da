/* Gradients on the wire in fewer bytes than they have. A bucket takes one or two exchanges:
 *
 *   compress_send      its gradients are there: what is sent is made of them, and leaves
 *   compress_turn      when all have been sent: the second exchange, of kinds that need one
 *   compress_receive   the gradients become the sum, the same bits on every rank
 *
 * each for all buckets in their order, on every rank the same. The sum is not that of the
 * uncompressed gradients, and depends on the number of ranks. Kinds with error feedback keep on each
 * rank what was not sent, and add it to the gradients of the next step (arXiv:1809.07599); it is in
 * no checkpoint. */
#pragma once
#include "modes/bucket.h"
#include "modes/team.h"

struct compress;
struct packet {    /* of a bucket */
    float *g;      /* its gradients, without the arena's header */
    float *rest;   /* what was not sent of them, by error feedback; NULL without */
    int64_t begin; /* where they stand in the arena */
    int64_t n;
    void *wire, *back;    /* what travels: of the first exchange, of the second */
    int64_t nwire, nback; /* for the kind: how much of it */
    struct work *work;
};
struct compress_ops {
    bool feedback;
    /* Memory of one bucket: wire and back, by compress_alloc. All ranks alike. */
    enum error (*open)(struct compress *c, struct packet *p);
    enum error (*send)(struct compress *c, struct packet *p, enum lane lane);
    enum error (*turn)(struct compress *c, struct packet *p, enum lane lane); /* may be NULL */
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
    struct work *header; /* the arena's travels apart, as it is */
    float *rest;         /* of the whole arena */
    int64_t *parts;      /* ranks + 1, for the kinds' calls */
    void *own;           /* the kind's */
};
/* NULL, where the configuration says none. */
MUST_CHECK enum error compress_open(struct trainer *t, struct group *g, const struct buckets *cut,
                                    struct compress **out);
void compress_close(struct compress *c);
MUST_CHECK enum error compress_send(struct compress *c, int b, enum lane lane);
MUST_CHECK enum error compress_turn(struct compress *c, int b, enum lane lane);
MUST_CHECK enum error compress_receive(struct compress *c, int b);

/* ---- for the kinds ---- */
/* Memory that peers read. Collective. */
MUST_CHECK enum error compress_alloc(struct compress *c, size_t bytes, void **out);
