/* A GPU made of threads: what the fake libraries and the kernels of an emulated build call beside the CUDA runtime.
 * Environment, read when used: ENGINE_EMULATED_GPUS=n (2; 0: no driver), CUDA_VISIBLE_DEVICES=i,j
 * (as CUDA reads it), ENGINE_EMULATED_MEMORY=MiB of one GPU (8192),
 * ENGINE_EMULATED_CAPABILITY=n (90 for 9.0: what it is, and the shared memory that it gives a block),
 * ENGINE_EMULATED_JITTER=seed (streams are delayed and threads of a block run in another order, by that seed),
 * ENGINE_EMULATED_FAIL=function:n (the n-th call of that function fails, 0: each, "*" is any),
 * ENGINE_EMULATED_HANG=words:n@gpu (on that GPU the n-th kernel whose name has the words never ends, nor do
 * later ones; also "copy to the host", "copy from the host", "copy between GPUs", "a fill", "a product",
 * "a convolution", "a collective"),
 * ENGINE_EMULATED_READ=file (gets the number of bytes that the process has copied to the host, and after it how often
 * it has allocated memory of a GPU or pinned memory),
 * ENGINE_EMULATED_RACES=0 (work of two streams may use the same memory with nothing between: race.c),
 * ENGINE_EMULATED_PAGEABLE=1 (copies from and to memory that is not pinned are allowed; else they end the process, since
 * the driver waits in them for a GPU that may hang). */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Runs fn with a copy of arg in the stream's order; in a capture it becomes part of the graph. */
void emulated_submit(cudaStream_t s, void (*fn)(void *arg), const void *arg, size_t bytes);
/* Device memory is touched by work of streams only, and there not by memcpy and the like but by these (and by plain
 * loops): where the build or the processor can forbid it, all else ends the program. */
void emulated_copy(void *to, const void *from, size_t bytes); /* may overlap */
void emulated_fill(void *p, int value, size_t bytes);
/* Work of a stream says what it reads or writes where neither of these nor a kernel does: for the race detector. */
void emulated_touch(const void *p, size_t bytes, bool writes);
/* Work of a stream begins. Never returns where ENGINE_EMULATED_HANG wants work of that name to hang on the GPU of this stream. */
void emulated_hang(const char *name);
/* Whether ENGINE_EMULATED_FAIL wants this call of a function to fail. */
bool emulated_fail(const char *function);
/* The GPU that memory lies in; -1: none. */
int emulated_gpu(const void *p);
/* The GPU of a stream; NULL is the current one's. */
int emulated_stream_gpu(cudaStream_t s);

/* ---- kernels: called by include/cuda_runtime.h ---- */
enum { EMULATED_POINTERS = 32 };
struct emulated_kernel {
    const char *name;
    const void *entry;             /* the function, as cudaFuncSetAttribute names it */
    void (*run)(const void *args); /* one thread of it */
    struct uint3 blocks, threads;
    size_t shared;
    bool too_large; /* a dimension that does not fit into 32 bits */
    int pointers;   /* of the arguments, to be checked */
    const void *pointer[EMULATED_POINTERS];
};
void emulated_launch_kernel(const struct emulated_kernel *k, cudaStream_t s, const void *args, size_t bytes);

#define EMULATED_TLS __thread __attribute__((tls_model("initial-exec")))
extern EMULATED_TLS struct uint3 threadIdx, blockIdx, blockDim, gridDim;

struct emulated_site { /* a declaration of shared memory */
    const char *name;
};
/* Memory of the block for that declaration, filled with 0xFF when the block began. site NULL: the dynamic one. */
void *emulated_shared(const struct emulated_site *site, size_t bytes);

enum emulated_meeting {
    MEET_BLOCK, /* __syncthreads and its kin */
    MEET_WARP,  /* __syncwarp */
    MEET_BALLOT,
    MEET_SHUFFLE
};
/* All threads of the block: how many came with 'yes'. */
int emulated_meet_block(int yes, const char *file, int line);
/* The lanes of the mask. A shuffle gives the value of lane 'source', others which lanes came with 'yes'. */
uint64_t emulated_meet_warp(enum emulated_meeting what, unsigned mask, int yes, uint64_t value, int source,
                            const char *file, int line);
/* Lanes of this warp that have not ended. */
unsigned emulated_active(void);
unsigned emulated_lane(void);
__attribute__((noreturn)) void emulated_trap(const char *why);
#ifdef __cplusplus
}
#endif
