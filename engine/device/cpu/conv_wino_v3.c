/* Kernels of conv_wino.c for x86-64-v3 (AVX2 and FMA); CMakeLists.txt has the flags. */
#include "engine/device/cpu/conv_wino.h"
#if defined(__x86_64__)
#define WINO_KERNELS wino_kernels_v3
#define WINO_NAME "avx2"
#include "engine/device/cpu/conv_wino_kernels.h"
#endif
