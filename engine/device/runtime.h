/* What a device does beside its ops: its memory, its lanes, vectors in its memory, and the optimizer's step. Every
 * device fills the whole table; nobody above asks what kind of device it has.
 *
 * Arenas, activations and all that ops work on lie in the device's memory. What is asked of a device runs in order on
 * one lane, beside what the other lanes run. Ops run on LANE_COMPUTE. A mark is a point on a lane; another lane (of any
 * device) follows it, the host waits for it. Any thread may use a device's lanes, but each lane one thread at a time.
 *
 * A host device's memory is the host's, and everything has happened when a call returns: host_runtime does this for
 * ref and cpu, and where there is no device (NULL) at all. Elsewhere ('asynchronous') a call returns at once, and what
 * goes wrong comes to light at the next wait: a kernel that failed (ERR_DEVICE, and stays), a label outside its classes
 * (ERR_DATA, reported once). */
#pragma once
#include "engine/base/header.h"
#include "engine/base/leaves.h"
#include "engine/base/memory.h"
#include "engine/base/rule.h"
#include "engine/device/device.h"

enum device_lane { LANE_COMPUTE, LANE_EXCHANGE, LANE_COPY, DEVICE_LANES };
struct device_mark;      /* reusable; belongs to the device that made it */
struct device_recording; /* a stretch of LANE_COMPUTE that can be run again at the cost of one call */

enum { SUM_TERMS = LEAVES_MAX, DEVICE_ALIGNMENT = 256 };

struct device_runtime {
    /* ---- what differs, each asked for where the difference is made ---- */
    bool asynchronous; /* what is asked of a lane runs later, while the host goes on */
    bool apart;        /* its memory is not the host's: batches are brought there, carriers move it between devices */
    bool records;      /* it has 'record' and what follows; else these are NULL */
    int alignment;     /* of what lies in its memory, in bytes */

    /* Zeroed, of the device's alignment; ERR_MEMORY names what was asked and what is free. Slow. */
    enum error (*alloc)(struct device *d, size_t bytes, void **out);
    void (*free)(struct device *d, void *p);
    /* Whether p points into memory of 'alloc' that is apart from the host's: false on the host. */
    bool (*holds)(const struct device *d, const void *p);
    /* Host memory that copies to and from the device run beside; zeroed. */
    enum error (*host_alloc)(struct device *d, size_t bytes, void **out);
    void (*host_free)(struct device *d, void *p);

    /* All in order on the lane. Host memory of host_alloc is borrowed until the lane has passed the copy; other host
     * memory has been copied when the call returns, which may then wait for the lane, with the device's timeout. */
    enum error (*write)(struct device *d, enum device_lane l, void *to, const void *from, size_t bytes);
    enum error (*read)(struct device *d, enum device_lane l, void *to, const void *from, size_t bytes);
    /* to: this device's; from: 'peer's, a device of the same kind in this process, perhaps d itself. */
    enum error (*copy)(struct device *d, enum device_lane l, void *to, struct device *peer, const void *from,
                       size_t bytes);
    enum error (*zero)(struct device *d, enum device_lane l, void *p, size_t bytes);

    enum error (*mark_create)(struct device *d, struct device_mark **out);
    /* A mark that keeps the time at which it was passed; else like any other. */
    enum error (*timer_create)(struct device *d, struct device_mark **out);
    int64_t (*between)(const struct device_mark *from,
                       const struct device_mark *to); /* nanoseconds; both timers, both passed */
    void (*mark_free)(struct device_mark *m);
    enum error (*mark)(struct device *d, enum device_lane l, struct device_mark *m);
    enum error (*follow)(struct device *d, enum device_lane l, const struct device_mark *m); /* of any device */
    bool (*passed)(const struct device_mark *m);              /* an error counts as passed */
    enum error (*wait)(struct device *d, enum device_lane l); /* the host, for all that was asked of the lane; with
                                               the device's timeout, after which it gives up */
    /* The host has waited for the lane for 'seconds', and waits no more: ERR_TIMEOUT with the device that hangs (perhaps
     * one that this one follows) and what it was doing. The process can then only end: base/give_up.h. */
    enum error (*give_up)(struct device *d, enum device_lane l, double seconds);
    /* cudaStream_t, for a library that wants one; makes d the calling thread's, which such a library may also want.
     * NULL on the host. */
    void *(*stream)(struct device *d, enum device_lane l);

