#ifdef ENGINE_HAVE_NCCL
#include "transport/carrier/nccl_impl.h"

#include "engine/base/clock.h"
#include "engine/base/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct nccl_library nccl;

static size_t nccl_version_number(void) {
    int v = 0;
    return nccl.GetVersion && nccl.GetVersion(&v) == ncclSuccess ? (size_t)v : 0;
}

#define X(name) {"nccl" #name, offsetof(struct nccl_library, name)},
static const struct library_symbol symbols[] = {NCCL_FUNCTIONS(X)};
#undef X
/* 2.18 is the first that can be told not to block. */
static const struct library library = {
    "libnccl.so.2", "NCCL 2", "nvidia-nccl-cu13", symbols, sizeof symbols / sizeof *symbols, &nccl, nccl_version_number,
    21800,          30000};

/* A thread of its own calls it. Whoever is last, the thread or who waits for it, frees this. */
struct abort {
    ncclComm_t comm;
    atomic_bool over;
};

static void *nccl_abort_main(void *arg) {
    struct abort *a = arg;
    ncclResult_t rc = nccl.CommAbort(a->comm);
    (void)rc; /* the communicator is gone, whatever it says */
    if (atomic_exchange(&a->over, true)) free(a);
    return NULL;
}

bool nccl_abort(ncclComm_t comm) {
    enum { NAPS = 5000 };
    pthread_t thread;
    struct abort *a = malloc(sizeof *a);
    if (!a) return false;
    a->comm = comm;
    atomic_init(&a->over, false);
    if (pthread_create(&thread, NULL, nccl_abort_main, a)) {
        free(a);
        return false;
    }
    pthread_detach(thread);
    for (int i = 0; i < NAPS && !atomic_load(&a->over); i++) clock_nap(1000000);
    bool over = atomic_exchange(&a->over, true);
    if (over) free(a);
    return over;
}

void nccl_version(char out[32], char *where, size_t n) {
    size_t v = nccl_version_number();
    Dl_info from;
    snprintf(out, 32, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    if (where && dladdr(*(void **)&nccl.GetVersion, &from) && from.dli_fname) snprintf(where, n, "%s", from.dli_fname);
}

enum error nccl_load(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&mutex);
    enum error err = library_fill(&library);
    pthread_mutex_unlock(&mutex);
    return err;
}
#endif
