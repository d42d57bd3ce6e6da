/* Kernels of conv_small.c for x86-64-v3 (AVX2 and FMA); CMakeLists.txt has the flags. */
#include "engine/device/cpu/conv_small.h"
#if defined(__x86_64__)
#define CONV_KERNELS conv_kernels_v3
#define CONV_NAME "avx2"
#include "engine/device/cpu/conv_small_kernels.h"
#endif
