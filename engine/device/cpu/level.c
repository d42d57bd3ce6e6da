/* What is compiled here, as others reach it. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"
#include "engine/device/cpu/kernels.h"
#include "engine/device/cpu/lanes.h"
#include "engine/device/ref/ref.h"

static const struct op_impl *const impls[OP_KINDS][CPU_IMPLS] = {
    [OP_LINEAR] = {&cpu_linear, &ref_linear},
    [OP_CONV2D] = {&cpu_conv_wino, &cpu_conv_small, &cpu_conv_direct, &ref_conv2d},
    [OP_POOL2D] = {&cpu_pool, &cpu_pool_blocked, &ref_pool2d},
    [OP_REORDER] = {&cpu_reorder, &ref_reorder},
    [OP_ACTIVATION] = {&cpu_activation, &ref_activation},
    [OP_DROPOUT] = {&cpu_dropout, &ref_dropout},
    [OP_BATCHNORM] = {&cpu_batchnorm, &cpu_batchnorm_blocked, &ref_batchnorm},
    [OP_ADD] = {&cpu_add, &ref_add},
    [OP_CROSS_ENTROPY] = {&cpu_cross_entropy, &ref_cross_entropy},
    [OP_MSE] = {&ref_mse},
    [OP_BCE] = {&cpu_bce, &ref_bce},
    [OP_LAYERNORM] = {&cpu_layernorm, &ref_layernorm},
    [OP_RMSNORM] = {&cpu_rmsnorm, &ref_rmsnorm},
    [OP_EMBEDDING] = {&cpu_embedding, &ref_embedding},
    [OP_POSITION] = {&cpu_position, &ref_position},
    [OP_PREPEND] = {&cpu_prepend, &ref_prepend},
    [OP_SELECT] = {&cpu_select, &ref_select},
    [OP_TOKENS] = {&cpu_tokens, &ref_tokens},
    [OP_MEAN] = {&cpu_mean, &cpu_mean_blocked, &ref_mean},
    [OP_ATTENTION] = {&cpu_attention, &ref_attention},
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
