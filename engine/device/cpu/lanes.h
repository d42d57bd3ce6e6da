/* Floats in a vector of the level that the file is compiled for. */
#pragma once

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
