/* The inside of the device "cuda": one GPU, or a share of one. Plain C includes this; .cu files include kernel.h
 * and declare what they give in launch.h. */
#pragma once
#include "engine/device/cuda/library.h"
#include "engine/device/impl.h"
#include "engine/device/runtime.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>

struct cuda_sent {      /* what the host lays down and copies take to the GPU: memory.c */
    void *host, *there; /* host: what the last copy read, pinned */
    cudaEvent_t copied;
};

struct cuda {
    struct device base; /* params.unit is the GPU's number */
    struct cuda *next;  /* of the process's: cuda.c */
    cudaStream_t stream[DEVICE_LANES];
    _Atomic int64_t waited;                                     /* by the host for a lane, the last long time */
    atomic_bool records;                                        /* LANE_COMPUTE is being recorded */
    _Atomic(const struct device_mark *) followed[DEVICE_LANES]; /* the mark that each lane followed last */
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;                    /* on LANE_COMPUTE */
    void *blas_space;                     /* of BLAS_SPACE bytes, for matmuls on LANE_COMPUTE */
    int *fault;                           /* host memory that kernels write: enum cuda_fault, first one wins; 0: none */
    int *fault_there;                     /* the same, as kernels address it */
    int processors, capability;           /* multiprocessors; 90 for 9.0 */
    int shared;                           /* bytes of shared memory that a block may ask for */
    cudaStream_t setup;                   /* beside the lanes: zeroing what has been allocated */
    struct cuda_memory *memory;           /* what has been allocated: memory.c */
    struct cuda_tables *tables;           /* spans that the GPU has: update.c */
    struct cuda_sent terms[DEVICE_LANES]; /* of a long sum: vector.c */
    struct cuda_sent bounce[DEVICE_LANES]; /* for copies of memory that is not pinned: memory.c; nowhere 'there' */
    char name[96];                         /* "NVIDIA H200", for messages */
};
enum { BLAS_SPACE = 32 << 20 };

/* What a kernel found wrong with data; the next wait reports it as ERR_DATA. */
enum cuda_fault { FAULT_NONE, FAULT_LABEL, FAULT_TOKEN };

/* The runtime's functions, and launches, are about the calling thread's current GPU. cuda_enter makes it this one;
 * free when it is already. The engine never changes it otherwise. */
extern _Thread_local int cuda_current;
MUST_CHECK enum error cuda_switch(const struct cuda *c);
MUST_CHECK static inline enum error cuda_enter(const struct cuda *c) {
    return cuda_current == c->base.params.unit ? ERR_NONE : cuda_switch(c);
}

static inline struct cuda *cuda_of(const struct op *op) {
    return (struct cuda *)op->dev;
}
/* The stream on which ops run. Enters the GPU: ask for it before anything is launched. Where that fails the launch fails as well,
 * since the lane is another GPU's then. */
static inline cudaStream_t cuda_stream(const struct op *op) {
    enum error err = cuda_enter(cuda_of(op));
    (void)err;
    return cuda_of(op)->stream[LANE_COMPUTE];
}

/* ERR_DEVICE (ERR_MEMORY when it is that) with the library's words and ours. */
MUST_CHECK enum error cuda_failed(cudaError_t e, const char *what);
MUST_CHECK enum error cublas_failed(cublasStatus_t e, const char *what);
MUST_CHECK enum error cudnn_failed(cudnnStatus_t e, const char *what);
#define CU(call, what)                                                                                                 \
    do {                                                                                                               \
        cudaError_t cu_ = (call);                                                                                      \
        if (cu_ != cudaSuccess) return cuda_failed(cu_, what);                                                         \
    } while (0)

/* Takes of the implementations here: the types that ops of a precision compute with. */
static inline bool cuda_is_half(const struct op_desc *d) {
    return d->precision == PRECISION_BF16 || d->precision == PRECISION_FP16;
}

#define ON_CUDA(name) extern const struct op_impl cuda_##name;
#define OP(KIND, name, cpu, cuda) cuda
#include "engine/device/ops.def"
