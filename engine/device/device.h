/* A device: memory, threads, and implementations of the ops. The kinds are listed in devices.def: "ref" is plain C,
 * "cpu" is own vector kernels. A device is used by one thread at a time (its rank's). */
#pragma once
#include "engine/base/memory.h"
#include "engine/device/ops.h"

#include <stdatomic.h>

struct device_runtime; /* runtime.h */
struct device_unit;
struct device_software;
struct device_params {
    int index;        /* which of the ranks' devices on this host */
    int count;        /* how many there are on this host */
    int unit;         /* which of the machine's units it is; several devices may share one */
    int threads;      /* of this device, >= 1 */
    double timeout;   /* asynchronous ones: seconds that the host waits before it gives up; 0: for ever */
    bool no_winograd; /* the cpu's convolutions never use Winograd's algorithm */
    bool pin;         /* bind the calling thread and the device's threads each to one core, if there are enough */
};

struct device_ops {
    const char *name, *summary;
    /* Opens for the calling thread: thread count, core binding and float mode (denormals flushed) are the
     * calling thread's from here on. */
    enum error (*open)(const struct device_params *p, struct device **out);
    void (*close)(struct device *d);
    /* Its own implementations of a kind of ops.def, best first, NULL after the last. Where none of them takes an op, and
     * the device works in the host's memory, plain C does. NULL: there are none of any kind. */
    const struct op_impl *const *(*impls)(struct device *d, enum op_kind kind);
    unsigned precisions; /* that its ops compute in: 1 << enum precision of each */
    /* Whether this host has instructions for products of bf16; elsewhere they are emulated. */
    bool (*has_bf16)(void);
    /* How images lie where its ops take them so; plain elsewhere. images_turned: any op is worth turning its plain
     * image for, not only a convolution. */
    enum layout image_layout;
    bool images_turned;
    /* Memory, lanes, vectors, the optimizer's step. */
    const struct device_runtime *runtime;
    /* The number of units that this process may use, at least one; ERR_DEVICE names what is missing, and as a hint
     * how to get it. NULL: the device has no units, and there may be any number of devices. */
    enum error (*units)(int *count);
    /* Describes unit i. false: it does not exist. */
    bool (*unit_about)(int i, struct device_unit *out);
    /* Whether unit i can read unit j's memory without passing through the host. */
    bool (*unit_reaches)(int i, int j);
    /* Software that it works with, by number from 0 on; false: no more. NULL: none. */
    bool (*software)(int i, struct device_software *out);
};
struct device_software {
    char name[24], version[64]; /* "cuDNN", "9.19.0" */
    char where[256];            /* the file that was loaded; "": it is part of the engine or of the system */
    char missing[640];          /* "": it is there; else why it is not, and after a '\n' what to do */
};
struct device_unit {
    char name[96], bus[24], link[48]; /* "NVIDIA H200", "0000:1b:00.0", "NVLink x18" or "PCIe 5 x16" */
    size_t memory, memory_free;       /* bytes */
    int major, minor, processors;     /* compute capability, multiprocessors */
};
struct device { /* embedded first in each kind's own struct */
    const struct device_ops *ops;
    struct device_params params;
    const char *isa; /* the level of instructions that its kernels are compiled for, "v4"; NULL where there is one */
    struct threads *threads;     /* threads.h; NULL: the calling one alone */
    _Atomic(const char *) doing; /* for messages: device_note */
    _Atomic int64_t step;
};
/* Sets the current work of the device for messages; 'doing' is a constant. d may be NULL. */
static inline void device_note(struct device *d, const char *doing, int64_t step) {
    if (!d) return;
    atomic_store_explicit(&d->doing, doing, memory_order_relaxed);
    atomic_store_explicit(&d->step, step, memory_order_relaxed);
}

/* All kinds of devices; device_find gives NULL for an unknown name. */
const struct device_ops *const *device_kinds(int *count);
const struct device_ops *device_find(const char *name);

/* Cores this process may use (its affinity mask, and its cgroup's quota). */
int device_host_cores(void);

/* Plans an op on the best implementation that takes it. ERR_CONFIG when none does: never a silent fallback
 * to another device. op_choice says whether a fusion is worth asking for. */
MUST_CHECK enum error op_create(struct device *dev, const struct op_desc *d, struct op **out);
/* Whether any takes it, and which does: its place in the device's list, -1 when none but plain C. */
bool op_takes(struct device *dev, const struct op_desc *d);
/* All implementations of a kind, by number: the device's, then plain C where that is legal; NULL after the last. */
const struct op_impl *op_impl_at(struct device *dev, enum op_kind kind, int i);
bool op_impl_takes(const struct op_impl *impl, const struct op_desc *d);
int op_choice(struct device *dev, const struct op_desc *d);
void op_free(struct op *op); /* NULL is fine */
static inline enum error op_forward(struct op *op, const struct op_args *a) {
    return op->impl->forward(op, a);
}
static inline enum error op_backward(struct op *op, const struct op_args *a) {
    return op->impl->backward(op, a);
}
