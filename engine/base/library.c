/* Where NVIDIA's libraries lie: see library.h.
 *
 * A library opened by its full path brings its own parts along: NVIDIA links each with $ORIGIN. */
#include "engine/base/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char variable[] = "ENGINE_CUDA_LIBRARIES";

/* One search: what is looked for, and what came of it. */
struct search {
    const char *name;
    void *handle;
    char refused[512]; /* what the loader said of a file that is there */
};

static void open_path(struct search *s, const char *path) {
    if (s->handle || (strchr(path, '/') && access(path, R_OK) != 0)) return;
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->handle || !strchr(path, '/') || s->refused[0]) return;
    const char *words = dlerror();
    snprintf(s->refused, sizeof s->refused, "%s", words ? words : path);
}

static void open_in(struct search *s, const char *root, const char *below) {
    char path[PATH_MAX];
    if (!root || !*root) return;
    int n = snprintf(path, sizeof path, "%s%s/%s", root, below, s->name);
    if (n > 0 && n < (int)sizeof path) open_path(s, path);
}

/* Wheels of pip below a Python's root: ROOT/lib/python3.x/site-packages/nvidia/cudnn/lib. */
static void open_wheel(struct search *s, const char *root) {
    char pattern[PATH_MAX];
    glob_t found;
    if (s->handle || !root || !*root) return;
    int n = snprintf(pattern, sizeof pattern,
                     "%s/lib/python3*/{site,dist}-packages/nvidia/{cu13,cublas,cudnn,nccl}/lib/%s", root, s->name);
    if (n < 0 || n >= (int)sizeof pattern) return;
    if (glob(pattern, GLOB_BRACE, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++) open_path(s, found.gl_pathv[i]);
    globfree(&found);
}

/* Calls 'with' for each part of a list as in PATH. */
static void each_folder(struct search *s, const char *list, void (*with)(struct search *, const char *)) {
    char folder[PATH_MAX];
    for (const char *at = list; at; at = *at ? at + 1 : NULL) {
        size_t length = strcspn(at, ":");
        if (length < sizeof folder) {
            snprintf(folder, sizeof folder, "%.*s", (int)length, at);
            with(s, folder);
        }
        at += length;
    }
}

/* The folder of a python3 is bin below its root. */
static void open_beside_python(struct search *s, const char *bin) {
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/python3", bin);
    if (!*bin || n < 0 || n >= (int)sizeof path || access(path, X_OK) != 0) return;
    path[n - (int)strlen("/python3")] = '\0';
    char *slash = strrchr(path, '/');
    if (slash && slash > path) {
        *slash = '\0';
        open_wheel(s, path);
    }
}

static void open_usual(struct search *s) {
    char local[PATH_MAX];
    const char *home = getenv("HOME");
    open_path(s, s->name);
    open_in(s, getenv("CUDA_HOME"), "/lib64");
    open_in(s, getenv("CUDA_PATH"), "/lib64");
    open_in(s, "/usr/local/cuda", "/lib64");
    open_wheel(s, getenv("VIRTUAL_ENV"));
    open_wheel(s, getenv("CONDA_PREFIX"));
    each_folder(s, getenv("PATH"), open_beside_python);
    open_wheel(s, "/usr/local");
    open_wheel(s, "/usr");
    if (home && snprintf(local, sizeof local, "%s/.local", home) < (int)sizeof local) open_wheel(s, local);
}

static void open_folder(struct search *s, const char *folder) {
    if (*folder)
        open_in(s, folder, "");
    else
        open_usual(s);
}

static void symbols_find(struct search *s) {
    const char *given = getenv(variable);
    if (given && *given)
        each_folder(s, given, open_folder);
    else
        open_usual(s);
}

void *library_open(const char *name) {
    struct search s = {.name = name};
    symbols_find(&s);
    return s.handle;
}

static enum error library_missing(const struct library *l, const struct search *s) {
    const char *given = getenv(variable);
    if (s->refused[0])
        return FAIL(
            ERR_DEVICE,
            "%s cannot be loaded: %s\ninstall the libraries that it needs, or set %s to folders that have all of them",
            l->title, s->refused, variable);
    if (given && *given)
        return FAIL(ERR_DEVICE,
                    "%s was not found: no %s in %s=%s\nname the folder that it is in there; unset, the usual places "
                    "are searched",
                    l->title, l->file, variable, given);
    return FAIL(ERR_DEVICE,
                "%s was not found: no %s where the loader looks, in the CUDA Toolkit's folder (/usr/local/cuda/lib64) "
                "or among Python's packages\ninstall it (pip install %s, or NVIDIA's package for this system), or set "
                "%s to the folder that it is in",
                l->title, l->file, l->package, variable);
}

static enum error symbols_fill(const struct library *l, void *handle) {
    for (size_t i = 0; i < l->count; i++) {
        void *f = dlsym(handle, l->symbols[i].name);
        if (!f)
            return FAIL(ERR_DEVICE, "%s: the %s that was found has no %s\ninstall %s (pip install %s)", l->title,
                        l->file, l->symbols[i].name, l->title, l->package);
        memcpy((char *)l->table + l->symbols[i].at, &f, sizeof f);
    }
    size_t version = l->version();
    if (version >= l->least && version < l->below) return ERR_NONE;
    return FAIL(ERR_DEVICE,
                "%s from %zu.%zu on is needed, and the %s that was found is of version %zu.%zu\n"
                "install %s (pip install %s)",
                l->title, l->least / 10000, l->least / 100 % 100, l->file, version / 10000, version / 100 % 100,
                l->title, l->package);
}

enum error library_fill(const struct library *l) {
    struct search s = {.name = l->file};
    if (l->version()) return ERR_NONE;
    symbols_find(&s);
    if (!s.handle) return library_missing(l, &s);
    enum error err = symbols_fill(l, s.handle);
    if (err == ERR_NONE) return ERR_NONE;
    memset(l->table, 0, l->count * sizeof(void *));
    dlclose(s.handle);
    return err;
}
