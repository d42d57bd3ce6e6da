/* Kernels of conv_wino.c for the instruction set that the whole program is compiled for. */
#define WINO_KERNELS wino_kernels_base
#define WINO_NAME "base"
#include "engine/device/cpu/conv_wino_kernels.h"
