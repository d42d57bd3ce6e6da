/* The device "cuda": NVIDIA GPUs. What it holds, how it opens, and the words of its errors. */
#include "engine/device/cuda/parts.h"

#include <stdlib.h>
#include <string.h>

extern const struct device_ops device_cuda;

_Thread_local int cuda_current = -1;

enum error cuda_switch(const struct cuda *c) {
    CU(cudaSetDevice(c->base.params.unit), "cannot use this GPU from another thread");
    cuda_current = c->base.params.unit;
    return ERR_NONE;
}

/* ---- errors --------------------------------------------------------------------------------- */
static const char *hint_of(cudaError_t e) {
    switch (e) {
    case cudaErrorMemoryAllocation:
        return "\na smaller batch, or batch.accumulate, needs less memory";
    case cudaErrorInsufficientDriver:
        return "\ninstall NVIDIA's driver, version 580 or later, and see that nvidia-smi lists the "
               "GPU";
    case cudaErrorNoDevice:
        return "\ncheck that nvidia-smi lists a GPU, and the value of CUDA_VISIBLE_DEVICES";
    case cudaErrorNoKernelImageForDevice:
        return "\nthis engine was built for other GPUs: configure with "
               "-DCMAKE_CUDA_ARCHITECTURES=native";
    case cudaErrorUnsupportedPtxVersion:
        return "\nthis engine's kernels are newer than the driver: install NVIDIA's driver, version 580 or later, or "
               "configure with -DCMAKE_CUDA_ARCHITECTURES=native";
    case cudaErrorDevicesUnavailable:
        return "\nanother process has the GPU for itself: nvidia-smi shows its compute mode";
    case cudaErrorSystemNotReady:
        return "\nNVLink is not up yet: the service nvidia-fabricmanager must run";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
        return "\nthe GPU has stopped; compute-sanitizer finds the kernel";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
        return "\nthe GPU itself is faulty: nvidia-smi -q shows its errors";
    default:
        return "";
    }
}

enum error cuda_failed(cudaError_t e, const char *what) {
    (void)cudaGetLastError(); /* else the next launch would be blamed for it */
    enum error kind = e == cudaErrorMemoryAllocation ? ERR_MEMORY : ERR_DEVICE;
    return FAIL(kind, "%s: %s (CUDA error %d)%s", what, cudaGetErrorString(e), (int)e, hint_of(e));
}

enum error cublas_failed(cublasStatus_t e, const char *what) {
    (void)cudaGetLastError();
    const char *text = blaslt.GetStatusString ? blaslt.GetStatusString(e) : "not loaded";
    if (e == CUBLAS_STATUS_ALLOC_FAILED)
        return FAIL(ERR_MEMORY, "%s: cuBLASLt: %s%s", what, text, hint_of(cudaErrorMemoryAllocation));
    return FAIL(ERR_DEVICE, "%s: cuBLASLt: %s (%d)", what, text, (int)e);
}

enum error cudnn_failed(cudnnStatus_t e, const char *what) {
    (void)cudaGetLastError();
    const char *text = dnn.GetErrorString ? dnn.GetErrorString(e) : "not loaded";
    if (e == CUDNN_STATUS_ALLOC_FAILED)
        return FAIL(ERR_MEMORY, "%s: cuDNN: %s%s", what, text, hint_of(cudaErrorMemoryAllocation));
    return FAIL(ERR_DEVICE, "%s: cuDNN: %s (%d)", what, text, (int)e);
}

/* ---- the process's devices ------------------------------------------------------------------ */
pthread_mutex_t cuda_devices_lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda *devices;

static void device_list(struct cuda *c) {
    pthread_mutex_lock(&cuda_devices_lock);
    c->next = devices;
    devices = c;
    pthread_mutex_unlock(&cuda_devices_lock);
}

static void device_unlist(struct cuda *c) {
    pthread_mutex_lock(&cuda_devices_lock);
    for (struct cuda **at = &devices; *at; at = &(*at)->next)
        if (*at == c) {
            *at = c->next;
            break;
        }
    pthread_mutex_unlock(&cuda_devices_lock);
}

void cuda_forget_mark(const struct device_mark *m) {
    pthread_mutex_lock(&cuda_devices_lock);
    for (struct cuda *c = devices; c; c = c->next)
        for (int i = 0; i < DEVICE_LANES; i++) {
            const struct device_mark *its = m;
            atomic_compare_exchange_strong(&c->followed[i], &its, NULL);
        }
    pthread_mutex_unlock(&cuda_devices_lock);
}

struct cuda *cuda_with(cudaStream_t lane, enum device_lane *l) {
    for (struct cuda *c = devices; c; c = c->next)
        for (int i = 0; i < DEVICE_LANES; i++)
            if (c->stream[i] == lane) {
                *l = (enum device_lane)i;
                return c;
            }
    return NULL;
}

/* ---- opening -------------------------------------------------------------------------------- */
static void device_release(struct cuda *c) {
    device_unlist(c);
    if (!cuda_may_free(c)) return;
    if (c->dnn) (void)dnn.Destroy(c->dnn);
    if (c->blas) (void)blaslt.Destroy(c->blas);
    if (c->blas_space) (void)cudaFree(c->blas_space);
    if (c->fault) (void)cudaFreeHost(c->fault);
    cuda_tables_close(c);
    for (int l = 0; l < DEVICE_LANES; l++) {
        cuda_sent_close(&c->terms[l]);
        cuda_sent_close(&c->bounce[l]);
    }
    cuda_memory_close(c);
    cuda_lanes_close(c);
    (void)cudaGetLastError();
    free(c);
}

static void cuda_close(struct device *d) {
    device_release(cuda_device(d));
}

