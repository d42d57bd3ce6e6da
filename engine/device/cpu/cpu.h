/* The cpu device's inside: its levels of instructions, its threads and its implementations. */
#pragma once
#include "engine/base/rng.h"
#include "engine/device/impl.h"

/* ---- levels --------------------------------------------------------------------------------- */
struct act_kernel;      /* kernels.h */
struct gemm;            /* gemm.h */
enum { CPU_IMPLS = 4 }; /* of one kind, and NULL */

/* Every file of this folder but cpu.c is compiled once for each level, and names.h gives what they share a name of that
 * level. This is one level, as level.c defines it. */
struct cpu_level {
    const char *name;         /* "v4": x86-64-v4, "neon": ARM64; "base": what a compiler takes for granted elsewhere */
    const char *instructions; /* "AVX-512" */
    bool fused;               /* has fused multiply-adds: the bits of all such levels are the same in f32 */
    bool bf16;                /* multiplies bf16 faster than f32: device_ops.has_bf16 */
    const struct op_impl *const (*impls)[CPU_IMPLS]; /* device_ops.impls, by enum op_kind */
    /* Kernels under the ops, for tests. */
    const struct act_kernel *activations;
    double (*softmax)(int64_t n, const float *x, float *y, float *tops, int64_t *best);
    void (*dropout_mask)(struct rng_key key, uint64_t id, uint64_t base, float p, int64_t n, uint8_t *mask);
    void (*gemm)(const struct device *dev, const struct gemm *g, void *pack);
    size_t (*gemm_pack_bytes)(const struct device *dev, int64_t rows);
};

/* The levels of this build that this machine can run, best first; there may be none. */
const struct cpu_level *const *cpu_levels(int *count);
/* The one that the device "cpu" runs: the best, or what the variable ENGINE_ISA names; ERR_CONFIG when there is no such
 * level, or it is more than the machine or the build has; ERR_DEVICE when the machine runs none of the build's. */
MUST_CHECK enum error cpu_level_choose(const struct cpu_level **out);
/* The device "cpu" at a level of cpu_levels: what its own open does with cpu_level_choose's. */
MUST_CHECK enum error cpu_open_at(const struct cpu_level *level, const struct device_params *p, struct device **out);

/* ---- threads -------------------------------------------------------------------------------- */
/* threads_share (threads.h) among the device's threads. */
void cpu_parallel(const struct device *dev, int64_t count, int64_t grain,
                  void (*work)(void *ctx, int64_t begin, int64_t end), void *ctx);

/* A call of an op, as the parts of its work get it. */
struct cpu_pass {
    const struct op *op;
    const struct op_desc *d;
    const struct op_args *a;
};
typedef void cpu_part_fn(const struct cpu_pass *p, int64_t begin, int64_t end);
/* cpu_parallel of a call's parts. Gives ERR_NONE, with which an op can end. */
enum error cpu_run(const struct op *op, const struct op_args *a, int64_t count, int64_t grain, cpu_part_fn *part);

/* Which of the team's threads runs the work that asks: 0 <= it < threads. */
int cpu_thread(void);

/* ---- implementations ------------------------------------------------------------------------- */
#ifdef CPU_LEVEL
#define ON_CPU(name) extern const struct op_impl CPU_NAME(cpu_##name);
#define OP(KIND, name, cpu, cuda) cpu
#include "engine/device/ops.def"
#endif
