/* GPUs, their properties, and errors. */
#include "tests/emulated/inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local cudaError_t last_error;
static _Thread_local int current;
static atomic_int broken; /* a sticky error */
static atomic_bool peers[GPUS_MOST][GPUS_MOST];

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static int gpus_there(void) {
    long n = setting("ENGINE_EMULATED_GPUS", 2);
    return n < 0 ? 0 : n > GPUS_MOST ? GPUS_MOST : (int)n;
}

/* The machine's number of the i-th GPU that CUDA_VISIBLE_DEVICES leaves, up to the first that is none; -1: none. */
static int gpu_there(int i) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (!list) return i < gpus_there() ? i : -1;
    for (char *end;; list = end + 1) {
        long gpu = strtol(list, &end, 10);
        if (end == list || gpu < 0 || gpu >= gpus_there()) return -1;
        if (i-- == 0) return (int)gpu;
        if (*end != ',') return -1;
    }
}

bool emulated_fail(const char *function) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char armed[128];
    static long calls;
    const char *spec = getenv("ENGINE_EMULATED_FAIL"), *colon = spec ? strrchr(spec, ':') : NULL;
    if (!colon) return false;
    pthread_mutex_lock(&lock);
    if (strcmp(armed, spec) != 0) {
        snprintf(armed, sizeof armed, "%s", spec);
        calls = 0;
    }
    size_t length = (size_t)(colon - spec);
    bool same = (length == 1 && *spec == '*') || (strlen(function) == length && !strncmp(function, spec, length));
    long nth = strtol(colon + 1, NULL, 10);
    bool fails = same && (++calls == nth || nth == 0);
    pthread_mutex_unlock(&lock);
    return fails;
}

cudaError_t runtime_failed(cudaError_t e) {
    if (e != cudaSuccess) last_error = e;
    return e;
}

void runtime_broken(cudaError_t e) {
    int none = 0;
    atomic_compare_exchange_strong(&broken, &none, (int)e);
}

cudaError_t runtime_state(void) {
    return runtime_failed((cudaError_t)atomic_load(&broken));
}

cudaError_t runtime_enter(const char *function, bool forbidden_in_capture) {
    if (gpus_there() == 0) return runtime_failed(cudaErrorInsufficientDriver);
    if (gpu_count() == 0) return runtime_failed(cudaErrorNoDevice);
    cudaError_t e = runtime_state();
    if (e != cudaSuccess) return e;
    if (emulated_fail(function))
        return runtime_failed(strcasestr(function, "alloc") ? cudaErrorMemoryAllocation : cudaErrorUnknown);
    if (forbidden_in_capture && streams_spoil_capture()) return runtime_failed(cudaErrorStreamCaptureUnsupported);
    return cudaSuccess;
}

int gpu_count(void) {
    int n = 0;
    while (gpu_there(n) >= 0) n++;
    return n;
}

int gpu_capability(void) {
    return (int)setting("ENGINE_EMULATED_CAPABILITY", 90);
}

int gpu_shared_most(void) {
    switch (gpu_capability()) {
    case 80:
    case 87:
        return 163 << 10;
    case 86:
    case 89:
    case 120:
        return 99 << 10;
    default:
        return 227 << 10;
    }
}

int gpu_current(void) {
    return current;
}

bool gpu_reaches(int i, int j) {
    return i == j || (i >= 0 && j >= 0 && atomic_load(&peers[i][j]));
}

cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    last_error = (cudaError_t)atomic_load(&broken);
    return e;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