    /* Vectors of f32, at the lane. sum: to[i] = the terms' sum, at most SUM_TERMS, in the order of leaves_adds (NULL: one
     * after another); to may be one of the terms. lower: to[i] = from[i] in the type of activations of that precision. raise: back. */
    enum error (*sum)(struct device *d, enum device_lane l, float *to, const float *const *terms, int count,
                      const uint8_t *adds, int64_t n);
    enum error (*lower)(struct device *d, enum device_lane l, void *to, const float *from, int64_t n, enum precision p);
    enum error (*raise)(struct device *d, enum device_lane l, float *to, const void *from, int64_t n, enum precision p);
    /* to[i] += from[i], both of the type of activations of p; on LANE_COMPUTE. */
    enum error (*add)(struct device *d, void *to, const void *from, int64_t n, enum precision p);
    /* squares_partials of vector.h, with its bits; partial, too, is the device's memory. */
    enum error (*partials)(struct device *d, const float *g, int64_t begin, int64_t end, double *partial);
    /* header[0..3) of a gradient arena = sums[0] * scale, sums[1], samples; the rest of it zero but for [3] = stop. */
    enum error (*head)(struct device *d, float *header, const double *sums, float scale, float samples, bool stop);
    /* An optimizer on LANE_COMPUTE: rule_measure and rule_step of all spans in one go. measure's spans are pieces
     * (NORM_BLOCK floats at most, or it is slow); squares: the device's memory, RULE_NORMS a span. */
    enum error (*measure)(struct device *d, const struct rule *r, const struct rule_span *spans, int count,
                          double *squares);
    enum error (*update)(struct device *d, const struct rule *r, const struct rule_span *spans, int count);

    /* From record on, what is asked of LANE_COMPUTE by this thread is kept instead of run, until recorded. Nothing
     * in between may mark, wait, allocate, step an optimizer or touch another lane. replay runs it all, with the same
     * addresses and numbers. */
    enum error (*record)(struct device *d);
    /* Also ends one that failed: an error, *out NULL, and the lane works as before. */
    enum error (*recorded)(struct device *d, struct device_recording **out);
    enum error (*replay)(struct device *d, struct device_recording *r);
    void (*recording_free)(struct device_recording *r);

    size_t (*unit)(enum precision p); /* bytes of an activation: 4, or 2 for bf16 and fp16 */
};

extern const struct device_runtime host_runtime; /* host.c */

/* ---- for any device; d may be NULL: the host ---- */
static inline const struct device_runtime *device_runtime(const struct device *d) {
    return d ? d->ops->runtime : &host_runtime;
}
static inline bool device_holds(const struct device *d, const void *p) {
    return device_runtime(d)->holds(d, p);
}
MUST_CHECK static inline enum error device_alloc(struct device *d, size_t bytes, void **out) {
    return device_runtime(d)->alloc(d, bytes, out);
}
static inline void device_free(struct device *d, void *p) {
    if (p) device_runtime(d)->free(d, p);
}
/* These are on LANE_COMPUTE. device_read and device_wait return when all before them is done; the others may return
 * before. What is written to or read from may also lie in the host's memory. */
MUST_CHECK enum error device_write(struct device *d, void *to, const void *from, size_t bytes);
MUST_CHECK enum error device_read(struct device *d, void *to, const void *from, size_t bytes);
MUST_CHECK static inline enum error device_zero(struct device *d, void *p, size_t bytes) {
    return device_runtime(d)->zero(d, LANE_COMPUTE, p, bytes);
}
MUST_CHECK static inline enum error device_add(struct device *d, float *to, const float *from, int64_t n) {
    const float *const terms[] = {to, from};
    return device_runtime(d)->sum(d, LANE_COMPUTE, to, terms, 2, NULL, n);
}
MUST_CHECK static inline enum error device_wait(struct device *d) {
    return device_runtime(d)->wait(d, LANE_COMPUTE);
}
static inline size_t device_unit(const struct device *d, enum precision p) {
    return device_runtime(d)->unit(p);
}
/* The host's view of what lies at p: p itself where the host can read it, else a copy, which is to be freed with
 * memory_free (*copy NULL: there is none). */
MUST_CHECK enum error device_view(struct device *d, const void *p, size_t bytes, const void **view, void **copy);
/* Lets the host write what is to lie at p: here is p itself, or memory that device_unmap copies to p and frees. Where
 * something failed in between (err), it only frees; returns the first error. */
MUST_CHECK enum error device_map(struct device *d, void *p, size_t bytes, void **here);
MUST_CHECK enum error device_unmap(struct device *d, void *p, size_t bytes, void *here, enum error err);
/* Allocators of the device's memory, and of host memory that is copied there. */
struct allocator device_allocator(struct device *d);
struct allocator device_host_allocator(struct device *d);
