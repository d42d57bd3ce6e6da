/* Launches: the limits that a GPU sets, and what a kernel's pointers point to. */
#include "tests/emulated/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 1024, SHARED_DEFAULT = 48 << 10 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *entry;
    size_t shared;
} raised[KERNELS];
static int raised_count;

size_t kernel_shared_limit(const void *entry) {
    size_t limit = SHARED_DEFAULT;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < raised_count; i++)
        if (raised[i].entry == entry) limit = raised[i].shared;
    pthread_mutex_unlock(&lock);
    return limit;
}

cudaError_t cudaFuncSetAttribute(const void *entry, enum cudaFuncAttribute a, int value) {
    ENTER(cudaFuncSetAttribute);
    if (a == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    REFUSE_IF(a != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > gpu_shared_most(),
              cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < raised_count && raised[i].entry != entry) i++;
    if (i == KERNELS) abort();
    if (i == raised_count) raised_count++;
    raised[i].entry = entry;
    raised[i].shared = (size_t)value;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *to, const void *entry) {
    ENTER(cudaFuncGetAttributes);
    memset(to, 0, sizeof *to);
    to->maxThreadsPerBlock = 1024;
    to->maxDynamicSharedSizeBytes = (int)kernel_shared_limit(entry);
    to->binaryVersion = to->ptxVersion = 90;
    return cudaSuccess;
}

static cudaError_t check_shape(const struct emulated_kernel *k) {
    const struct uint3 *b = &k->blocks, *t = &k->threads;
    if (k->too_large || !b->x || !b->y || !b->z || !t->x || !t->y || !t->z) return cudaErrorInvalidConfiguration;
    if (b->x > 0x7fffffff || b->y > 65535 || b->z > 65535) return cudaErrorInvalidConfiguration;
    if (t->x > 1024 || t->y > 1024 || t->z > 64 || (uint64_t)t->x * t->y * t->z > 1024)
        return cudaErrorInvalidConfiguration;
    return k->shared > kernel_shared_limit(k->entry) ? cudaErrorInvalidValue : cudaSuccess;
}

/* A kernel on a GPU sees its memory, that of peers, and pinned host memory. */
static cudaError_t check_pointers(const struct emulated_kernel *k, int gpu) {
    for (int i = 0; i < k->pointers; i++) {
        struct region r;
        const void *p = k->pointer[i];
        if (!p) continue;
        bool known = region_find(p, &r);
        if (known && (r.kind != REGION_DEVICE || gpu_reaches(gpu, r.gpu))) continue;
        fprintf(stderr, "emulated GPU: kernel %s on GPU %d: its pointer argument %d (%p) is %s\n", k->name, gpu, i, p,
                known ? "another GPU's memory, and peer access is not enabled"
                      : "neither device memory nor pinned memory");
        return cudaErrorIllegalAddress;
    }
    return cudaSuccess;
}

struct call {
    struct emulated_kernel kernel;
    cudaError_t fault;
    uint64_t random;
    _Alignas(16) unsigned char args[];
};

static void run_kernel(void *arg) {
    struct call *c = arg;
    race_name(c->kernel.name);
    emulated_hang(c->kernel.name);
    if (c->fault != cudaSuccess)
        runtime_broken(c->fault);
    else
        kernel_run(&c->kernel, c->args, &c->random);
}

static cudaError_t launch(const struct emulated_kernel *k, cudaStream_t stream, const void *args, size_t bytes) {
    ENTER(cudaLaunchKernel);
    struct CUstream_st *s = stream_of(stream);
    REFUSE_IF(!s || s->gpu != gpu_current(), cudaErrorInvalidResourceHandle);
    cudaError_t e = check_shape(k);
    REFUSE_IF(e != cudaSuccess, e);
    struct call *c = calloc(1, sizeof *c + bytes);
    if (!c) abort();
    c->kernel = *k;
    c->fault = check_pointers(k, s->gpu);
    c->random = s->random;
    memcpy(c->args, args, bytes);
    e = stream_submit(s, run_kernel, c, sizeof *c + bytes);
    free(c);
    return runtime_failed(e);
}

void emulated_launch_kernel(const struct emulated_kernel *k, cudaStream_t stream, const void *args, size_t bytes) {
    launch(k, stream, args, bytes); /* the error waits for cudaGetLastError */
}
