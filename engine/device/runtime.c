/* Functions for any device, built on its runtime. */
#include "engine/device/runtime.h"

#include <string.h>

enum error device_write(struct device *d, void *to, const void *from, size_t bytes) {
    if (device_holds(d, to)) return d->ops->runtime->write(d, LANE_COMPUTE, to, from, bytes);
    memcpy(to, from, bytes);
    return ERR_NONE;
}

enum error device_read(struct device *d, void *to, const void *from, size_t bytes) {
    if (device_holds(d, from))
        TRY(d->ops->runtime->read(d, LANE_COMPUTE, to, from, bytes));
    else
        memcpy(to, from, bytes);
    return device_wait(d);
}

enum error device_view(struct device *d, const void *p, size_t bytes, const void **view, void **copy) {
    *copy = NULL;
    *view = p;
    if (!device_holds(d, p)) return ERR_NONE;
    TRY(memory_alloc(bytes, copy));
    *view = *copy;
    return device_read(d, *copy, p, bytes);
}

enum error device_map(struct device *d, void *p, size_t bytes, void **here) {
    *here = p;
    return device_holds(d, p) ? memory_alloc(bytes, here) : ERR_NONE;
}

enum error device_unmap(struct device *d, void *p, size_t bytes, void *here, enum error err) {
    if (here == p) return err;
    if (!err) err = device_write(d, p, here, bytes);
    if (!err) err = device_wait(d);
    memory_free(here);
    return err;
}

static enum error alloc_there(void *d, size_t bytes, void **out) {
    return device_alloc(d, bytes, out);
}

static void free_there(void *d, void *p) {
    device_free(d, p);
}

struct allocator device_allocator(struct device *d) {
    return (struct allocator){alloc_there, free_there, d};
}

static enum error alloc_here(void *d, size_t bytes, void **out) {
    return device_runtime(d)->host_alloc(d, bytes, out);
}

static void free_here(void *d, void *p) {
    if (p) device_runtime(d)->host_free(d, p);
}

struct allocator device_host_allocator(struct device *d) {
    return (struct allocator){alloc_here, free_here, d};
}
