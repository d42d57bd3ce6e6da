/* Copies and fills, in the order of a stream. Pinned memory is read and written when the stream comes to the copy,
 * other host memory as CUDA promises: read before the call returns, written before it returns. */
#include "tests/emulated/inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Loops, and no calls of the library: the address sanitizer forbids those to touch device memory. */
void emulated_copy(void *to, const void *from, size_t bytes) {
    unsigned char *a = to;
    const unsigned char *b = from;
    emulated_touch(from, bytes, false);
    emulated_touch(to, bytes, true);
    if (a <= b || a >= b + bytes)
        for (size_t i = 0; i < bytes; i++) a[i] = b[i];
    else
        for (size_t i = bytes; i > 0; i--) a[i - 1] = b[i - 1];
}

void emulated_fill(void *p, int value, size_t bytes) {
    unsigned char *a = p;
    emulated_touch(p, bytes, true);
    for (size_t i = 0; i < bytes; i++) a[i] = (unsigned char)value;
}

struct copy {
    char *to;
    const char *from;
    size_t bytes;
    const char *name;
};

static void run_copy(void *arg) {
    const struct copy *c = arg;
    race_name(c->name);
    emulated_hang(c->name);
    emulated_copy(c->to, c->from, c->bytes);
}

struct snapshot {
    char *to;
    size_t bytes;
};
static void run_snapshot(void *arg) {
    const struct snapshot *c = arg;
    race_name("copy from the host");
    emulated_hang("copy from the host");
    emulated_copy(c->to, c + 1, c->bytes);
}

struct fill {
    void *to;
    int value;
    size_t bytes;
};
static void run_fill(void *arg) {
    const struct fill *f = arg;
    race_name("a fill");
    emulated_hang("a fill");
    emulated_fill(f->to, f->value, f->bytes);
}

/* One end of a copy: where it lies; false: it leaves its memory. */
struct end {
    bool known, device;
    int gpu;
};
static bool place(const void *p, size_t bytes, struct end *out) {
    struct region r;
    *out = (struct end){.gpu = -1};
    if (!region_find(p, &r) || (const char *)p == r.begin + r.bytes) return true;
    *out = (struct end){.known = true, .device = r.kind == REGION_DEVICE, .gpu = r.gpu};
    return bytes <= (size_t)(r.begin + r.bytes - (const char *)p);
}

static cudaError_t submit_snapshot(struct CUstream_st *s, void *to, const void *from, size_t bytes) {
    struct snapshot head = {to, bytes};
    char *both = malloc(sizeof head + bytes);
    if (!both) return cudaErrorMemoryAllocation;
    memcpy(both, &head, sizeof head);
    memcpy(both + sizeof head, from, bytes);
    cudaError_t e = stream_submit(s, run_snapshot, both, sizeof head + bytes);
    free(both);
    return e;
}

static _Atomic uint64_t read_bytes, allocations;

void copy_allocated(void) {
    atomic_fetch_add(&allocations, 1);
}

__attribute__((destructor)) static void tell_read(void) {
    const char *path = getenv("ENGINE_EMULATED_READ");
    FILE *f = path ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%llu %llu\n", (unsigned long long)read_bytes, (unsigned long long)allocations);
    fclose(f);
}

static const char *copy_name(const struct end *to, const struct end *from) {
    return !to->device            ? "copy to the host"
           : !from->device        ? "copy from the host"
           : to->gpu != from->gpu ? "copy between GPUs"
                                  : "copy on a GPU";
}

/* The driver waits in such a copy, for a GPU that may hang. */
static void refuse_pageable(const struct end *a, const struct end *b) {
    const char *allowed = getenv("ENGINE_EMULATED_PAGEABLE");
    if ((a->known && b->known) || (allowed && *allowed == '1')) return;
    fprintf(stderr, "emulated GPU: a copy %s memory that is not pinned\n", a->known ? "from" : "to");
    abort();
}

static cudaError_t copy(struct CUstream_st *s, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        bool *host_waits) {
    struct end a, b;
    *host_waits = false;
    if (!s) return cudaErrorInvalidResourceHandle;
    if (!bytes) return cudaSuccess;
    if (!place(to, bytes, &a) || !place(from, bytes, &b)) return cudaErrorInvalidValue;
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if (kind != cudaMemcpyDefault && (a.device != to_device || b.device != from_device)) return cudaErrorInvalidValue;
    refuse_pageable(&a, &b);
    *host_waits = !a.known;
    if (b.device && !a.device) atomic_fetch_add(&read_bytes, bytes);
    if (!b.known && !s->capture) return submit_snapshot(s, to, from, bytes);
    struct copy c = {to, from, bytes, copy_name(&a, &b)};
    return stream_submit(s, run_copy, &c, sizeof c);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    ENTER(cudaMemcpyAsync);
    struct CUstream_st *s = stream_of(stream);
    bool host_waits;
    cudaError_t e = copy(s, to, from, bytes, kind, &host_waits);
    if (e == cudaSuccess && host_waits && !s->capture) {
        stream_wait(s);
        return runtime_state();
    }
    return runtime_failed(e);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    ENTER_OUTSIDE_CAPTURE(cudaMemcpy);
    struct CUstream_st *s = stream_of(NULL);
    struct end a, b;
    bool host_waits;
    cudaError_t e = copy(s, to, from, bytes, kind, &host_waits);
    REFUSE_IF(e != cudaSuccess, e);
    place(to, 0, &a);
    place(from, 0, &b);
    if (!a.device || !b.device) stream_wait(s); /* within a GPU it is not waited for */
    return runtime_state();
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t stream) {
    ENTER(cudaMemcpyPeerAsync);
    struct CUstream_st *s = stream_of(stream);
    struct end a, b;
    bool host_waits;
    int n = gpu_count();
    REFUSE_IF(to_gpu < 0 || to_gpu >= n || from_gpu < 0 || from_gpu >= n, cudaErrorInvalidDevice);
    REFUSE_IF(!place(to, bytes, &a) || !place(from, bytes, &b), cudaErrorInvalidValue);
    REFUSE_IF(bytes && (a.gpu != to_gpu || b.gpu != from_gpu), cudaErrorInvalidValue);
    return runtime_failed(copy(s, to, from, bytes, cudaMemcpyDeviceToDevice, &host_waits));
}

cudaError_t cudaMemcpyPeer(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes) {
    ENTER_OUTSIDE_CAPTURE(cudaMemcpyPeer);
    return cudaMemcpyPeerAsync(to, to_gpu, from, from_gpu, bytes, NULL);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    ENTER(cudaMemsetAsync);
    struct CUstream_st *s = stream_of(stream);
    struct end a;
    REFUSE_IF(!s || s->gpu != gpu_current(), cudaErrorInvalidResourceHandle);
    if (!bytes) return cudaSuccess;
    REFUSE_IF(!place(p, bytes, &a) || !a.known, cudaErrorInvalidValue);
    struct fill f = {p, value, bytes};
    return stream_submit(s, run_fill, &f, sizeof f);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    ENTER_OUTSIDE_CAPTURE(cudaMemset);
    return cudaMemsetAsync(p, value, bytes, NULL);
}
