/* Preloaded into a program, this makes the host look as if its pages had ENGINE_PAGE bytes: sysconf
 * says so, new memory begins at a multiple of it, and a mapping or a protection that does not begin
 * at one is refused, as the kernel of such a host does. */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static size_t page(void) {
    const char *text = getenv("ENGINE_PAGE");
    return text ? strtoul(text, NULL, 10) : 4096;
}

static size_t up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

long sysconf(int name) {
    long (*next)(int);
    *(void **)&next = dlsym(RTLD_NEXT, "sysconf");
    return name == _SC_PAGESIZE     ? (long)page()
           : name == _SC_PHYS_PAGES ? next(name) / ((long)page() / next(_SC_PAGESIZE))
                                    : next(name);
}

static void *map(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    return (void *)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset);
}

/* From a reservation that is one page longer, which leaves no more than that unused. */
static void *map_anywhere(size_t bytes, int prot, int flags, int fd, off_t offset) {
    void *got = map(NULL, bytes + page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) return got;
    return map((void *)up((uintptr_t)got, page()), bytes, prot, flags | MAP_FIXED, fd, offset);
}

void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    if (!at) return map_anywhere(bytes, prot, flags, fd, offset);
    if (!((uintptr_t)at % page()) && !((size_t)offset % page())) return map(at, bytes, prot, flags, fd, offset);
    errno = EINVAL;
    return MAP_FAILED;
}

int mprotect(void *at, size_t bytes, int prot) {
    if (!((uintptr_t)at % page())) return (int)syscall(SYS_mprotect, at, bytes, prot);
    errno = EINVAL;
    return -1;
}
