/* cuBLASLt and cuDNN, loaded when the first GPU is opened: the program starts without them. Their functions are
 * called through these tables, under their own names: blaslt.Matmul, dnn.BackendExecute. */
#pragma once
#include "engine/base/error.h"

#include <cublasLt.h>
#include <cudnn.h>

#define CUBLASLT_FUNCTIONS(X)                                                                                          \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(GetStatusString)                                                                                                 \
    X(GetVersion)                                                                                                      \
    X(Matmul)                                                                                                          \
    X(MatmulAlgoGetHeuristic)                                                                                          \
    X(MatmulDescCreate)                                                                                                \
    X(MatmulDescDestroy)                                                                                               \
    X(MatmulDescSetAttribute)                                                                                          \
    X(MatrixLayoutCreate)                                                                                              \
    X(MatrixLayoutDestroy)                                                                                             \
    X(MatrixLayoutSetAttribute)                                                                                        \
    X(MatmulPreferenceCreate)                                                                                          \
    X(MatmulPreferenceDestroy)                                                                                         \
    X(MatmulPreferenceSetAttribute)
#define CUDNN_FUNCTIONS(X)                                                                                             \
    X(Create)                                                                                                          \
    X(Destroy)                                                                                                         \
    X(SetStream)                                                                                                       \
    X(GetVersion)                                                                                                      \
    X(GetErrorString)                                                                                                  \
    X(BackendCreateDescriptor)                                                                                         \
    X(BackendDestroyDescriptor)                                                                                        \
    X(BackendSetAttribute)                                                                                             \
    X(BackendGetAttribute)                                                                                             \
    X(BackendFinalize)                                                                                                 \
    X(BackendExecute)
struct cublaslt_library {
#define X(name) __typeof__(cublasLt##name) *name;
    CUBLASLT_FUNCTIONS(X)
#undef X
};
struct cudnn_library {
#define X(name) __typeof__(cudnn##name) *name;
    CUDNN_FUNCTIONS(X)
#undef X
};
extern struct cublaslt_library blaslt;
extern struct cudnn_library dnn;
/* Once a process. ERR_DEVICE names the library that is missing, and how to get it. */
MUST_CHECK enum error library_load(void);
/* Version of what is loaded: 90190 and so on; 0: not loaded. */
size_t library_blaslt_version(void);
size_t library_cudnn_version(void);
