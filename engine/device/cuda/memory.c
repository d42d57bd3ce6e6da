/* A GPU's memory, the host's that copies run beside, and copies. */
#include "engine/base/text.h"
#include "engine/device/cuda/parts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* What has been allocated, by address; freed and asked for by any thread. */
struct range {
    uintptr_t begin, end;
};
struct cuda_memory {
    pthread_rwlock_t lock;
    struct range *ranges;
    int count, room;
};

enum error cuda_memory_open(struct cuda *c) {
    c->memory = calloc(1, sizeof *c->memory);
    if (!c->memory) return FAIL(ERR_MEMORY, "no memory for a device");
    pthread_rwlock_init(&c->memory->lock, NULL);
    return ERR_NONE;
}

void cuda_memory_close(struct cuda *c) {
    struct cuda_memory *m = c->memory;
    if (!m) return;
    for (int i = 0; i < m->count; i++) (void)cudaFree((void *)m->ranges[i].begin);
    pthread_rwlock_destroy(&m->lock);
    free(m->ranges);
    free(m);
}

/* How many ranges begin at p or before: the last of them may hold it. */
static int ranges_before(const struct cuda_memory *m, uintptr_t p) {
    int low = 0, high = m->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (m->ranges[middle].begin <= p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool keep_range(struct cuda_memory *m, struct range r) {
    pthread_rwlock_wrlock(&m->lock);
    if (m->count == m->room) {
        int room = m->room ? 2 * m->room : 64;
        struct range *more = realloc(m->ranges, (size_t)room * sizeof *more);
        if (more) m->ranges = more, m->room = room;
    }
    bool fits = m->count < m->room;
    if (fits) {
        int at = ranges_before(m, r.begin);
        memmove(m->ranges + at + 1, m->ranges + at, (size_t)(m->count - at) * sizeof r);
        m->ranges[at] = r;
        m->count++;
    }
    pthread_rwlock_unlock(&m->lock);
    return fits;
}

static void drop_range(struct cuda_memory *m, uintptr_t begin) {
    pthread_rwlock_wrlock(&m->lock);
    int at = ranges_before(m, begin) - 1;
    if (at >= 0 && m->ranges[at].begin == begin) {
        m->count--;
        memmove(m->ranges + at, m->ranges + at + 1, (size_t)(m->count - at) * sizeof *m->ranges);
    }
    pthread_rwlock_unlock(&m->lock);
}

bool cuda_holds(const struct device *d, const void *p) {
    struct cuda_memory *m = ((const struct cuda *)d)->memory;
    pthread_rwlock_rdlock(&m->lock);
    int at = ranges_before(m, (uintptr_t)p) - 1;
    bool holds = at >= 0 && (uintptr_t)p < m->ranges[at].end;
    pthread_rwlock_unlock(&m->lock);
    return holds;
}

/* ---- allocation ----------------------------------------------------------------------------- */
static enum error out_of_memory(struct cuda *c, size_t bytes) {
    size_t left = 0, all = 0;
    char asked[32], free_text[32], all_text[32];
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&left, &all);
    return FAIL(ERR_MEMORY,
                "GPU %d (%s) has no %s left: %s of its %s are free\n"
                "a smaller batch, or batch.accumulate, needs less; nvidia-smi shows the other processes that use it",
                c->base.params.unit, c->name, text_of_bytes((double)bytes, asked),
                text_of_bytes((double)left, free_text), text_of_bytes((double)all, all_text));
}

/* Zeroes memory on a stream made for this: the lanes may be busy, or waiting for others. */
static enum error memory_clear(struct cuda *c, void *p, size_t bytes) {
    CU(cudaMemsetAsync(p, 0, bytes, c->setup), "zeroing new memory");
    return cuda_await(c, c->setup, NULL, "zeroing new memory");
}

enum error cuda_alloc(struct device *d, size_t bytes, void **out) {
    CUDA_ENTERED(c, d);
    void *p;
    TRY(cuda_not_recording(c, "an allocation"));
    if (!bytes) bytes = 1;
    cudaError_t e = cudaMalloc(&p, bytes);
    if (e == cudaErrorMemoryAllocation) return out_of_memory(c, bytes);
    CU(e, "memory of the GPU");
    struct range r = {(uintptr_t)p, (uintptr_t)p + bytes};
    enum error err = memory_clear(c, p, bytes);
    if (!err && !keep_range(c->memory, r)) err = FAIL(ERR_MEMORY, "no memory for a device's list");
    if (!err)
        *out = p;
    else if (cuda_may_free(c))
        (void)cudaFree(p);
    return err;
}

void cuda_free(struct device *d, void *p) {
    struct cuda *c = cuda_device(d);
    if (!p || !cuda_may_free(c)) return;
    drop_range(c->memory, (uintptr_t)p);
    (void)cudaFree(p); /* waits for what uses it */
    (void)cudaGetLastError();
}

enum error cuda_host_alloc(struct device *d, size_t bytes, void **out) {
    void *p;
    TRY(cuda_enter(cuda_device(d)));
    TRY(cuda_not_recording(cuda_device(d), "an allocation"));
    cudaError_t e = cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable);
    if (e == cudaErrorMemoryAllocation) {
        char asked[32];
        (void)cudaGetLastError();
        return FAIL(ERR_MEMORY,
                    "no %s of the host's memory can be pinned for copies\n"
                    "free some, or raise the limit of locked memory (ulimit -l)",
                    text_of_bytes((double)bytes, asked));
    }
    CU(e, "memory of the host for copies");
    memset(p, 0, bytes);
    *out = p;
    return ERR_NONE;
}