/* Kernels of the engine and NVIDIA's libraries need what GPUs have since 2020. */
enum { CAPABILITY_LEAST = 80 };

static enum error check_unit(struct cuda *c, int unit) {
    struct device_unit u;
    int count;
    TRY(cuda_units(&count));
    if (unit < 0 || unit >= count)
        return FAIL(
            ERR_DEVICE,
            "there is no GPU %d: this machine has %d\nthey are counted from 0 and listed one by one: cuda:0,1 are "
            "two GPUs, cuda:2 is the third",
            unit, count);
    if (!cuda_unit_about(unit, &u))
        return FAIL(ERR_DEVICE, "GPU %d does not answer\nsee the output of nvidia-smi", unit);
    memcpy(c->name, u.name, sizeof c->name);
    c->processors = u.processors;
    c->capability = 10 * u.major + u.minor;
    CU(cudaDeviceGetAttribute(&c->shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, unit), "what this GPU is");
    if (c->capability < CAPABILITY_LEAST)
        return FAIL(ERR_DEVICE,
                    "GPU %d (%s) has compute capability %d.%d: the engine needs 8.0 or later\n"
                    "use a GPU of the generation Ampere or later, or device: cpu",
                    unit, u.name, u.major, u.minor);
    return ERR_NONE;
}

static enum error open_libraries(struct cuda *c) {
    TRY(library_load());
    cublasStatus_t blas = blaslt.Create(&c->blas);
    if (blas != CUBLAS_STATUS_SUCCESS) return cublas_failed(blas, "cannot start it");
    CU(cudaMalloc(&c->blas_space, BLAS_SPACE), "room for products of matrices");
    cudnnStatus_t e = dnn.Create(&c->dnn);
    if (e != CUDNN_STATUS_SUCCESS) return cudnn_failed(e, "cannot start it");
    e = dnn.SetStream(c->dnn, c->stream[LANE_COMPUTE]);
    return e == CUDNN_STATUS_SUCCESS ? ERR_NONE : cudnn_failed(e, "cannot give it a lane");
}

static enum error open_fault(struct cuda *c) {
    void *p;
    CU(cudaHostAlloc(&p, sizeof *c->fault, cudaHostAllocMapped | cudaHostAllocPortable),
       "memory that host and GPU share");
    c->fault = p;
    *c->fault = FAULT_NONE;
    CU(cudaHostGetDevicePointer(&p, c->fault, 0), "memory that host and GPU share");
    c->fault_there = p;
    return ERR_NONE;
}

static enum error open_parts(struct cuda *c, int unit) {
    TRY(check_unit(c, unit));
    TRY(cuda_switch(c));
    /* A waiting host sleeps; without it the GPU waits all the same, only warmer. */
    (void)cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
    (void)cudaGetLastError();
    TRY(cuda_lanes_open(c));
    TRY(cuda_memory_open(c));
    TRY(open_fault(c));
    return open_libraries(c);
}

static enum error cuda_open(const struct device_params *p, struct device **out) {
    struct cuda *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "no memory for a device");
    c->base.ops = &device_cuda;
    c->base.params = *p;
    enum error err = open_parts(c, p->unit);
    if (err) {
        device_release(c);
        return err;
    }
    device_list(c);
    *out = &c->base;
    return ERR_NONE;
}

/* ---- the table ------------------------------------------------------------------------------ */
static const struct op_impl *const lists[OP_KINDS][2] = {
#define ON_CUDA(name) &cuda_##name,
#define OP(KIND, name, cpu, cuda) {cuda NULL},
#include "engine/device/ops.def"
};

static const struct op_impl *const *cuda_impls(struct device *d, enum op_kind kind) {
    (void)d;
    return lists[kind];
}

static bool cuda_has_bf16(void) {
    return true;
}

static size_t cuda_unit(enum precision p) {
    return p == PRECISION_BF16 || p == PRECISION_FP16 ? 2 : sizeof(float);
}

static const struct device_runtime cuda_runtime = {
    .asynchronous = true,
    .apart = true,
    .records = true,
    .alignment = DEVICE_ALIGNMENT,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .holds = cuda_holds,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .write = cuda_write,
    .read = cuda_read,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .mark_create = cuda_mark_create,
    .timer_create = cuda_timer_create,
    .between = cuda_between,
    .mark_free = cuda_mark_free,
    .mark = cuda_mark,
    .follow = cuda_follow,
    .passed = cuda_passed,
    .wait = cuda_wait,
    .give_up = cuda_give_up,
    .stream = cuda_lane,
    .sum = cuda_sum,
    .lower = cuda_lower,
    .raise = cuda_raise,
    .add = cuda_accumulate,
    .partials = cuda_partials,
    .head = cuda_head,
    .measure = cuda_measure,
    .update = cuda_update,
    .record = cuda_record,
    .recorded = cuda_recorded,
    .replay = cuda_replay,
    .recording_free = cuda_recording_free,
    .unit = cuda_unit,
};

const struct device_ops device_cuda = {
    .name = "cuda",
    .summary = "NVIDIA GPUs",
    .open = cuda_open,
    .close = cuda_close,
    .impls = cuda_impls,
    .has_bf16 = cuda_has_bf16,
    .image_layout = LAYOUT_LAST,
    .images_turned = true,
    .runtime = &cuda_runtime,
    .precisions = 1u << PRECISION_F32 | 1u << PRECISION_BF16 | 1u << PRECISION_FP16 | 1u << PRECISION_TF32,
    .units = cuda_units,
    .unit_about = cuda_unit_about,
    .unit_reaches = cuda_unit_reaches,
    .software = cuda_software,
};
