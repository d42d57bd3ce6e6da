/* Streams: a thread each, and a queue of work. */
#include "tests/emulated/inside.h"

#include <fenv.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st *streams, *legacy[GPUS_MOST];

uint64_t jitter_seed(void) {
    const char *text = getenv("ENGINE_EMULATED_JITTER");
    return text ? strtoull(text, NULL, 10) : 0;
}

uint64_t jitter_next(uint64_t *state) { /* xorshift64* */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du >> 16;
}

/* Most delays are short; one in sixteen is long enough for the host to run far ahead. */
static void jitter(struct CUstream_st *s) {
    if (!s->random) return;
    uint64_t r = jitter_next(&s->random);
    if (r % 4 == 0) usleep((useconds_t)(r >> 8) % (r >> 2 & 3 ? 100 : 2000));
}

/* ---- the queue ---- */
static EMULATED_TLS const struct CUstream_st *stream_now; /* that this thread is of */

static struct {
    char name[200];
    long times;
} works[256];
static pthread_mutex_t works_lock = PTHREAD_MUTEX_INITIALIZER;

static void work_count(const char *name) {
    int i = 0;
    pthread_mutex_lock(&works_lock);
    while (works[i].times && strcmp(works[i].name, name) != 0)
        if (++i == sizeof works / sizeof *works) abort();
    snprintf(works[i].name, sizeof works[i].name, "%s", name);
    works[i].times++;
    pthread_mutex_unlock(&works_lock);
}

__attribute__((destructor)) static void works_tell(void) {
    const char *path = getenv("ENGINE_EMULATED_WORK");
    FILE *f = path ? fopen(path, "w") : NULL;
    for (int i = 0; f && works[i].times; i++) fprintf(f, "%ld %s\n", works[i].times, works[i].name);
    if (f) fclose(f);
}

/* Asked again, what hangs still hangs. */
void emulated_hang(const char *name) {
    static atomic_long calls;
    const char *spec = getenv("ENGINE_EMULATED_HANG"), *colon = spec ? strchr(spec, ':') : NULL;
    char words[64], *at;
    if (getenv("ENGINE_EMULATED_WORK")) work_count(name);
    if (!colon || colon - spec >= (long)sizeof words || !stream_now) return;
    snprintf(words, sizeof words, "%.*s", (int)(colon - spec), spec);
    long n = strtol(colon + 1, &at, 10);
    if (*at != '@' || strtol(at + 1, NULL, 10) != stream_now->gpu || !strstr(name, words)) return;
    while (atomic_fetch_add(&calls, 1) + 1 >= n) pause();
}

static void *stream_main(void *arg) {
    struct CUstream_st *s = arg;
    fesetenv(FE_DFL_ENV); /* a GPU keeps denormals, whatever the thread that made the stream does */
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->stop) pthread_cond_wait(&s->more, &s->lock);
        struct work *w = s->first;
        if (!w) break;
        s->first = w->next;
        if (!s->first) s->last = &s->first;
        pthread_mutex_unlock(&s->lock);
        jitter(s);
        race_begin(s, w);
        stream_now = s;
        w->run(w->arg);
        race_end();
        free(w);
        pthread_mutex_lock(&s->lock);
        s->done++;
        if (s->done == s->submitted) pthread_cond_broadcast(&s->idle);
    }
    pthread_mutex_unlock(&s->lock);
    kernel_forget();
    return NULL;
}

struct work *work_create(void (*run)(void *arg), const void *arg, size_t bytes) {
    void *p = NULL;
    if (posix_memalign(&p, _Alignof(struct work), sizeof(struct work) + bytes)) abort();
    struct work *w = p;
    w->next = NULL;
    w->run = run;
    w->bytes = bytes;
    if (bytes) memcpy(w->arg, arg, bytes);
    return w;
}

static void push(struct CUstream_st *s, struct work *w) {
    pthread_mutex_lock(&s->lock);
    race_work(s, w);
    *s->last = w;
    s->last = &w->next;
    s->submitted++;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
}

