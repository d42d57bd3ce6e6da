/* Kernels of conv_direct.c for x86-64-v3 (AVX2 and FMA); CMakeLists.txt has the flags. */
#include "engine/device/cpu/conv_direct_product.h"
#if defined(__x86_64__)
#define DIRECT_KERNELS direct_kernels_v3
#define DIRECT_NAME "avx2"
#include "engine/device/cpu/conv_direct_kernels.h"
#endif