void cuda_host_free(struct device *d, void *p) {
    if (!p || !cuda_may_free(cuda_device(d))) return;
    (void)cudaFreeHost(p);
    (void)cudaGetLastError();
}

/* ---- copies --------------------------------------------------------------------------------- */

/* Memory of the host that is not pinned: a copy from or to it would make the driver wait for the lane, without a
 * deadline where the GPU hangs. Such a copy goes by way of the lane's bounce, piece by piece. */
static bool host_is_pageable(const void *p) {
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) (void)cudaGetLastError();
    return a.type == cudaMemoryTypeUnregistered;
}

enum { BOUNCE_BYTES = 4 << 20 };

enum error cuda_sent_open(struct cuda_sent *s, size_t bytes, const char *what) {
    if (!s->there) CU(cudaMalloc(&s->there, bytes), what);
    if (!s->host) CU(cudaHostAlloc(&s->host, bytes, cudaHostAllocPortable), what);
    CU(cudaEventCreateWithFlags(&s->copied, cudaEventDisableTiming), what);
    return ERR_NONE;
}

enum error cuda_send(struct cuda *c, enum device_lane l, const struct cuda_sent *s, size_t bytes, const char *what) {
    CU(cudaMemcpyAsync(s->there, s->host, bytes, cudaMemcpyHostToDevice, c->stream[l]), what);
    CU(cudaEventRecord(s->copied, c->stream[l]), what);
    return ERR_NONE;
}

void cuda_sent_close(struct cuda_sent *s) {
    if (s->there) (void)cudaFree(s->there);
    if (s->host) (void)cudaFreeHost(s->host);
    if (s->copied) (void)cudaEventDestroy(s->copied);
    *s = (struct cuda_sent){0};
}

/* The lane's bounce, when the copy that used it last has passed. */
static enum error bounce_take(struct cuda *c, enum device_lane l, struct cuda_sent **out) {
    struct cuda_sent *b = *out = &c->bounce[l];
    TRY(cuda_not_recording(c, "a copy of memory that is not pinned"));
    if (b->copied) return cuda_await(c, c->stream[l], b->copied, "copying by way of pinned memory");
    if (!b->host) TRY(cuda_host_alloc(&c->base, BOUNCE_BYTES, &b->host));
    CU(cudaEventCreateWithFlags(&b->copied, cudaEventDisableTiming), "a mark on a lane");
    return ERR_NONE;
}

