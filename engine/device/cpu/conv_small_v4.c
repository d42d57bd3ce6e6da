/* Kernels of conv_small.c for x86-64-v4 (AVX-512); CMakeLists.txt has the flags. */
#include "engine/device/cpu/conv_small.h"
#if defined(__x86_64__)
#define CONV_KERNELS conv_kernels_v4
#define CONV_NAME "avx512"
#include "engine/device/cpu/conv_small_kernels.h"
#endif
