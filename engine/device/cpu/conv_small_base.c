/* Kernels of conv_small.c for the instruction set that the whole program is compiled for. */
#define CONV_KERNELS conv_kernels_base
#define CONV_NAME "base"
#include "engine/device/cpu/conv_small_kernels.h"
