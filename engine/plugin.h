/* Algorithms, compressors, optimizers, ways of sharing and schedules of your own. A configuration names the shared object:
 *
 *     comm: {algorithm: ./mine.so}      comm: {compress: ./mine.so}      optimizer: {name: ./mine.so, lr: 0.1}
 *     ddp: {sync: {every: 4, with: ./mine.so}}      ddp: {reduce: ./mine.so}
 *
 * It is built by 'cc -O2 -shared -fPIC -o mine.so mine.c' and exports one constant:
 *
 *     ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
 *         .version = ENGINE_PLUGIN_VERSION, .about = "a ring", .algorithm = &ring};
 *
 * 'engine new algorithm NAME' writes a complete example, and 'engine check NAME.c' builds it and tries it on every
 * size of group. Functions may be called by several threads at once, one a rank: they keep no variables of their own. */
#ifndef ENGINE_PLUGIN_H
#define ENGINE_PLUGIN_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define ENGINE_PLUGIN_VERSION 3
#define ENGINE_PLUGIN __attribute__((visibility("default")))

/* ---- an algorithm: how an all-reduce is made of messages ---- */

/* The order in which a sum's terms are added, on which its bits depend. TREE: rank v with rank v + 1, and their sums
 * likewise (0+1)+(2+3). RING: of N chunks, chunk c in the order c, c+1, ..., N-1, 0, ..., c-1. OWN: any other; the bits
 * are then promised for one number of ranks alone. */
enum engine_order { ENGINE_TREE, ENGINE_RING, ENGINE_OWN };
enum engine_landing {
    ENGINE_COPY,      /* what comes takes the place of what is there */
    ENGINE_ADD_LEFT,  /* there = what comes + there */
    ENGINE_ADD_RIGHT, /* there = there + what comes */
};
struct engine_leg { /* one direction of an exchange */
    int32_t peer, landing;
    void *data;
    int64_t count; /* elements */
};
/* One call, on one rank. Of an all-reduce, buf holds this rank's term at first and has to hold the sum at the end. The
 * operation may be another than a sum (product, minimum, ...): ENGINE_ADD is that operation. */
struct engine_call {
    int32_t rank, size; /* size is at least 2 */
    int64_t count;      /* elements of buf; at least 1 */
    int64_t bytes;      /* of one element */
    char *buf;
    /* Sends and receives at once, and returns when both are done; NULL: nothing in that direction. What is sent and
     * what is received agree in count, and the two legs share no memory. 0, or a failure, which the function has to
     * return at once. */
    int (*exchange)(struct engine_call *c, const struct engine_leg *out, const struct engine_leg *in);
    void *engine; /* the engine's own */
    /* Of a share: as many elements as buf has, the function's own until it returns; and where tensors lie in buf: tensor i
     * is [tensor[i], tensor[i + 1]). Of weights that meet (ddp.sync) the whole counts as one. */
    void *room;
    const int64_t *tensor;
    int32_t tensors;
};
/* The leg of elements [first, first + count) of the buffer. */
static inline struct engine_leg engine_leg(const struct engine_call *c, int peer, int64_t first, int64_t count,
                                           int landing) {
    struct engine_leg leg = {(int32_t)peer, (int32_t)landing, c->buf + first * c->bytes, count};
    return leg;
}
/* Where chunk k of n begins, as ENGINE_RING cuts a buffer: chunk k is [engine_chunk(.., k), engine_chunk(.., k + 1)). */
static inline int64_t engine_chunk(int64_t count, int n, int k) {
    return count / n * k + count % n * k / n;
}
struct engine_plan {        /* of one rank in one call */
    int64_t sent, received; /* elements */
    int64_t steps;          /* exchanges, one after another */
};
struct engine_algorithm {
    int32_t order; /* enum engine_order */
    /* 0, or what exchange has returned. */
    int (*all_reduce)(struct engine_call *c);
    /* What a rank will do. The engine holds every call to it, and predicts times from it. NULL: nothing is declared. */
    void (*plan)(int32_t rank, int32_t size, int64_t count, struct engine_plan *out);
};

/* ---- a share: what ranks make of each other's weights when they meet, or of each other's gradients ---- */

struct engine_share {
    /* Called on all ranks at each meeting, for each bucket: c->buf holds floats, this rank's weights at first, and at the
     * end what they become. Meetings count from 0. Where all ranks need the same weights (evaluation, checkpoints, the
     * end of training) the engine takes the mean of all instead. As ddp.reduce it is called in each step instead, which
     * is the meeting's number: c->buf holds the mean gradient of this rank's samples at first, and at the end that by which
     * all ranks step, the same on each. 0, or what exchange has returned. */
    int (*meet)(struct engine_call *c, int64_t meeting);
    /* What a rank will do; every call is held to it. NULL: nothing is declared. */
    void (*plan)(int32_t rank, int32_t size, int64_t meeting, int64_t count, struct engine_plan *out);
};

