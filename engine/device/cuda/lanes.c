/* Lanes are streams, marks events, a recording is a graph. */
#include "engine/base/clock.h"
#include "engine/device/cuda/parts.h"

#include <stdlib.h>

struct device_mark {
    struct cuda *of;
    cudaEvent_t event;
};
struct device_recording {
    struct cuda *of;
    cudaGraphExec_t graph;
};

/* None waits for the legacy default stream, which libraries use unasked. What is exchanged holds others up, so it
 * goes first. */
enum error cuda_lanes_open(struct cuda *c) {
    int least = 0, greatest = 0;
    CU(cudaDeviceGetStreamPriorityRange(&least, &greatest), "the lanes of a GPU");
    for (int l = 0; l < DEVICE_LANES; l++)
        CU(cudaStreamCreateWithPriority(&c->stream[l], cudaStreamNonBlocking,
                                        l == LANE_EXCHANGE ? greatest : least),
           "the lanes of a GPU");
    CU(cudaStreamCreateWithPriority(&c->setup, cudaStreamNonBlocking, least), "the lanes of a GPU");
    return ERR_NONE;
}

void cuda_lanes_close(struct cuda *c) {
    for (int l = 0; l < DEVICE_LANES; l++)
        if (c->stream[l]) (void)cudaStreamDestroy(c->stream[l]);
    if (c->setup) (void)cudaStreamDestroy(c->setup);
}

void *cuda_lane(struct device *d, enum device_lane l) {
    return cuda_device(d)->stream[l];
}

/* What may not stand in a recording would spoil it, and be told of at its end as something else. */
static enum error not_recording(const struct cuda *c, enum device_lane l, const char *what) {
    if (l == LANE_COMPUTE && c->recording) /* its thread alone may look */
        return FAIL(ERR_BUG, "%s in the middle of a recording", what);
    return ERR_NONE;
}

/* ---- marks ---------------------------------------------------------------------------------- */
static enum error create(struct device *d, unsigned flags, struct device_mark **out) {
    struct device_mark *m = calloc(1, sizeof *m);
    if (!m) return FAIL(ERR_MEMORY, "no memory for a mark");
    m->of = cuda_device(d);
    cudaError_t e = cudaEventCreateWithFlags(&m->event, flags);
    if (e != cudaSuccess) {
        free(m);
        return cuda_failed(e, "a mark on a lane");
    }
    *out = m;
    return ERR_NONE;
}

enum error cuda_mark_create(struct device *d, struct device_mark **out) {
    return create(d, cudaEventDisableTiming, out);
}

enum error cuda_timer_create(struct device *d, struct device_mark **out) {
    return create(d, cudaEventDefault, out);
}

int64_t cuda_between(const struct device_mark *from, const struct device_mark *to) {
    float ms = 0;
    cuda_enter(from->of);
    if (cudaEventElapsedTime(&ms, from->event, to->event) != cudaSuccess) (void)cudaGetLastError();
    return (int64_t)((double)ms * 1e6);
}

void cuda_mark_free(struct device_mark *m) {
    if (!m) return;
    cuda_enter(m->of);
    (void)cudaEventDestroy(m->event);
    (void)cudaGetLastError();
    free(m);
}

enum error cuda_mark(struct device *d, enum device_lane l, struct device_mark *m) {
    struct cuda *c = cuda_device(d);
    TRY(not_recording(c, l, "a mark"));
    CU(cudaEventRecord(m->event, c->stream[l]), "a mark on a lane");
    return ERR_NONE;
}

enum error cuda_follow(struct device *d, enum device_lane l, const struct device_mark *m) {
    struct cuda *c = cuda_device(d);
    TRY(not_recording(c, l, "a lane that follows"));
    CU(cudaStreamWaitEvent(c->stream[l], m->event, 0), "a lane that follows another");
    return ERR_NONE;
}

bool cuda_passed(const struct device_mark *m) {
    cuda_enter(m->of);
    cudaError_t e = cudaEventQuery(m->event);
    if (e != cudaSuccess) (void)cudaGetLastError(); /* "not ready" too is kept as an error */
    return e != cudaErrorNotReady;
}

/* ---- waiting -------------------------------------------------------------------------------- */
static enum error tell_fault(struct cuda *c) {
    int fault = __atomic_exchange_n(c->fault, FAULT_NONE, __ATOMIC_ACQ_REL);
    if (fault == FAULT_LABEL)
        return FAIL(ERR_DATA,
                    "a label is not below the number of classes\n"
                    "labels count from 0: see model.classes, and 'engine data' for the set");
    if (fault == FAULT_TOKEN)
        return FAIL(ERR_DATA, "a token is not in the vocabulary\n"
                              "see the model's vocabulary, and 'engine data' for the set");
    return ERR_NONE;
}

/* Short waits are watched, as falling asleep and waking takes longer than they; in long ones the thread sleeps, and
 * leaves the core to those that load data. */
enum error cuda_wait(struct device *d, enum device_lane l) {
    enum { WATCH_NS = 100000 };
    struct cuda *c = cuda_device(d);
    TRY(not_recording(c, l, "a wait"));
    int64_t end = clock_ns() + WATCH_NS;
    cudaError_t e;
    while ((e = cudaStreamQuery(c->stream[l])) == cudaErrorNotReady && clock_ns() < end)
        clock_relax();
    (void)cudaGetLastError(); /* "not ready" is kept as an error: the next launch would be blamed */
    if (e == cudaErrorNotReady) e = cudaStreamSynchronize(c->stream[l]);
    CU(e, "the GPU failed at what it was asked before");
    return tell_fault(c);
}

/* ---- recordings ----------------------------------------------------------------------------- */
enum error cuda_record(struct device *d) {
    struct cuda *c = cuda_device(d);
    TRY(not_recording(c, LANE_COMPUTE, "a recording"));
    CU(cudaStreamBeginCapture(c->stream[LANE_COMPUTE], cudaStreamCaptureModeThreadLocal),
       "recording");
    c->recording = true;
    return ERR_NONE;
}

static enum error keep(struct cuda *c, cudaGraph_t graph, struct device_recording **out) {
    struct device_recording *r = calloc(1, sizeof *r);
    if (!r) return FAIL(ERR_MEMORY, "no memory for a recording");
    r->of = c;
    cudaError_t e = cudaGraphInstantiate(&r->graph, graph, 0);
    if (e != cudaSuccess) {
        free(r);
        return cuda_failed(e, "recording");
    }
    *out = r;
    return ERR_NONE;
}

enum error cuda_recorded(struct device *d, struct device_recording **out) {
    struct cuda *c = cuda_device(d);
    cudaGraph_t graph = NULL;
    *out = NULL;
    c->recording = false;
    CU(cudaStreamEndCapture(c->stream[LANE_COMPUTE], &graph), "recording");
    enum error err = keep(c, graph, out);
    (void)cudaGraphDestroy(graph);
    return err;
}

enum error cuda_replay(struct device *d, struct device_recording *r) {
    struct cuda *c = cuda_device(d);
    TRY(not_recording(c, LANE_COMPUTE, "a replay"));
    CU(cudaGraphLaunch(r->graph, c->stream[LANE_COMPUTE]), "replaying a recording");
    return ERR_NONE;
}

void cuda_recording_free(struct device_recording *r) {
    if (!r) return;
    cuda_enter(r->of);
    (void)cudaGraphExecDestroy(r->graph);
    (void)cudaGetLastError();
    free(r);
}
