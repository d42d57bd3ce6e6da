/* Libraries that the program starts without, and that lie where NVIDIA's do. */
#pragma once
#include "engine/base/error.h"

struct library_symbol {
    const char *name;
    size_t at; /* of the function's pointer in the table */
};
struct library {
    const char *file, *title, *package; /* "libnccl.so.2", "NCCL 2", "nvidia-nccl-cu13" */
    const struct library_symbol *symbols;
    size_t count;
    void *table;             /* of count pointers */
    size_t (*version)(void); /* 90190 of 9.19.0; 0: the table is empty */
    size_t least, below;     /* versions that will do */
};
/* Opens the library and fills the table; does nothing if the table is full. It looks in ENGINE_CUDA_LIBRARIES
 * (folders, as in PATH; an empty one means the usual places), else in the loader's path and in the folders of the
 * CUDA Toolkit and Python's wheels. Only one thread may call it at a time. ERR_DEVICE says what is missing, and how
 * to get it. A loaded library is never closed, because such libraries start threads. */
MUST_CHECK enum error library_fill(const struct library *l);
/* One by its name alone, from the same places. NULL: not there. */
void *library_open(const char *name);