static void follow(struct CUstream_st *s, struct CUstream_st *other) {
    struct ticket *t = ticket_keep(ticket_create());
    push(other, work_create(ticket_run_pass, &t, sizeof(struct ticket *)));
    race_record(t, other);
    race_follow(s, t);
    push(s, work_create(ticket_run_wait, &t, sizeof(struct ticket *)));
}

/* The legacy stream runs after all that was asked of the blocking streams before, and they after it. */
static void follow_legacy(struct CUstream_st *s) {
    if (s->flags & cudaStreamNonBlocking) return;
    pthread_mutex_lock(&streams_lock);
    if (s->legacy) {
        for (struct CUstream_st *o = streams; o; o = o->next)
            if (o != s && o->gpu == s->gpu && !(o->flags & cudaStreamNonBlocking)) follow(s, o);
    } else if (legacy[s->gpu])
        follow(s, legacy[s->gpu]);
    pthread_mutex_unlock(&streams_lock);
}

cudaError_t stream_submit(struct CUstream_st *s, void (*run)(void *arg), const void *arg, size_t bytes) {
    struct work *w = work_create(run, arg, bytes);
    if (s->capture) {
        *s->capture->last = w;
        s->capture->last = &w->next;
        s->capture->count++;
        return cudaSuccess;
    }
    follow_legacy(s);
    push(s, w);
    return cudaSuccess;
}

void emulated_submit(cudaStream_t stream, void (*fn)(void *arg), const void *arg, size_t bytes) {
    struct CUstream_st *s = stream_of(stream);
    if (!s) {
        fprintf(stderr, "emulated GPU: work for a stream that is not there\n");
        abort();
    }
    stream_submit(s, fn, arg, bytes);
}

void stream_wait(struct CUstream_st *s) {
    pthread_mutex_lock(&s->lock);
    uint64_t until = s->submitted;
    const struct clock c = race_clock_of(s);
    while (s->done < until) pthread_cond_wait(&s->idle, &s->lock);
    pthread_mutex_unlock(&s->lock);
    race_host(&c);
}

void streams_wait_gpu(int gpu) {
    enum { MOST = 256 }; /* a stream may go while it is waited for: the list is not held meanwhile */
    struct ticket *t[MOST];
    int n = 0;
    pthread_mutex_lock(&streams_lock);
    for (struct CUstream_st *s = streams; s && n < MOST; s = s->next) {
        if (s->gpu != gpu) continue;
        t[n] = ticket_keep(ticket_create());
        push(s, work_create(ticket_run_pass, &t[n], sizeof(struct ticket *)));
        race_record(t[n++], s);
    }
    pthread_mutex_unlock(&streams_lock);
    for (int i = 0; i < n; i++) {
        ticket_wait(t[i]);
        race_host(&t[i]->clock);
        ticket_drop(t[i]);
    }
}

static struct CUstream_st *stream_start(int gpu, unsigned flags, int priority, bool is_legacy) {
    static uint64_t number;
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->gpu = gpu;
    s->slot = race_slot_take();
    s->flags = flags;
    s->priority = priority;
    s->legacy = is_legacy;
    s->last = &s->first;
    if (jitter_seed()) s->random = (jitter_seed() + ++number) * 0x9e3779b97f4a7c15u | 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->more, NULL);
    pthread_cond_init(&s->idle, NULL);
    s->next = streams;
    streams = s;
    fault_watch();
    if (pthread_create(&s->thread, NULL, stream_main, s)) abort();
    return s;
}

struct CUstream_st *stream_of(cudaStream_t stream) {
    struct CUstream_st *found = NULL;
    int gpu = gpu_current();
    pthread_mutex_lock(&streams_lock);
    if (!stream || stream == cudaStreamLegacy) {
        if (!legacy[gpu]) legacy[gpu] = stream_start(gpu, cudaStreamDefault, 0, true);
        found = legacy[gpu];
    } else
        for (struct CUstream_st *s = streams; s && !found; s = s->next)
            if (s == stream) found = s;
    pthread_mutex_unlock(&streams_lock);
    return found;
}