#define ERRORS(X)                                                                                                      \
    X(cudaSuccess, "no error")                                                                                         \
    X(cudaErrorInvalidValue, "invalid argument")                                                                       \
    X(cudaErrorMemoryAllocation, "out of memory")                                                                      \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")                     \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                                         \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                                                \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                                                 \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")                                                       \
    X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                                            \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                                       \
    X(cudaErrorNotReady, "device not ready")                                                                           \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                                             \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                                            \
    X(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled")                                             \
    X(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled")                                               \
    X(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices")                        \
    X(cudaErrorHostMemoryAlreadyRegistered, "part or all of the memory is already registered")                         \
    X(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered region")                          \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")                           \
    X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture")                    \
    X(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream")                                     \
    X(cudaErrorStreamCaptureWrongThread, "the capture was begun by another thread")                                    \
    X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")                      \
    X(cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capture")                    \
    X(cudaErrorNotSupported, "operation not supported")                                                                \
    X(cudaErrorUnknown, "unknown error")

const char *cudaGetErrorString(cudaError_t e) {
#define X(code, text)                                                                                                  \
    if (e == code) return text;
    ERRORS(X)
#undef X
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e) {
#define X(code, text)                                                                                                  \
    if (e == code) return #code;
    ERRORS(X)
#undef X
    return "unrecognized error code";
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = gpus_there() ? CUDART_VERSION : 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    ENTER(cudaGetDeviceCount);
    *count = gpu_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    ENTER(cudaSetDevice);
    REFUSE_IF(device < 0 || device >= gpu_count(), cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned flags, unsigned more) {
    (void)flags, (void)more;
    ENTER(cudaInitDevice);
    REFUSE_IF(device < 0 || device >= gpu_count(), cudaErrorInvalidDevice);
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    ENTER(cudaGetDevice);
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned flags) {
    (void)flags;
    ENTER(cudaSetDeviceFlags);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *to, int bytes, int device) {
    ENTER(cudaDeviceGetPCIBusId);
    REFUSE_IF(device < 0 || device >= gpu_count(), cudaErrorInvalidDevice);
    snprintf(to, (size_t)bytes, "0000:%02X:00.0", 0x10 + gpu_there(device));
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    ENTER(cudaGetDeviceProperties);
    REFUSE_IF(device < 0 || device >= gpu_count(), cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "Emulated GPU");
    memcpy(p->uuid.bytes, "emulated GPU  0", 16);
    p->uuid.bytes[14] = (char)('0' + gpu_there(device));
    p->totalGlobalMem = (size_t)setting("ENGINE_EMULATED_MEMORY", 8192) << 20;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = (size_t)gpu_shared_most();
    p->sharedMemPerMultiprocessor = p->sharedMemPerBlockOptin + (1 << 10);
    p->reservedSharedMemPerBlock = 1 << 10;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 64 << 10;
    p->major = gpu_capability() / 10;
    p->minor = gpu_capability() % 10;
    p->multiProcessorCount = 132;
    p->l2CacheSize = 50 << 20;
    p->pciBusID = 0x10 + gpu_there(device);
    p->unifiedAddressing = p->concurrentKernels = p->canMapHostMemory = 1;
    p->asyncEngineCount = 3;
    p->streamPrioritiesSupported = 1;
    p->memoryBusWidth = 6144;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int device) {
    struct cudaDeviceProp p;
    ENTER(cudaDeviceGetAttribute);
    cudaError_t e = cudaGetDeviceProperties(&p, device);
    if (e != cudaSuccess) return e;
    const struct {
        enum cudaDeviceAttr a;
        int value;
    } known[] = {
        {cudaDevAttrMultiProcessorCount, p.multiProcessorCount},
        {cudaDevAttrComputeCapabilityMajor, p.major},
        {cudaDevAttrComputeCapabilityMinor, p.minor},
        {cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock},
        {cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor},
        {cudaDevAttrMaxSharedMemoryPerBlock, (int)p.sharedMemPerBlock},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, (int)p.sharedMemPerBlockOptin},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, (int)p.sharedMemPerMultiprocessor},
        {cudaDevAttrMaxGridDimX, p.maxGridSize[0]},
        {cudaDevAttrMaxGridDimY, p.maxGridSize[1]},
        {cudaDevAttrMaxGridDimZ, p.maxGridSize[2]},
        {cudaDevAttrWarpSize, p.warpSize},
        {cudaDevAttrPciBusId, p.pciBusID},
        {cudaDevAttrPciDeviceId, p.pciDeviceID},
        {cudaDevAttrPciDomainId, p.pciDomainID},
        {cudaDevAttrL2CacheSize, p.l2CacheSize},
        {cudaDevAttrMemoryPoolsSupported, 0},
        {cudaDevAttrClockRate, 1980000},
        {cudaDevAttrMemoryClockRate, 3201000},
        {cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth},
        {cudaDevAttrPageableMemoryAccess, 0},
        {cudaDevAttrComputeMode, cudaComputeModeDefault},
        {cudaDevAttrUnifiedAddressing, 1},
        {cudaDevAttrCanMapHostMemory, 1},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].a == a) {
            *value = known[i].value;
            return cudaSuccess;
        }
    fprintf(stderr, "emulated GPU: attribute %d is not known here\n", (int)a);
    return runtime_failed(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(cudaDeviceCanAccessPeer);
    int n = gpu_count();
    REFUSE_IF(device < 0 || device >= n || peer < 0 || peer >= n, cudaErrorInvalidDevice);
    *can = device != peer && setting("ENGINE_EMULATED_PEERS", 1) != 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr a, int device, int peer) {
    ENTER(cudaDeviceGetP2PAttribute);
    REFUSE_IF(device == peer, cudaErrorInvalidDevice);
    int can = 0;
    cudaError_t e = cudaDeviceCanAccessPeer(&can, device, peer);
    *value = a == cudaDevP2PAttrPerformanceRank ? 0 : can;
    return e;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    ENTER_OUTSIDE_CAPTURE(cudaDeviceEnablePeerAccess);
    int can = 0;
    REFUSE_IF(flags, cudaErrorInvalidValue);
    cudaError_t e = cudaDeviceCanAccessPeer(&can, current, peer);
    if (e != cudaSuccess) return e;
    REFUSE_IF(!can, peer == current ? cudaErrorInvalidDevice : cudaErrorPeerAccessUnsupported);
    REFUSE_IF(atomic_exchange(&peers[current][peer], true), cudaErrorPeerAccessAlreadyEnabled);
    return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    ENTER_OUTSIDE_CAPTURE(cudaDeviceDisablePeerAccess);
    REFUSE_IF(peer < 0 || peer >= gpu_count(), cudaErrorInvalidDevice);
    REFUSE_IF(!atomic_exchange(&peers[current][peer], false), cudaErrorPeerAccessNotEnabled);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    ENTER_OUTSIDE_CAPTURE(cudaDeviceSynchronize);
    streams_wait_gpu(current);
    return runtime_state();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(cudaDeviceGetStreamPriorityRange);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
