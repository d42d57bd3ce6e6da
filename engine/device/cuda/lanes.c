/* Lanes are streams, marks events, a recording is a graph. */
#include "engine/base/clock.h"
#include "engine/device/cuda/parts.h"

#include <stdio.h>
#include <stdlib.h>

struct device_mark {
    struct cuda *of;
    cudaEvent_t event;
    cudaStream_t lane; /* that it was set on last */
};
struct device_recording {
    struct cuda *of;
    cudaGraphExec_t graph;
};

/* Makes the lanes' streams. None waits for the legacy default stream, which libraries use unasked. What is exchanged holds others up, so it
 * goes first. */
enum error cuda_lanes_open(struct cuda *c) {
    int least = 0, greatest = 0;
    CU(cudaDeviceGetStreamPriorityRange(&least, &greatest), "the lanes of a GPU");
    for (int l = 0; l < DEVICE_LANES; l++)
        CU(cudaStreamCreateWithPriority(&c->stream[l], cudaStreamNonBlocking, l == LANE_EXCHANGE ? greatest : least),
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
    enum error err = cuda_enter(cuda_device(d));
    (void)err; /* what is then asked of the lane fails: it is another GPU's */
    return cuda_device(d)->stream[l];
}

/* The device on which the calling thread records; others' threads may go on working with it. */
static _Thread_local const struct cuda *recording;

enum error cuda_not_recording(const struct cuda *c, const char *what) {
    return c == recording ? FAIL(ERR_BUG, "%s in the middle of a recording", what) : ERR_NONE;
}

static enum error not_recording(const struct cuda *c, enum device_lane l, const char *what) {
    return l == LANE_COMPUTE ? cuda_not_recording(c, what) : ERR_NONE;
}

/* ---- marks ---------------------------------------------------------------------------------- */
static enum error event_create(struct device *d, unsigned flags, struct device_mark **out) {
    struct device_mark *m = calloc(1, sizeof *m);
    if (!m) return FAIL(ERR_MEMORY, "no memory for a mark");
    m->of = cuda_device(d);
    enum error err = cuda_enter(m->of);
    cudaError_t e = err ? cudaSuccess : cudaEventCreateWithFlags(&m->event, flags);
    if (e != cudaSuccess) err = cuda_failed(e, "a mark on a lane");
    if (err)
        free(m);
    else
        *out = m;
    return err;
}

enum error cuda_mark_create(struct device *d, struct device_mark **out) {
    return event_create(d, cudaEventDisableTiming, out);
}

enum error cuda_timer_create(struct device *d, struct device_mark **out) {
    return event_create(d, cudaEventDefault, out);
}

int64_t cuda_between(const struct device_mark *from, const struct device_mark *to) {
    float ms = 0;
    if (cuda_enter(from->of) != ERR_NONE) return 0;
    if (cudaEventElapsedTime(&ms, from->event, to->event) != cudaSuccess) (void)cudaGetLastError();
    return (int64_t)((double)ms * 1e6);
}

void cuda_mark_free(struct device_mark *m) {
    if (!m || !cuda_may_enter(m->of)) return;
    cuda_forget_mark(m);
    (void)cudaEventDestroy(m->event);
    (void)cudaGetLastError();
    free(m);
}

enum error cuda_mark(struct device *d, enum device_lane l, struct device_mark *m) {
    CUDA_ENTERED(c, d);
    TRY(not_recording(c, l, "a mark"));
    CU(cudaEventRecord(m->event, c->stream[l]), "a mark on a lane");
    m->lane = c->stream[l];
    return ERR_NONE;
}

enum error cuda_follow(struct device *d, enum device_lane l, const struct device_mark *m) {
    CUDA_ENTERED(c, d);
    TRY(not_recording(c, l, "a lane that follows"));
    CU(cudaStreamWaitEvent(c->stream[l], m->event, 0), "a lane that follows another");
    atomic_store(&c->followed[l], m);
    return ERR_NONE;
}

bool cuda_passed(const struct device_mark *m) {
    if (given_up() || cuda_enter(m->of) != ERR_NONE) return true;
    cudaError_t e = cudaEventQuery(m->event);
    if (e != cudaSuccess) (void)cudaGetLastError(); /* "not ready" too is kept as an error */
    return e != cudaErrorNotReady;
}

/* ---- waiting -------------------------------------------------------------------------------- */
static enum error tell_fault(struct cuda *c) {
    int fault = __atomic_exchange_n(c->fault, FAULT_NONE, __ATOMIC_ACQ_REL);
    if (fault == FAULT_LABEL)
        return FAIL(ERR_DATA, "a label is not below the number of classes\n"
                              "labels count from 0: see model.classes, and 'engine data' for the set");
    if (fault == FAULT_TOKEN)
        return FAIL(ERR_DATA, "a token is not in the vocabulary\n"
                              "see the model's vocabulary, and 'engine data' for the set");
    return ERR_NONE;
}

static cudaError_t event_look(cudaStream_t s, cudaEvent_t e) {
    cudaError_t state = e ? cudaEventQuery(e) : cudaStreamQuery(s);
    (void)cudaGetLastError(); /* "not ready" is kept as an error: the next launch would be blamed */
    return state;
}

/* Short waits are watched, as falling asleep and waking takes longer than they; in long ones the thread sleeps for a
 * small part of what it has waited, and leaves the core to those that load data. Near the time that the lane took before it
 * watches again: the GPU has nothing to do from then on until the host sees it. */
static void host_rest(int64_t waited, int64_t before) {
    enum { WATCH = 100000, LONGEST = 1000000, PART = 64, NEAR = 16 };
    int64_t nap = waited / PART < LONGEST ? waited / PART : LONGEST;
    if (waited < WATCH || llabs(waited - before) < before / NEAR)
        clock_relax();
    else
        clock_nap(nap);
}

/* A lane that waits for another's mark does not hang itself: the one at the end of such a chain does. The last device
 * that it leads to is the one to name; its lock is held. */
static const struct cuda *lane_culprit(const struct cuda *c, enum device_lane l) {
    enum { HOPS = 2 * DEVICE_LANES }; /* lanes that follow one another in a circle end somewhere */
    for (int i = 0; i < HOPS; i++) {
        const struct device_mark *m = atomic_load(&c->followed[l]);
        enum device_lane next;
        const struct cuda *other = m ? cuda_with(m->lane, &next) : NULL;
        if (!other || event_look(m->lane, m->event) != cudaErrorNotReady) break;
        c = other;
        l = next;
    }
    return c;
}

static enum error tell_hung(const struct cuda *c, double seconds) {
    const char *doing = atomic_load(&c->base.doing);
    char what[96] = "";
    if (doing) snprintf(what, sizeof what, " (%s, step %lld)", doing, (long long)atomic_load(&c->base.step));
    return FAIL(ERR_TIMEOUT,
                "GPU %d (%s) has not done within %.3g s what it was asked%s\n"
                "it hangs (dmesg shows the driver's Xid errors, nvidia-smi -q its state), or "
                "comm.timeout is too short for what it does",
                c->base.params.unit, c->name, seconds, what);
}

enum error cuda_give_up(struct device *d, enum device_lane l, double seconds) {
    enum { TO_TELL = 5 };
    pthread_mutex_lock(&cuda_devices_lock);
    enum error err = tell_hung(lane_culprit(cuda_device(d), l), seconds);
    pthread_mutex_unlock(&cuda_devices_lock);
    give_up(err, TO_TELL);
    return err;
}

enum error cuda_await(struct cuda *c, cudaStream_t s, cudaEvent_t e, const char *what) {
    int64_t start = clock_ns(), waited;
    double most = c->base.params.timeout;
    cudaError_t state;
    while ((state = event_look(s, e)) == cudaErrorNotReady) {
        TRY(given_up_error());
        waited = clock_ns() - start;
        if (most > 0 && clock_seconds(waited) > most) {
            enum device_lane l = LANE_COMPUTE;
            for (int i = 0; i < DEVICE_LANES; i++)
                if (s == c->stream[i]) l = (enum device_lane)i;
            return cuda_give_up(&c->base, l, clock_seconds(waited));
        }
        host_rest(waited, c->waited);
    }
    CU(state, what);
    waited = clock_ns() - start;
    if (waited > c->waited / 2) c->waited = waited; /* a step's long wait, not the short ones beside it */
    return ERR_NONE;
}

enum error cuda_wait(struct device *d, enum device_lane l) {
    CUDA_ENTERED(c, d);
    TRY(not_recording(c, l, "a wait"));
    TRY(cuda_await(c, c->stream[l], NULL, "the GPU failed at what it was asked before"));
    return tell_fault(c);
}

/* A stream that is recorded cannot be waited for, and what it will run has not begun. */
static bool lane_ends(struct cuda *c, cudaStream_t s) {
    if (!s || (s == c->stream[LANE_COMPUTE] && atomic_load(&c->records))) return true;
    char words[ERROR_WORDS];
    error_words(words, sizeof words);
    if (cuda_await(c, s, NULL, "what is about to be freed") == ERR_NONE) return true;
    enum error err = FAIL(ERR_DEVICE, "%s", words); /* an earlier failure is still to be reported */
    return err && !given_up();
}

bool cuda_may_free(struct cuda *c) {
    if (!cuda_may_enter(c)) return false;
    bool ended = lane_ends(c, c->setup);
    for (int l = 0; l < DEVICE_LANES && ended; l++) ended = lane_ends(c, c->stream[l]);
    return ended;
}

/* ---- recordings ----------------------------------------------------------------------------- */
enum error cuda_record(struct device *d) {
    CUDA_ENTERED(c, d);
    TRY(not_recording(c, LANE_COMPUTE, "a recording"));
    CU(cudaStreamBeginCapture(c->stream[LANE_COMPUTE], cudaStreamCaptureModeThreadLocal), "recording");
    recording = c;
    atomic_store(&c->records, true);
    return ERR_NONE;
}

static enum error recording_keep(struct cuda *c, cudaGraph_t graph, struct device_recording **out) {
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
    CUDA_ENTERED(c, d);
    cudaGraph_t graph = NULL;
    *out = NULL;
    recording = NULL;
    cudaError_t e = cudaStreamEndCapture(c->stream[LANE_COMPUTE], &graph);
    atomic_store(&c->records, false);
    CU(e, "recording");
    enum error err = recording_keep(c, graph, out);
    (void)cudaGraphDestroy(graph);
    return err;
}

enum error cuda_replay(struct device *d, struct device_recording *r) {
    CUDA_ENTERED(c, d);
    TRY(not_recording(c, LANE_COMPUTE, "a replay"));
    CU(cudaGraphLaunch(r->graph, c->stream[LANE_COMPUTE]), "replaying a recording");
    return ERR_NONE;
}

void cuda_recording_free(struct device_recording *r) {
    if (!r || !cuda_may_enter(r->of)) return;
    (void)cudaGraphExecDestroy(r->graph);
    (void)cudaGetLastError();
    free(r);
}