/* ---- a compressor: gradients in fewer bytes ---- */

struct engine_packet {
    const double *parameter; /* the values of engine_plugin.parameters, in their order */
    uint64_t seed;           /* of the run */
    int64_t step, first;     /* the step, and the place of the first float among all gradients */
    int32_t rank, size;
};
struct engine_compressor {
    /* Floats that are encoded together. Blocks have owners, one rank each: all ranks send a block to its owner, who adds
     * them in the order of the ranks, encodes the sum, and sends it to all. 0: a bucket is one block that goes from each
     * rank to all, who add them in the order of the ranks. */
    int64_t block;
    /* 1: what encode leaves in x is added to the next step's gradients (error feedback). 0: it is dropped. */
    int32_t feedback;
    /* Bytes on the wire of n floats, the same on all ranks; of blocks it is asked for a whole one. */
    int64_t (*bytes)(const struct engine_packet *p, int64_t n);
    /* Writes all of these bytes; x becomes what they lack: x = x - decoded. A float that is not finite has to show. */
    void (*encode)(const struct engine_packet *p, float *x, int64_t n, void *wire);
    /* sum += decoded */
    void (*add)(const struct engine_packet *p, const void *wire, float *sum, int64_t n);
};

/* ---- an optimizer: what a step makes of a weight ---- */

struct engine_step {
    const double *parameter;
    double lr;      /* after schedule and lr_scale, of this group of weights */
    float scale;    /* the gradient is g * scale: clipping */
    int32_t matrix; /* 1: of a tensor of two dimensions or more; 0: of a bias or a norm */
    int64_t t;      /* the number of the update, from 1 */
};
struct engine_optimizer {
    /* Updates n weights, each by itself: any cut of a tensor must give the same bits. m and v are two floats of state a
     * weight, which begin at 0 and are saved in checkpoints. */
    void (*step)(const struct engine_step *s, float *w, const float *g, float *m, float *v, int64_t n);
};

/* ---- a schedule: what goes when. 'engine check' alone calls it, on instances that it draws ---- */

struct engine_backward { /* (layers), in the order in which backward has computed their gradients */
    int32_t layers;
    const double *ready; /* seconds from the beginning of backward */
    const double *bytes;
    double alpha, beta; /* a message of n bytes takes alpha + beta n seconds, one after another */
};
struct engine_answers { /* of a server, at a moment when its port is free; answer w * layers + i: layer i of worker w */
    int32_t workers, layers; /* layer 0 is the first that a forward needs */
    double now;              /* in units of what a piece takes */
    const int32_t *here;     /* pieces of each answer that can leave now */
    const int32_t *left;     /* the same, and those that cannot yet */
    const double *forward;   /* what the worker computes with the layer, when it has all of it and the layers before */
};
struct engine_schedule {
    /* ends[i] = 1: a bucket ends with layer i. All are 0 at first. */
    void (*buckets)(const struct engine_backward *b, uint8_t *ends);
    /* The answer of which a piece leaves next; -1: none, before more has come. */
    int32_t (*answer)(const struct engine_answers *a);
    /* The 2 * batches tasks of a stage, in their order: b is the forward of micro-batch b, -b its backward; from 1 on. */
    void (*stage)(int32_t stage, int32_t stages, int32_t batches, int32_t *order);
    /* From 0 to 1: what a gradient counts by whose weights are 'age' updates old. step: the learning rate times the
     * largest curvature. */
    double (*weight)(int32_t age, double step);
};

/* ---- what a file exports ---- */

enum { ENGINE_PARAMETERS = 16 };
struct engine_parameter { /* comm.compress: {kind: ./mine.so, with: {NAME: 0.5}} */
    const char *name;
    double standard;
    const char *about;
};
struct engine_plugin {
    uint32_t version;                          /* ENGINE_PLUGIN_VERSION */
    const char *about;                         /* one line */
    const struct engine_parameter *parameters; /* at most ENGINE_PARAMETERS, then one with name NULL; or NULL */
    /* At least one: */
    const struct engine_algorithm *algorithm;
    const struct engine_compressor *compressor;
    const struct engine_optimizer *optimizer;
    const struct engine_share *share;
    const struct engine_schedule *schedule;
};
extern ENGINE_PLUGIN const struct engine_plugin engine_plugin;

#ifdef __cplusplus
}
#endif
#endif
