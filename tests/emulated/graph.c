/* Captures: what would have been queued is kept in a graph, in its order. */
#include "tests/emulated/inside.h"

#include <stdlib.h>

struct CUgraphExec_st {
    pthread_mutex_t lock;
    int users; /* the owner, and launches that have not run */
    struct CUgraph_st graph;
};

static void graph_clear(struct CUgraph_st *g) {
    for (struct work *w = g->first, *next; w; w = next) {
        next = w->next;
        free(w);
    }
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    ENTER(cudaStreamBeginCapture);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(s->legacy, cudaErrorStreamCaptureUnsupported);
    REFUSE_IF(s->capture, cudaErrorIllegalState);
    return streams_capture_begin(s, mode);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out) {
    *out = NULL;
    struct CUstream_st *s = stream_of(stream); /* a capture ends whatever has failed */
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(!s->capture, cudaErrorIllegalState);
    REFUSE_IF(s->capture_mode != cudaStreamCaptureModeRelaxed && !pthread_equal(s->capture_thread, pthread_self()),
              cudaErrorStreamCaptureWrongThread);
    struct CUgraph_st *g = streams_capture_end(s);
    cudaError_t e = runtime_enter("cudaStreamEndCapture", false);
    if (e == cudaSuccess && s->capture_broken) e = cudaErrorStreamCaptureInvalidated;
    if (e == cudaSuccess) {
        *out = g;
        return e;
    }
    graph_clear(g);
    free(g);
    return runtime_failed(e);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    ENTER(cudaStreamIsCapturing);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    *status = !s->capture         ? cudaStreamCaptureStatusNone
              : s->capture_broken ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *count) {
    ENTER(cudaGraphGetNodes);
    REFUSE_IF(nodes, cudaErrorNotSupported); /* how many there are is all that is told */
    *count = g->count;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
    ENTER(cudaGraphInstantiate);
    REFUSE_IF(!g || flags, cudaErrorInvalidValue);
    struct CUgraphExec_st *x = calloc(1, sizeof *x);
    if (!x) abort();
    pthread_mutex_init(&x->lock, NULL);
    x->users = 1;
    x->graph.last = &x->graph.first;
    for (const struct work *w = g->first; w; w = w->next) {
        *x->graph.last = work_create(w->run, w->arg, w->bytes);
        x->graph.last = &(*x->graph.last)->next;
    }
    *out = x;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags) {
    ENTER(cudaGraphInstantiateWithFlags);
    return cudaGraphInstantiate(out, g, flags);
}

cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    REFUSE_IF(!g, cudaErrorInvalidValue);
    graph_clear(g); /* it is gone whatever has failed: nobody could try again */
    free(g);
    ENTER(cudaGraphDestroy);
    return cudaSuccess;
}

static void exec_drop(struct CUgraphExec_st *x) {
    pthread_mutex_lock(&x->lock);
    bool last = --x->users == 0;
    pthread_mutex_unlock(&x->lock);
    if (!last) return;
    graph_clear(&x->graph);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x) {
    ENTER(cudaGraphExecDestroy);
    REFUSE_IF(!x, cudaErrorInvalidValue);
    exec_drop(x);
    return cudaSuccess;
}

static void run_graph(void *arg) {
    struct CUgraphExec_st *x = *(struct CUgraphExec_st **)arg;
    for (struct work *w = x->graph.first; w; w = w->next) w->run(w->arg);
    exec_drop(x);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t stream) {
    ENTER(cudaGraphUpload);
    REFUSE_IF(!x, cudaErrorInvalidValue);
    REFUSE_IF(!stream_of(stream), cudaErrorInvalidResourceHandle);
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t stream) {
    ENTER(cudaGraphLaunch);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!x, cudaErrorInvalidValue);
    REFUSE_IF(!s || s->gpu != gpu_current(), cudaErrorInvalidResourceHandle);
    REFUSE_IF(s->capture, cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&x->lock);
    x->users++;
    pthread_mutex_unlock(&x->lock);
    return stream_submit(s, run_graph, &x, sizeof(struct CUgraphExec_st *));
}
