#include "tests/harness/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "engine-scratch-"
static char folder[256];

static void remove_tree(const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0) return;
    if (S_ISDIR(st.st_mode)) {
        DIR *d = opendir(path);
        for (struct dirent *e; d && (e = readdir(d));) {
            char sub[1024];
            if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
            snprintf(sub, sizeof sub, "%s/%s", path, e->d_name);
            remove_tree(sub);
        }
        if (d) closedir(d);
    }
    (void)remove(path);
}

static void remove_folder(void) {
    remove_tree(folder);
}

/* A test holds a lock on its folder, which ends with it. So a folder that can be locked is what a killed test has left; one that is
 * younger than a minute may still be without its lock. */
static void remove_left(const char *base) {
    struct stat st;
    DIR *d = opendir(base);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", base, e->d_name);
        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0) continue;
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        bool old = fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && time(NULL) - st.st_ctime > 60;
        if (old && flock(fd, LOCK_EX | LOCK_NB) == 0) remove_tree(path);
        if (fd >= 0) close(fd);
    }
    if (d) closedir(d);
}

const char *scratch_folder(void) {
    if (!*folder) {
        const char *base = getenv("TMPDIR");
        if (!base) base = "/tmp";
        remove_left(base);
        snprintf(folder, sizeof folder, "%s/" PREFIX "XXXXXX", base);
        if (!mkdtemp(folder)) fail_msg("cannot make %s: %s", folder, strerror(errno));
        (void)flock(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC), LOCK_EX); /* until this process ends */
        atexit(remove_folder);
        setenv("ENGINE_FLIGHT", scratch_path("flight"), 1); /* where groups of programs record */
    }
    return folder;
}

const char *scratch_path(const char *name) {
    static char paths[8][512];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", scratch_folder(), name);
    return p;
}

int folder_count(const char *in, const char *pattern) {
    char path[1400];
    glob_t found;
    snprintf(path, sizeof path, "%s/%s", in, pattern);
    int n = glob(path, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    if (n) globfree(&found);
    return n;
}

void save_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    if (!f) fail_msg("cannot make %s: %s", path, strerror(errno));
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

#ifdef ENGINE_SANITIZED
/* The sanitizers own the allocator: nothing is counted there. */
void count_allocations_begin(void) {
}
long count_allocations_end(void) {
    return 0;
}
#else
static atomic_long allocations;
static atomic_bool counting;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);
void *aligned_alloc(size_t align, size_t n);

static void tick(void) {
    if (atomic_load_explicit(&counting, memory_order_relaxed)) atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t n) {
    tick();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    tick();
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    tick();
    return __libc_realloc(p, n);
}
void *aligned_alloc(size_t align, size_t n) {
    tick();
    return __libc_memalign(align, n);
}
int posix_memalign(void **out, size_t align, size_t n) {
    tick();
    *out = __libc_memalign(align, n);
    return *out ? 0 : ENOMEM;
}

void count_allocations_begin(void) {
    allocations = 0;
    counting = true;
}

long count_allocations_end(void) {
    counting = false;
    return allocations;
}
#endif
