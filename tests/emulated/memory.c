/* Memory of GPUs and pinned memory. Device memory begins full of 0xFF (NaN, as a float), ends before a page that
 * nobody may touch, and is unmapped when it is freed. */
#include "tests/emulated/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef EMULATED_ADDRESS_SANITIZER
void __asan_poison_memory_region(const volatile void *p, size_t bytes);
void __asan_unpoison_memory_region(const volatile void *p, size_t bytes);
#else
static void __asan_poison_memory_region(const volatile void *p, size_t bytes) {
    (void)p, (void)bytes;
}
static void __asan_unpoison_memory_region(const volatile void *p, size_t bytes) {
    (void)p, (void)bytes;
}
#endif

enum { ALIGNMENT = 256, POISON = 0xff };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region *regions; /* in the order of their addresses */
static size_t count, room, used[GPUS_MOST];

static size_t round_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* The first that begins after p. */
static size_t after(const void *p) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (regions[middle].begin > (const char *)p)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void region_add(const struct region *r) {
    pthread_mutex_lock(&lock);
    if (count == room) {
        room = room ? 2 * room : 64;
        regions = realloc(regions, room * sizeof *regions);
        if (!regions) abort();
    }
    size_t at = after(r->begin);
    memmove(regions + at + 1, regions + at, (count - at) * sizeof *regions);
    regions[at] = *r;
    count++;
    pthread_mutex_unlock(&lock);
}

bool region_find(const void *p, struct region *out) {
    pthread_mutex_lock(&lock);
    size_t at = after(p);
    bool found = at > 0 && (const char *)p <= regions[at - 1].begin + regions[at - 1].bytes;
    if (found) *out = regions[at - 1];
    pthread_mutex_unlock(&lock);
    return found;
}

