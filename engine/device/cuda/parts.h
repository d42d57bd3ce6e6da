/* What the files of the device itself (not of its ops) give one another. */
#pragma once
#include "engine/base/give_up.h"
#include "engine/device/cuda/cuda.h"

#include <pthread.h>

/* units.c: what GPUs there are. */
enum error cuda_units(int *count);
bool cuda_unit_about(int i, struct device_unit *out);
bool cuda_unit_reaches(int i, int j);

/* software.c: driver, runtime, libraries. */
bool cuda_software(int i, struct device_software *out);

/* link.c: fills u->link, how the GPU at u->bus reaches others. */
void cuda_link(struct device_unit *u);

/* memory.c */
MUST_CHECK enum error cuda_memory_open(struct cuda *c);
void cuda_memory_close(struct cuda *c); /* frees what was not */
/* Room for so many bytes on both sides; what is there already stays. */
MUST_CHECK enum error cuda_sent_open(struct cuda_sent *s, size_t bytes, const char *what);
MUST_CHECK enum error cuda_send(struct cuda *c, enum device_lane l, const struct cuda_sent *s, size_t bytes,
                                const char *what);
void cuda_sent_close(struct cuda_sent *s);
enum error cuda_alloc(struct device *d, size_t bytes, void **out);
void cuda_free(struct device *d, void *p);
bool cuda_holds(const struct device *d, const void *p);
enum error cuda_host_alloc(struct device *d, size_t bytes, void **out);
void cuda_host_free(struct device *d, void *p);
enum error cuda_write(struct device *d, enum device_lane l, void *to, const void *from, size_t bytes);
enum error cuda_read(struct device *d, enum device_lane l, void *to, const void *from, size_t bytes);
enum error cuda_copy(struct device *d, enum device_lane l, void *to, struct device *peer, const void *from,
                     size_t bytes);
enum error cuda_zero(struct device *d, enum device_lane l, void *p, size_t bytes);

/* lanes.c */
MUST_CHECK enum error cuda_lanes_open(struct cuda *c);
void cuda_lanes_close(struct cuda *c); /* when all of them have passed */
enum error cuda_mark_create(struct device *d, struct device_mark **out);
enum error cuda_timer_create(struct device *d, struct device_mark **out);
int64_t cuda_between(const struct device_mark *from, const struct device_mark *to);
void cuda_mark_free(struct device_mark *m);
enum error cuda_mark(struct device *d, enum device_lane l, struct device_mark *m);
enum error cuda_follow(struct device *d, enum device_lane l, const struct device_mark *m);
bool cuda_passed(const struct device_mark *m);
enum error cuda_wait(struct device *d, enum device_lane l);
enum error cuda_give_up(struct device *d, enum device_lane l, double seconds);
/* The host, until the event (NULL: all of the stream) has passed, as cuda_wait waits. what: for a failure's message. */
MUST_CHECK enum error cuda_await(struct cuda *c, cudaStream_t s, cudaEvent_t e, const char *what);
/* Enters the GPU and waits for all that it was asked for, since freeing would wait without a deadline. false: it
 * hangs, and nothing may be freed. Reports no error: an earlier one is about to be reported. */
bool cuda_may_free(struct cuda *c);
/* cuda.c: the device of this process that has the stream as a lane; NULL: it is gone. With cuda_devices_lock held. */
extern pthread_mutex_t cuda_devices_lock;
struct cuda *cuda_with(cudaStream_t lane, enum device_lane *l);
void cuda_forget_mark(const struct device_mark *m); /* which is about to be freed: no lane has followed it */
void *cuda_lane(struct device *d, enum device_lane l);
enum error cuda_record(struct device *d);
enum error cuda_recorded(struct device *d, struct device_recording **out);
enum error cuda_replay(struct device *d, struct device_recording *r);
void cuda_recording_free(struct device_recording *r);
/* ERR_BUG while a recording is made: what may not stand in one would spoil it, and be reported at its end as something else. */
MUST_CHECK enum error cuda_not_recording(const struct cuda *c, const char *what);

/* vector.c */
enum error cuda_sum(struct device *d, enum device_lane l, float *to, const float *const *terms, int count,
                    const uint8_t *adds, int64_t n);
enum error cuda_lower(struct device *d, enum device_lane l, void *to, const float *from, int64_t n, enum precision p);
enum error cuda_raise(struct device *d, enum device_lane l, float *to, const void *from, int64_t n, enum precision p);
enum error cuda_accumulate(struct device *d, void *to, const void *from, int64_t n, enum precision p);
enum error cuda_partials(struct device *d, const float *g, int64_t begin, int64_t end, double *partial);
enum error cuda_head(struct device *d, float *header, const double *sums, float scale, float samples, bool stop);

/* update.c */
void cuda_tables_close(struct cuda *c);
enum error cuda_measure(struct device *d, const struct rule *r, const struct rule_span *spans, int count,
                        double *squares);
enum error cuda_update(struct device *d, const struct rule *r, const struct rule_span *spans, int count);

static inline struct cuda *cuda_device(const struct device *d) {
    return (struct cuda *)(uintptr_t)d;
}
/* c: the device, which is the calling thread's from here on. */
#define CUDA_ENTERED(c, d)                                                                                             \
    struct cuda *c = cuda_device(d);                                                                                   \
    TRY(cuda_enter(c))
/* Enters the GPU where something is to be destroyed that need not be waited for. false: it hangs, or cannot be used. */
static inline bool cuda_may_enter(const struct cuda *c) {
    int unit = c->base.params.unit;
    if (given_up() || (cuda_current != unit && cudaSetDevice(unit) != cudaSuccess)) return false;
    cuda_current = unit;
    return true;
}
