/* The cpu device's inside: its threads and its implementations. */
#pragma once
#include "engine/device/impl.h"

/* Calls work(ctx, begin, end) over parts of [0, count), one a thread of the device, in parallel;
 * parts begin at multiples of 'grain'. On the calling thread alone when there is one thread or no
 * more than 'grain'. Allocates nothing. */
void cpu_parallel(const struct device *dev, int64_t count, int64_t grain,
                  void (*work)(void *ctx, int64_t begin, int64_t end), void *ctx);

/* Which of the team's threads runs the work that asks: 0 <= it < threads. */
int cpu_thread(void);

/* The best instruction set of those that kernels are compiled for: x86-64-v4 has AVX-512, x86-64-v3
 * AVX2 and fused multiply-add, and the base is what the whole program is compiled for. */
enum cpu_level { CPU_BASE, CPU_V3, CPU_V4 };
enum cpu_level cpu_level(void);

/* software.c: oneDNN. */
bool cpu_software(int i, struct device_software *out);

/* In order of preference within a kind; cpu.c has the lists. */
extern const struct op_impl cpu_linear;
extern const struct op_impl cpu_conv_small;  /* own kernels, for few channels */
extern const struct op_impl cpu_conv_wino;   /* own kernels: 3x3 of blocked images */
extern const struct op_impl cpu_conv_dnnl;   /* oneDNN, for bf16 */
extern const struct op_impl cpu_conv_direct; /* own kernels: takes all but a fused pool */
extern const struct op_impl cpu_pool, cpu_pool_blocked, cpu_mean_blocked;
extern const struct op_impl cpu_reorder;
extern const struct op_impl cpu_activation, cpu_dropout, cpu_add;
extern const struct op_impl cpu_batchnorm, cpu_batchnorm_blocked;
extern const struct op_impl cpu_cross_entropy; /* mse: plain C does */
extern const struct op_impl cpu_layernorm, cpu_rmsnorm;
extern const struct op_impl cpu_embedding, cpu_position, cpu_prepend, cpu_select, cpu_tokens, cpu_mean;
extern const struct op_impl cpu_attention;