static bool region_remove(const void *p, bool device, struct region *out) {
    pthread_mutex_lock(&lock);
    size_t at = after(p);
    bool found = at > 0 && regions[at - 1].begin == p && (regions[at - 1].kind == REGION_DEVICE) == device;
    if (found) {
        *out = regions[at - 1];
        memmove(regions + at - 1, regions + at, (count - at) * sizeof *regions);
        count--;
        if (device) used[out->gpu] -= out->mapped;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int emulated_gpu(const void *p) {
    struct region r;
    return region_find(p, &r) && r.kind == REGION_DEVICE ? r.gpu : -1;
}

/* ---- allocation ---- */
static bool map(struct region *r, size_t bytes, int fill) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room_for = round_up(bytes ? bytes : 1, ALIGNMENT);
    r->mapped = round_up(room_for, page) + page;
    copy_allocated();
    r->map = race_map(r->mapped);
    if (!r->map) return false;
    char *end = r->map + r->mapped - page;
    mprotect(end, page, PROT_NONE);
    r->begin = end - room_for;
    r->bytes = bytes;
    if (fill) {
        memset(r->map, fill, r->mapped - page);
        __asan_poison_memory_region(r->map, r->mapped - page);
    }
    return true;
}

/* What lies around it must be as it was made. */
static void unmap(const struct region *r) {
    const unsigned char *p = (const unsigned char *)r->map, *end = p + r->mapped;
    end -= sysconf(_SC_PAGESIZE);
    for (; r->kind == REGION_DEVICE && p < end; p++) {
        if (p == (const unsigned char *)r->begin) p += r->bytes;
        if (p == end || *p == POISON) continue;
        fprintf(stderr, "emulated GPU: something wrote %td bytes from the begin of memory of %zu bytes\n",
                (const char *)p - r->begin, r->bytes);
        abort();
    }
    __asan_unpoison_memory_region(r->map, r->mapped);
    race_unmap(r->map, r->mapped);
}

static size_t total(int gpu) {
    struct cudaDeviceProp p;
    return cudaGetDeviceProperties(&p, gpu) == cudaSuccess ? p.totalGlobalMem : 0;
}

cudaError_t cudaMalloc(void **out, size_t bytes) {
    ENTER_OUTSIDE_CAPTURE(cudaMalloc);
    struct region r = {.kind = REGION_DEVICE, .gpu = gpu_current()};
    *out = NULL;
    if (!bytes) return cudaSuccess;
    pthread_mutex_lock(&lock);
    bool fits = bytes <= total(r.gpu) && used[r.gpu] <= total(r.gpu) - bytes;
    pthread_mutex_unlock(&lock);
    REFUSE_IF(!fits || !map(&r, bytes, POISON), cudaErrorMemoryAllocation);
    pthread_mutex_lock(&lock);
    used[r.gpu] += r.mapped;
    pthread_mutex_unlock(&lock);
    region_add(&r);
    *out = r.begin;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p) {
    ENTER_OUTSIDE_CAPTURE(cudaFree);
    struct region r;
    if (!p) return cudaSuccess;
    REFUSE_IF(!region_find(p, &r) || r.kind != REGION_DEVICE, cudaErrorInvalidValue);
    const struct clock waited = race_host_clock();
    streams_wait_gpu(r.gpu);
    race_free(&r, &waited);
    REFUSE_IF(!region_remove(p, true, &r), cudaErrorInvalidValue);
    unmap(&r);
    return runtime_state();
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    ENTER_OUTSIDE_CAPTURE(cudaHostAlloc);
    struct region r = {.kind = REGION_PINNED, .gpu = gpu_current()};
    *out = NULL;
    REFUSE_IF(flags & ~7u, cudaErrorInvalidValue);
    if (!bytes) return cudaSuccess;
    REFUSE_IF(!map(&r, bytes, 0), cudaErrorMemoryAllocation);
    region_add(&r);
    *out = r.begin;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    ENTER(cudaMallocHost);
    return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *p) {
    ENTER_OUTSIDE_CAPTURE(cudaFreeHost);
    struct region r;
    if (!p) return cudaSuccess;
    REFUSE_IF(!region_find(p, &r) || r.kind != REGION_PINNED, cudaErrorInvalidValue);
    const struct clock waited = race_host_clock();
    for (int i = 0; i < gpu_count(); i++) streams_wait_gpu(i);
    race_free(&r, &waited);
    REFUSE_IF(!region_remove(p, false, &r), cudaErrorInvalidValue);
    unmap(&r);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
    ENTER_OUTSIDE_CAPTURE(cudaHostRegister);
    struct region r;
    REFUSE_IF(!p || !bytes || flags & ~15u, cudaErrorInvalidValue);
    REFUSE_IF(region_find(p, &r) && p != r.begin + r.bytes, cudaErrorHostMemoryAlreadyRegistered);
    r = (struct region){.begin = p, .bytes = bytes, .kind = REGION_REGISTERED, .gpu = gpu_current()};
    region_add(&r);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p) {
    ENTER_OUTSIDE_CAPTURE(cudaHostUnregister);
    struct region r;
    REFUSE_IF(!region_find(p, &r) || r.kind != REGION_REGISTERED || !region_remove(p, false, &r),
              cudaErrorHostMemoryNotRegistered);
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned flags) {
    ENTER(cudaHostGetDevicePointer);
    struct region r;
    REFUSE_IF(flags || !region_find(p, &r) || r.kind == REGION_DEVICE, cudaErrorInvalidValue);
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all) {
    ENTER(cudaMemGetInfo);
    *all = total(gpu_current());
    pthread_mutex_lock(&lock);
    *free_bytes = *all > used[gpu_current()] ? *all - used[gpu_current()] : 0;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    ENTER(cudaPointerGetAttributes);
    struct region r;
    memset(a, 0, sizeof *a);
    a->type = cudaMemoryTypeUnregistered;
    a->device = cudaInvalidDeviceId;
    if (!region_find(p, &r) || (const char *)p == r.begin + r.bytes) {
        union {
            const void *c;
            void *p;
        } plain = {p};
        a->hostPointer = plain.p;
        return cudaSuccess;
    }
    char *same = r.begin + ((const char *)p - r.begin);
    a->type = r.kind == REGION_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    a->device = r.gpu;
    a->devicePointer = same;
    a->hostPointer = r.kind == REGION_DEVICE ? NULL : same;
    return cudaSuccess;
}