int emulated_stream_gpu(cudaStream_t stream) {
    struct CUstream_st *s = stream_of(stream);
    return s ? s->gpu : -1;
}

bool streams_spoil_capture(void) {
    bool spoilt = false;
    pthread_mutex_lock(&streams_lock);
    for (struct CUstream_st *s = streams; s; s = s->next) {
        bool mine = s->capture && pthread_equal(s->capture_thread, pthread_self());
        if (!s->capture || s->capture_mode == cudaStreamCaptureModeRelaxed) continue;
        if (s->capture_mode == cudaStreamCaptureModeThreadLocal && !mine) continue;
        s->capture_broken = spoilt = true;
    }
    pthread_mutex_unlock(&streams_lock);
    return spoilt;
}

/* ---- the runtime's functions ---- */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority) {
    ENTER_OUTSIDE_CAPTURE(cudaStreamCreateWithPriority);
    REFUSE_IF(flags & ~(unsigned)cudaStreamNonBlocking, cudaErrorInvalidValue);
    pthread_mutex_lock(&streams_lock);
    *out = stream_start(gpu_current(), flags, priority, false);
    pthread_mutex_unlock(&streams_lock);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    ENTER(cudaStreamCreateWithFlags);
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out) {
    ENTER(cudaStreamCreate);
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    ENTER_OUTSIDE_CAPTURE(cudaStreamDestroy);
    struct CUstream_st *s = stream ? stream_of(stream) : NULL;
    REFUSE_IF(!s || s->legacy, cudaErrorInvalidResourceHandle);
    pthread_mutex_lock(&streams_lock);
    struct CUstream_st **at = &streams;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&streams_lock);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->more);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    race_slot_leave(s);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->more);
    pthread_cond_destroy(&s->idle);
    free(s);
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    ENTER(cudaStreamGetFlags);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    *flags = s->flags;
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    ENTER(cudaStreamGetPriority);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    *priority = s->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t stream, int *device) {
    ENTER(cudaStreamGetDevice);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    *device = s->gpu;
    return cudaSuccess;
}

/* Waiting for a stream that captures is an error that spoils the capture. */
static bool capturing(struct CUstream_st *s) {
    if (s->capture) s->capture_broken = true;
    return s->capture;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    ENTER_OUTSIDE_CAPTURE(cudaStreamSynchronize);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(capturing(s), cudaErrorStreamCaptureUnsupported);
    stream_wait(s);
    return runtime_state();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    ENTER_OUTSIDE_CAPTURE(cudaStreamQuery);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    REFUSE_IF(capturing(s), cudaErrorStreamCaptureUnsupported);
    pthread_mutex_lock(&s->lock);
    bool busy = s->done < s->submitted;
    const struct clock c = race_clock_of(s);
    pthread_mutex_unlock(&s->lock);
    REFUSE_IF(busy, cudaErrorNotReady);
    race_host(&c);
    return runtime_state();
}

struct host_call {
    cudaHostFn_t fn;
    void *arg;
};
static void run_host(void *arg) {
    const struct host_call *c = arg;
    c->fn(c->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg) {
    ENTER(cudaLaunchHostFunc);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s, cudaErrorInvalidResourceHandle);
    struct host_call c = {fn, arg};
    return stream_submit(s, run_host, &c, sizeof c);
}

/* ---- captures ---- */
cudaError_t streams_capture_begin(struct CUstream_st *s, enum cudaStreamCaptureMode mode) {
    struct CUgraph_st *g = calloc(1, sizeof *g);
    if (!g) abort();
    g->last = &g->first;
    pthread_mutex_lock(&streams_lock);
    s->capture_mode = mode;
    s->capture_thread = pthread_self();
    s->capture_broken = false;
    s->capture = g;
    pthread_mutex_unlock(&streams_lock);
    return cudaSuccess;
}

struct CUgraph_st *streams_capture_end(struct CUstream_st *s) {
    pthread_mutex_lock(&streams_lock);
    struct CUgraph_st *g = s->capture;
    s->capture = NULL;
    pthread_mutex_unlock(&streams_lock);
    return g;
}
