/* What every *_launch.h begins with: LAUNCHER declares a function of a .cu file that C calls. */
#pragma once
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
#define LAUNCHER extern "C"
#else
#define LAUNCHER
#endif
