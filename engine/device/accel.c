/* What works on any device: with the functions of an accelerator, or plainly on the host. */
#include "engine/device/accel.h"

#include "engine/base/vector.h"

#include <string.h>

enum error device_alloc(struct device *d, size_t bytes, void **out) {
    const struct accel_ops *a = device_accel(d);
    return a ? a->alloc(d, bytes, out) : memory_alloc(bytes, out);
}

void device_free(struct device *d, void *p) {
    const struct accel_ops *a = device_accel(d);
    if (!p) return;
    if (a)
        a->free(d, p);
    else
        memory_free(p);
}

bool device_holds(const struct device *d, const void *p) {
    const struct accel_ops *a = device_accel(d);
    return a && a->holds(d, p);
}

enum error device_write(struct device *d, void *to, const void *from, size_t bytes) {
    const struct accel_ops *a = device_accel(d);
    if (a) return a->write(d, LANE_COMPUTE, to, from, bytes);
    memcpy(to, from, bytes);
    return ERR_NONE;
}

enum error device_read(struct device *d, void *to, const void *from, size_t bytes) {
    const struct accel_ops *a = device_accel(d);
    if (!a) {
        memcpy(to, from, bytes);
        return ERR_NONE;
    }
    TRY(a->read(d, LANE_COMPUTE, to, from, bytes));
    return a->wait(d, LANE_COMPUTE);
}

enum error device_zero(struct device *d, void *p, size_t bytes) {
    const struct accel_ops *a = device_accel(d);
    if (a) return a->zero(d, LANE_COMPUTE, p, bytes);
    memset(p, 0, bytes);
    return ERR_NONE;
}

enum error device_add(struct device *d, float *to, const float *from, int64_t n) {
    const struct accel_ops *a = device_accel(d);
    if (a) return a->sum(d, LANE_COMPUTE, to, (const float *const[]){to, from}, 2, SUM_LINEAR, n);
    floats_add(to, from, n);
    return ERR_NONE;
}

enum error device_wait(struct device *d) {
    const struct accel_ops *a = device_accel(d);
    return a ? a->wait(d, LANE_COMPUTE) : ERR_NONE;
}

size_t device_unit(const struct device *d, enum precision p) {
    const struct accel_ops *a = device_accel(d);
    return a ? a->unit(p) : sizeof(float);
}

static enum error alloc_there(void *ctx, size_t bytes, void **out) {
    return device_alloc(ctx, bytes, out);
}

static void free_there(void *ctx, void *p) {
    device_free(ctx, p);
}

struct allocator device_allocator(struct device *d) {
    if (!device_accel(d)) return allocator_heap;
    return (struct allocator){alloc_there, free_there, d};
}

static enum error alloc_here(void *ctx, size_t bytes, void **out) {
    return device_accel(ctx)->host_alloc(ctx, bytes, out);
}

static void free_here(void *ctx, void *p) {
    if (p) device_accel(ctx)->host_free(ctx, p);
}

struct allocator device_host_allocator(struct device *d) {
    if (!device_accel(d)) return allocator_heap;
    return (struct allocator){alloc_here, free_here, d};
}
