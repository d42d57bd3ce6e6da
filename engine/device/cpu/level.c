/* What is compiled here, as others reach it. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/lanes.h"

static const struct op_impl *const impls[OP_KINDS][CPU_IMPLS] = {
#define ON_CPU(name) &CPU_NAME(cpu_##name),
#define OP(KIND, name, cpu, cuda) {cpu NULL},
#include "engine/device/ops.def"
};

const struct cpu_level cpu_table = {
#if HAS_TILES
    .instructions = "AVX-512 and AMX with bf16",
#elif defined(__AVX512BF16__)
    .instructions = "AVX-512 with bf16",
#elif defined(__AVX512F__)
    .instructions = "AVX-512",
#elif defined(__AVX2__)
    .instructions = "AVX2",
#elif defined(__SSE2__)
    .instructions = "SSE2",
#elif defined(__aarch64__)
    .instructions = "NEON",
#else
    .instructions = "plain C",
#endif
#if defined(__FMA__) || defined(__aarch64__)
    .fused = true,
#endif
    .name = CPU_TEXT(CPU_LEVEL),
    .bf16 = HAS_PAIRS,
    .impls = impls,
    .activations = act_kernels,
    .softmax = kernel_softmax,
    .dropout_mask = kernel_dropout_mask,
    .gemm = gemm_run,
    .gemm_pack_bytes = gemm_pack_bytes,
};
