/* Finding and opening cuBLASLt and cuDNN.
 *
 * A library opened by its full path brings its own parts along: NVIDIA links each with $ORIGIN, so
 * cuDNN's parts are looked for beside it, and cuBLASLt, which cuDNN opens by name, is the one that is
 * open already. So cuBLASLt is opened first, and neither is ever closed: both start threads. */
#include "engine/device/cuda/library.h"

#include "engine/base/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct cublaslt_library blaslt;
struct cudnn_library dnn;

size_t library_blaslt_version(void) {
    return blaslt.GetVersion ? blaslt.GetVersion() : 0;
}

size_t library_cudnn_version(void) {
    return dnn.GetVersion ? dnn.GetVersion() : 0;
}

#define X(name) {"cublasLt" #name, offsetof(struct cublaslt_library, name)},
static const struct library_symbol blaslt_symbols[] = {CUBLASLT_FUNCTIONS(X)};
#undef X
#define X(name) {"cudnn" #name, offsetof(struct cudnn_library, name)},
static const struct library_symbol dnn_symbols[] = {CUDNN_FUNCTIONS(X)};
#undef X

static const struct library libraries[] = {
    {"libcublasLt.so.13", "cuBLASLt 13", "nvidia-cublas", blaslt_symbols,
     sizeof blaslt_symbols / sizeof *blaslt_symbols, &blaslt, library_blaslt_version, 130000, 140000},
    {"libcudnn.so.9", "cuDNN 9", "nvidia-cudnn-cu13", dnn_symbols, sizeof dnn_symbols / sizeof *dnn_symbols, &dnn,
     library_cudnn_version, 90000, 100000},
};

/* cuDNN compiles some of its kernels when it runs: by libnvrtc, which it opens by name, and which opens its own other half
 * by name. Both are found then because they are open. Without them cuDNN has fewer kernels, and does not say so. */
static void open_compiler(void) {
    enum { NVRTC_SUCCESS };
    int (*version)(int *major, int *minor);
    int major, minor;
    char half[64];
    void *compiler = library_open("libnvrtc.so.13");
    void *found = compiler ? dlsym(compiler, "nvrtcVersion") : NULL;
    if (!found) return;
    memcpy(&version, &found, sizeof version);
    if (version(&major, &minor) != NVRTC_SUCCESS) return;
    snprintf(half, sizeof half, "libnvrtc-builtins.so.%d.%d", major, minor);
    (void)library_open(half); /* where it is not, one kind of kernels is missing */
}

enum error library_load(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    enum error err = ERR_NONE;
    pthread_mutex_lock(&mutex);
    if (!dnn.GetVersion) open_compiler();
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && err == ERR_NONE; i++)
        err = library_fill(&libraries[i]);
    pthread_mutex_unlock(&mutex);
    return err;
}
