/* Kernels of conv_direct.c for the instruction set that the whole program is compiled for. */
#define DIRECT_KERNELS direct_kernels_base
#define DIRECT_NAME "base"
#include "engine/device/cpu/conv_direct_kernels.h"
