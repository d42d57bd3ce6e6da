#include "engine/base/plugin.h"

#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/base/plugin_python.h"
#include "engine/base/text.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct plugin *opened;

static const char *const kind_names[] = {"algorithm", "compressor", "optimizer", "share"};

bool plugin_is_path(const char *text) {
    return strchr(text, '/') || text_ends(text, ".so") || text_ends(text, ".py");
}

int plugin_parameters(const struct engine_plugin *p) {
    int n = 0;
    while (p->parameters && p->parameters[n].name) n++;
    return n;
}

/* ---- the file ---- */

/* Keeps the text of one in Python: what runs is what the digest is of. */
static enum error plugin_keep(struct python *p, const char *block, size_t n) {
    enum { SOURCE_MOST = 1 << 20 };
    char *source = p->length + n > SOURCE_MOST ? NULL : realloc(p->source, p->length + n);
    if (!source) return FAIL(ERR_CONFIG, "plug-in '%s' has more than %d bytes", p->path, SOURCE_MOST);
    memcpy(source + p->length, block, n);
    p->source = source, p->length += n;
    return ERR_NONE;
}

static enum error plugin_read_fd(int fd, struct plugin *p) {
    char block[1 << 14], magic[4] = {0};
    struct sha256 h;
    ssize_t n;
    sha256_init(&h);
    for (int64_t at = 0; (n = read(fd, block, sizeof block)) > 0; at += n) {
        if (at == 0 && n >= (ssize_t)sizeof magic) memcpy(magic, block, sizeof magic);
        if (p->python) TRY(plugin_keep(p->python, block, (size_t)n));
        sha256_update(&h, block, (size_t)n);
    }
    if (n < 0) return FAIL(ERR_IO, "plug-in '%s' cannot be read: %s", p->path, strerror(errno));
    sha256_hex(h, p->digest);
    if (p->python || !memcmp(magic, "\177ELF", sizeof magic)) return ERR_NONE;
    return FAIL(ERR_CONFIG,
                "plug-in '%s' is no shared object\n"
                "build it: cc -O2 -shared -fPIC -o mine.so mine.c; one in Python ends in .py",
                p->path);
}

