/* The cpu device: own vector kernels (and oneDNN, in bf16) on the threads of a device. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/gemm.h"
#include "engine/device/ref/ref.h"
#include "engine/device/runtime.h"
#include "engine/device/threads.h"

#include <omp.h>
#include <sched.h>
#include <stdlib.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

extern const struct device_ops device_cpu;

static const struct op_impl *const lists[OP_KINDS][6] = {
    [OP_LINEAR] = {&cpu_linear, &ref_linear},
    [OP_CONV2D] = {&cpu_conv_wino, &cpu_conv_small, &cpu_conv_dnnl, &cpu_conv_direct, &ref_conv2d},
    [OP_POOL2D] = {&cpu_pool, &cpu_pool_blocked, &ref_pool2d},
    [OP_REORDER] = {&cpu_reorder, &ref_reorder},
    [OP_ACTIVATION] = {&cpu_activation, &ref_activation},
    [OP_DROPOUT] = {&cpu_dropout, &ref_dropout},
    [OP_BATCHNORM] = {&cpu_batchnorm, &cpu_batchnorm_blocked, &ref_batchnorm},
    [OP_ADD] = {&cpu_add, &ref_add},
    [OP_CROSS_ENTROPY] = {&cpu_cross_entropy, &ref_cross_entropy},
    [OP_MSE] = {&ref_mse},
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

/* ---- the calling thread and its team -------------------------------------------------------- */
/* Denormals are slow and say nothing in training. Threads that the team starts later inherit this
 * and the binding. */
static void flush_denormals(void) {
#if defined(__SSE__)
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };
    _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
#elif defined(__aarch64__)
    const uint64_t flush_to_zero = 1u << 24; /* operands and results */
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | flush_to_zero));
#endif
}

/* The cores index * threads ... of the process's own: false when they are not enough for all the
 * devices. */
static bool own_cores(const struct device_params *p, cpu_set_t *own) {
    cpu_set_t all;
    int64_t first = (int64_t)p->index * p->threads, seen = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return false;
    if ((int64_t)p->count * p->threads > CPU_COUNT(&all)) return false;
    CPU_ZERO(own);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all)) {
            if (seen >= first && seen < first + p->threads) CPU_SET(core, own);
            seen++;
        }
    return true;
}

static void settle(const struct device_params *p) {
    cpu_set_t own;
    omp_set_num_threads(p->threads); /* oneDNN's */
    flush_denormals();
    if (p->pin && own_cores(p, &own)) (void)sched_setaffinity(0, sizeof own, &own); /* a wish: slower without */
}

static void settle_helper(const void *user) {
    (void)user; /* it has the binding of the thread that started it */
    flush_denormals();
}

void cpu_parallel(const struct device *dev, int64_t count, int64_t grain,
                  void (*work)(void *ctx, int64_t begin, int64_t end), void *ctx) {
    threads_share(dev->threads, count, grain, work, ctx);
}

int cpu_thread(void) {
    return threads_self();
}

enum cpu_level cpu_level(void) {
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
        !__builtin_cpu_supports("bmi2"))
        return CPU_BASE;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512vl")
               ? CPU_V4
               : CPU_V3;
#else
    return CPU_BASE;
#endif
}

/* ---- the device ----------------------------------------------------------------------------- */
static enum error cpu_open(const struct device_params *p, struct device **out) {
    struct device *d = calloc(1, sizeof *d);
    if (!d) return FAIL(ERR_MEMORY, "cannot allocate a device");
    d->ops = &device_cpu;
    d->params = *p;
    settle(p);
    enum error err = threads_create(p->threads, settle_helper, NULL, &d->threads);
    if (err == ERR_NONE)
        *out = d;
    else
        free(d);
    return err;
}

static void cpu_close(struct device *d) {
    threads_free(d->threads);
    free(d);
}

static const struct op_impl *const *cpu_impls(struct device *d, enum op_kind kind) {
    bool forbidden = kind == OP_CONV2D && d->params.no_winograd;
    return lists[kind] + (forbidden ? 1 : 0); /* cpu_conv_wino stands first */
}

const struct device_ops device_cpu = {
    .name = "cpu",
    .summary = "own vector kernels, and oneDNN for bf16, bound to cores of their own",
    .open = cpu_open,
    .close = cpu_close,
    .impls = cpu_impls,
    .runtime = &host_runtime,
    .precisions = 1u << PRECISION_F32 | 1u << PRECISION_BF16,
    .image_layout = LAYOUT_BLOCKED,
    .has_bf16 = cpu_has_bf16,
    .software = cpu_software,
};
