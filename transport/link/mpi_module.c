/* The MPI module: where it lies, whether it fits, and whether MPI can run here. */
#include "transport/link/mpi_module.h"

#include "engine/base/file.h"
#include "engine/base/version.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file[] = "libengine_mpi.so", variable[] = "ENGINE_MPI_MODULE";

/* ---- where it lies ---- */

/* Beside the file that this code is in, which is the program or its library. */
static bool module_find(char out[PATH_MAX]) {
    static const char *const folders[] = {"", ENGINE_MODULES "/", "engine/"};
    const char *given = getenv(variable);
    char base[PATH_MAX];
    if (given && *given) return snprintf(out, PATH_MAX, "%s", given) < PATH_MAX;
    const char *folder = realpath(file_of_code(), base) ? dirname(base) : ".";
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        int n = snprintf(out, PATH_MAX, "%s/%s%s", folder, folders[i], file);
        if (n < PATH_MAX && access(out, R_OK) == 0) return true;
    }
    return false;
}

/* ---- loading ---- */

static enum error module_missing(void) {
    if (!strcmp(ENGINE_FOUND_MPI, "found"))
        return FAIL(ERR_DEVICE,
                    "link mpi: no %s beside the program or in " ENGINE_MODULES
                    "\ninstall it there, or set %s to its path",
                    file, variable);
    return FAIL(ERR_DEVICE, "link mpi: this engine was built without MPI\nbuild it where an MPI library is found "
                            "(Debian: libopenmpi-dev), or use comm.link: auto");
}

/* Open MPI looks for symbols of its own in parts that it loads itself, so its library is opened for
 * all. It is never closed: no MPI library bears that. */
static enum error module_load(const struct mpi_calls **out) {
    char path[PATH_MAX];
    if (!module_find(path)) return module_missing();
    void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!handle)
        return FAIL(ERR_DEVICE, "link mpi: %s\nthe MPI library that the engine was built with must be on this host",
                    dlerror());
    const struct mpi_calls *calls = dlsym(handle, MPI_MODULE_SYMBOL);
    if (!calls) return FAIL(ERR_DEVICE, "link mpi: %s is not a module of the engine", path);
    if (calls->bytes != sizeof *calls || strcmp(calls->engine, ENGINE_VERSION) != 0)
        return FAIL(ERR_DEVICE, "link mpi: %s is of another engine than this, which is %s\ninstall both from one build",
                    path, ENGINE_VERSION);
    *out = calls;
    return ERR_NONE;
}

enum error mpi_probe(void) {
    const struct mpi_calls *calls;
    return module_load(&calls);
}

/* ---- starting ---- */

/* MPI started by nobody takes itself for the only rank. */
static enum error module_check_started(void) {
    static const char *const signs[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PMI_FD"};
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (getenv(signs[i])) return ERR_NONE;
    return FAIL(ERR_USAGE, "link mpi: this process was not started by an MPI launcher\nstart the ranks by one: mpirun "
                           "-np 4 engine run CONFIG, or srun --mpi=pmix");
}

static enum error module_start(struct mpi *m) {
    char words[MPI_WORDS] = "";
    const struct mpi_calls *calls;
    TRY(module_check_started());
    TRY(module_load(&calls));
    if (!calls->start(&m->rank, &m->size, words)) return FAIL(ERR_DEVICE, "link mpi: %s", words);
    m->calls = calls;
    return ERR_NONE;
}

enum error mpi_start(const struct mpi **out) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct mpi mpi; /* there is one in a process, whoever uses it */
    pthread_mutex_lock(&mutex);
    enum error err = mpi.calls ? ERR_NONE : module_start(&mpi);
    pthread_mutex_unlock(&mutex);
    *out = &mpi;
    return err;
}