static enum error plugin_read(struct plugin *p) {
    struct stat s;
    int fd = open(p->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return FAIL(ERR_INPUT, "plug-in '%s' cannot be read: %s\na path in a configuration is relative to its folder",
                    p->path, strerror(errno));
    enum error err = fstat(fd, &s) == 0 && S_ISREG(s.st_mode)
                         ? plugin_read_fd(fd, p)
                         : FAIL(ERR_CONFIG, "plug-in '%s' is no file%s\nname the shared object or the .py file itself",
                                p->path, S_ISDIR(s.st_mode) ? " but a folder" : "");
    close(fd);
    return err;
}

/* ---- what it exports ---- */

static enum error plugin_check_parts(const struct plugin *p) {
    const struct engine_plugin *of = p->of;
    const struct engine_compressor *c = of->compressor;
    const struct engine_schedule *s = of->schedule;
    bool none = !of->algorithm && !c && !of->optimizer && !of->share && !s;
    const char *lacks = none ? "any part: algorithm, compressor, optimizer, share or schedule"
                        : of->algorithm && !of->algorithm->all_reduce               ? "algorithm.all_reduce"
                        : c && !c->bytes                                            ? "compressor.bytes"
                        : c && !c->encode                                           ? "compressor.encode"
                        : c && !c->add                                              ? "compressor.add"
                        : of->optimizer && !of->optimizer->step                     ? "optimizer.step"
                        : of->share && !of->share->meet                             ? "share.meet"
                        : s && !s->buckets && !s->answer && !s->stage && !s->weight ? "any function of a schedule"
                                                                                    : NULL;
    if (lacks) return FAIL(ERR_CONFIG, "plug-in '%s' lacks %s", p->path, lacks);
    if (plugin_parameters(of) > ENGINE_PARAMETERS)
        return FAIL(ERR_CONFIG, "plug-in '%s' declares more than %d parameters", p->path, (int)ENGINE_PARAMETERS);
    if (of->algorithm && (unsigned)of->algorithm->order > ENGINE_OWN)
        return FAIL(ERR_CONFIG, "plug-in '%s' adds in order %d\nENGINE_TREE, ENGINE_RING or ENGINE_OWN", p->path,
                    (int)of->algorithm->order);
    if (c && c->block < 0)
        return FAIL(ERR_CONFIG, "plug-in '%s' encodes blocks of %lld floats", p->path, (long long)c->block);
    return ERR_NONE;
}

static enum error plugin_load(struct plugin *p) {
    if (p->python) {
        p->of = &p->python->of;
        TRY(python_describe(p->python));
        return plugin_check_parts(p);
    }
    void *handle = dlopen(p->path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return FAIL(ERR_CONFIG, "plug-in '%s' cannot be loaded: %s", p->path, dlerror());
    p->of = dlsym(handle, "engine_plugin");
    if (!p->of)
        return FAIL(ERR_CONFIG,
                    "plug-in '%s' exports no 'engine_plugin'\n"
                    "it ends with ENGINE_PLUGIN const struct engine_plugin engine_plugin = {...}, as engine/plugin.h "
                    "says",
                    p->path);
    if (p->of->version != ENGINE_PLUGIN_VERSION)
        return FAIL(ERR_CONFIG,
                    "plug-in '%s' is of version %u, and this engine takes version %d\nbuild it again with the "
                    "engine/plugin.h of this engine",
                    p->path, (unsigned)p->of->version, ENGINE_PLUGIN_VERSION);
    return plugin_check_parts(p);
}

static enum error plugin_python_create(struct plugin *p) {
    if (!text_ends(p->path, ".py")) return ERR_NONE;
    TRY_MEMORY(p->python = memory_new(sizeof *p->python));
    p->python->path = p->path;
    return ERR_NONE;
}

static void plugin_free(struct plugin *p) {
    if (p->python) {
        free(p->python->source);
        free(p->python->answer);
        memory_free(p->python);
    }
    memory_free(p);
}

static enum error plugin_find(const char *path, struct plugin **out) {
    for (*out = opened; *out; *out = (*out)->next)
        if (!strcmp((*out)->path, path)) return ERR_NONE;
    if (strlen(path) >= PATH_MAX) return FAIL(ERR_CONFIG, "a plug-in's path of %zu bytes", strlen(path));
    struct plugin *p = memory_new(sizeof *p);
    if (!p) return ERR_MEMORY;
    strcpy(p->path, path);
    enum error err = plugin_python_create(p);
    if (err == ERR_NONE) err = plugin_read(p);
    if (err == ERR_NONE) err = plugin_load(p);
    if (err != ERR_NONE) {
        plugin_free(p);
        return err;
    }
    p->next = opened;
    *out = opened = p;
    return ERR_NONE;
}

enum error plugin_open(const char *path, enum plugin_kind kind, const char *digest, const struct plugin **out) {
    struct plugin *p;
    const char *slashed[] = {"./", ""}; /* dlopen takes a name without '/' for a library of the system */
    char full[PATH_MAX];
    snprintf(full, sizeof full, "%s%s", slashed[strchr(path, '/') != NULL], path);
    pthread_mutex_lock(&lock);
    enum error err = plugin_find(full, &p);
    pthread_mutex_unlock(&lock);
    TRY(err);
    const void *parts[] = {p->of->algorithm, p->of->compressor, p->of->optimizer, p->of->share, p};
    if (!parts[kind]) return FAIL(ERR_CONFIG, "plug-in '%s' has no %s", p->path, kind_names[kind]);
    if (digest && strcmp(digest, p->digest) != 0)
        return FAIL(ERR_CONFIG,
                    "plug-in '%s' has changed: its sha256 was %.16s... and is %.16s...\n"
                    "put the old file back, or begin a new run",
                    p->path, digest, p->digest);
    *out = p;
    return ERR_NONE;
}
