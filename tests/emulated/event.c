/* Events: every record of one is a ticket, which the stream passes, and which all keep who wait for it. */
#include "tests/emulated/inside.h"

#include <stdlib.h>

static pthread_mutex_t tickets_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t tickets_moved = PTHREAD_COND_INITIALIZER;

struct ticket *ticket_create(void) {
    struct ticket *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->users = 1;
    return t;
}

struct ticket *ticket_keep(struct ticket *t) {
    pthread_mutex_lock(&tickets_lock);
    if (t) t->users++;
    pthread_mutex_unlock(&tickets_lock);
    return t;
}

void ticket_drop(struct ticket *t) {
    pthread_mutex_lock(&tickets_lock);
    bool last = t && --t->users == 0;
    pthread_mutex_unlock(&tickets_lock);
    if (last) free(t);
}

void ticket_pass(struct ticket *t) {
    pthread_mutex_lock(&tickets_lock);
    t->passed = true;
    clock_gettime(CLOCK_MONOTONIC, &t->when);
    pthread_cond_broadcast(&tickets_moved);
    pthread_mutex_unlock(&tickets_lock);
}

bool ticket_passed(struct ticket *t) {
    pthread_mutex_lock(&tickets_lock);
    bool passed = t->passed;
    pthread_mutex_unlock(&tickets_lock);
    return passed;
}

void ticket_wait(struct ticket *t) {
    pthread_mutex_lock(&tickets_lock);
    while (!t->passed) pthread_cond_wait(&tickets_moved, &tickets_lock);
    pthread_mutex_unlock(&tickets_lock);
}

void ticket_run_pass(void *arg) {
    struct ticket *t = *(struct ticket **)arg;
    ticket_pass(t);
    ticket_drop(t);
}

void ticket_run_wait(void *arg) {
    struct ticket *t = *(struct ticket **)arg;
    ticket_wait(t);
    ticket_drop(t);
}

struct CUevent_st {
    int gpu;
    unsigned flags;
    struct ticket *latest;       /* NULL: never recorded */
    struct CUstream_st *capture; /* recorded in a capture of that stream */
};

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags) {
    ENTER(cudaEventCreateWithFlags);
    struct CUevent_st *e = calloc(1, sizeof *e);
    if (!e) abort();
    e->gpu = gpu_current();
    e->flags = flags;
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out) {
    ENTER(cudaEventCreate);
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    ENTER(cudaEventDestroy);
    REFUSE_IF(!e, cudaErrorInvalidResourceHandle);
    ticket_drop(e->latest);
    free(e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
    ENTER(cudaEventRecord);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!e || !s || s->gpu != e->gpu, cudaErrorInvalidResourceHandle);
    e->capture = s->capture ? s : NULL;
    if (s->capture) return cudaSuccess;
    struct ticket *t = ticket_create(), *old = e->latest;
    e->latest = ticket_keep(t);
    ticket_drop(old);
    race_record(t, s);
    return stream_submit(s, ticket_run_pass, &t, sizeof(struct ticket *));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t stream, unsigned flags) {
    ENTER(cudaEventRecordWithFlags);
    REFUSE_IF(flags, cudaErrorInvalidValue);
    return cudaEventRecord(e, stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned flags) {
    ENTER(cudaStreamWaitEvent);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!e || !s || flags, cudaErrorInvalidResourceHandle);
    if (e->capture) { /* a graph of one stream is all that can be emulated */
        REFUSE_IF(e->capture != s, cudaErrorStreamCaptureUnsupported);
        return cudaSuccess;
    }
    if (s->capture && e->latest) s->capture_broken = true;
    REFUSE_IF(s->capture && e->latest, cudaErrorStreamCaptureIsolation);
    if (!e->latest) return cudaSuccess;
    struct ticket *t = ticket_keep(e->latest);
    race_follow(s, t);
    return stream_submit(s, ticket_run_wait, &t, sizeof(struct ticket *));
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
    ENTER_OUTSIDE_CAPTURE(cudaEventQuery);
    REFUSE_IF(!e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(e->capture, cudaErrorCapturedEvent);
    REFUSE_IF(e->latest && !ticket_passed(e->latest), cudaErrorNotReady);
    if (e->latest) race_host(&e->latest->clock);
    return runtime_state();
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    ENTER_OUTSIDE_CAPTURE(cudaEventSynchronize);
    REFUSE_IF(!e, cudaErrorInvalidResourceHandle);
    REFUSE_IF(e->capture, cudaErrorCapturedEvent);
    if (e->latest) ticket_wait(e->latest), race_host(&e->latest->clock);
    return runtime_state();
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    ENTER(cudaEventElapsedTime);
    REFUSE_IF(!from || !to || !from->latest || !to->latest || from->gpu != to->gpu ||
                  ((from->flags | to->flags) & cudaEventDisableTiming),
              cudaErrorInvalidResourceHandle);
    REFUSE_IF(!ticket_passed(from->latest) || !ticket_passed(to->latest), cudaErrorNotReady);
    const struct timespec *a = &from->latest->when, *b = &to->latest->when;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return cudaSuccess;
}
