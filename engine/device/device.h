/* A device: memory, threads, and implementations of the ops. The kinds are listed in devices.def: "ref" is plain C,
 * "cpu" is oneDNN and own vector kernels. A device is used by one thread at a time (its rank's). */
#pragma once
#include "engine/base/memory.h"
#include "engine/device/ops.h"

struct device_params {
    int index;   /* which of the ranks' devices on this host */
    int count;   /* how many there are on this host */
    int threads; /* of this device, >= 1 */
    bool
        pin; /* bind the calling thread and the device's own to cores of their own, if there are enough */
};

struct device_ops {
    const char *name, *summary;
    /* Opens for the calling thread: thread count, core binding and float mode (denormals flushed) are the
     * calling thread's from here on. */
    enum error (*open)(const struct device_params *p, struct device **out);
    void (*close)(struct device *d);
    /* Implementations of a kind, best first, NULL after the last; never empty ("ref" stands at the end). */
    const struct op_impl *const *(*impls)(struct device *d, enum op_kind kind);
    /* Whether this host has instructions for products of bf16; elsewhere they are emulated. */
    bool (*has_bf16)(void);
};
struct device { /* embedded first in each kind's own struct */
    const struct device_ops *ops;
    struct device_params params;
};

/* All kinds; device_find gives NULL for an unknown name. */
const struct device_ops *const *device_kinds(int *count);
const struct device_ops *device_find(const char *name);

/* Cores this process may use (its affinity mask, and its cgroup's quota). */
int device_host_cores(void);

/* Plans an op on the best implementation that takes it. ERR_DEVICE when none does: never a silent fallback
 * to another device. op_choice tells the graph whether a fusion is worth asking for. */
MUST_CHECK enum error op_create(struct device *dev, const struct op_desc *d, struct op **out);
/* Whether any takes it, and which does: its place in the device's list, -1 when none but plain C. */
bool op_takes(struct device *dev, const struct op_desc *d);
int op_choice(struct device *dev, const struct op_desc *d);
void op_free(struct op *op); /* NULL is fine */
static inline enum error op_forward(struct op *op, const struct op_args *a) {
    return op->impl->forward(op, a);
}
static inline enum error op_backward(struct op *op, const struct op_args *a) {
    return op->impl->backward(op, a);
}