/* One piece; 'host' is the caller's, there the GPU's. */
static enum error bounce_piece(struct cuda *c, enum device_lane l, char *host, char *there, size_t bytes,
                               enum cudaMemcpyKind kind) {
    struct cuda_sent *b;
    bool reads = kind == cudaMemcpyDeviceToHost;
    TRY(bounce_take(c, l, &b));
    if (!reads) memcpy(b->host, host, bytes);
    CU(cudaMemcpyAsync(reads ? b->host : there, reads ? there : b->host, bytes, kind, c->stream[l]),
       "copying by way of pinned memory");
    CU(cudaEventRecord(b->copied, c->stream[l]), "a mark on a lane");
    if (!reads) return ERR_NONE;
    TRY(cuda_await(c, c->stream[l], b->copied, "copying from the GPU"));
    memcpy(host, b->host, bytes);
    return ERR_NONE;
}

static enum error bounce_all(struct cuda *c, enum device_lane l, char *host, char *there, size_t bytes,
                             enum cudaMemcpyKind kind) {
    for (size_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < BOUNCE_BYTES ? bytes - at : BOUNCE_BYTES;
        TRY(bounce_piece(c, l, host + at, there + at, n, kind));
    }
    return ERR_NONE;
}

enum error cuda_write(struct device *d, enum device_lane l, void *to, const void *from, size_t bytes) {
    CUDA_ENTERED(c, d);
    if (!bytes) return ERR_NONE;
    if (host_is_pageable(from)) return bounce_all(c, l, (char *)(uintptr_t)from, to, bytes, cudaMemcpyHostToDevice);
    CU(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, c->stream[l]), "copying to the GPU");
    return ERR_NONE;
}

enum error cuda_read(struct device *d, enum device_lane l, void *to, const void *from, size_t bytes) {
    CUDA_ENTERED(c, d);
    if (!bytes) return ERR_NONE;
    if (host_is_pageable(to)) return bounce_all(c, l, to, (char *)(uintptr_t)from, bytes, cudaMemcpyDeviceToHost);
    CU(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, c->stream[l]), "copying from the GPU");
    return ERR_NONE;
}

enum error cuda_zero(struct device *d, enum device_lane l, void *p, size_t bytes) {
    CUDA_ENTERED(c, d);
    if (!bytes) return ERR_NONE;
    CU(cudaMemsetAsync(p, 0, bytes, c->stream[l]), "zeroing memory of the GPU");
    return ERR_NONE;
}

/* Lets a GPU reach its peer's memory. Where it cannot, the driver copies by way of the host: so no failure here is one. */
static void peer_reach(const struct cuda *c, const struct cuda *peer) {
    int can = 0, unit = peer->base.params.unit;
    if (cuda_enter(c) != ERR_NONE) return;
    if (cudaDeviceCanAccessPeer(&can, c->base.params.unit, unit) == cudaSuccess && can)
        (void)cudaDeviceEnablePeerAccess(unit, 0); /* may have been enabled before */
    (void)cudaGetLastError();
}

/* Once a process for each pair of GPUs, whichever devices they belong to. */
static void reach_once(const struct cuda *c, const struct cuda *peer) {
    enum { UNITS = 64 };
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool done[UNITS][UNITS];
    int i = c->base.params.unit, j = peer->base.params.unit;
    if (i >= UNITS || j >= UNITS) return;
    pthread_mutex_lock(&lock);
    if (!done[i][j]) {
        done[i][j] = done[j][i] = true;
        peer_reach(peer, c);
        peer_reach(c, peer);
    }
    pthread_mutex_unlock(&lock);
}

enum error cuda_copy(struct device *d, enum device_lane l, void *to, struct device *peer, const void *from,
                     size_t bytes) {
    CUDA_ENTERED(c, d);
    struct cuda *other = cuda_device(peer);
    int here = c->base.params.unit, there = other->base.params.unit;
    if (!bytes) return ERR_NONE;
    if (here == there) {
        CU(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c->stream[l]), "copying on the GPU");
        return ERR_NONE;
    }
    reach_once(c, other);
    TRY(cuda_enter(c));
    CU(cudaMemcpyPeerAsync(to, here, from, there, bytes, c->stream[l]), "copying from another GPU");
    return ERR_NONE;
}
