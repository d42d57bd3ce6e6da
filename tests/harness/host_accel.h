/* An accelerator over the host's memory, in step with its caller: what is made of runtime.h can be
 * tested with it where there is neither a GPU nor an emulation of one. */
#pragma once
#include "engine/device/impl.h"
#include "engine/device/runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    char *begin, *end;
    struct piece *next;
};
struct host_accel {
    struct device base;
    struct piece *pieces;
    pthread_mutex_t mutex;
};
static inline enum error ha_alloc(struct device *d, size_t bytes, void **out) {
    struct host_accel *a = (struct host_accel *)d;
    struct piece *p = malloc(sizeof *p);
    TRY(memory_alloc(bytes + 256, out));
    *p = (struct piece){*out, (char *)*out + bytes + 1, NULL};
    pthread_mutex_lock(&a->mutex);
    p->next = a->pieces;
    a->pieces = p;
    pthread_mutex_unlock(&a->mutex);
    return ERR_NONE;
}

static inline void ha_free(struct device *d, void *p) {
    struct host_accel *a = (struct host_accel *)d;
    pthread_mutex_lock(&a->mutex);
    for (struct piece **at = &a->pieces; *at; at = &(*at)->next)
        if ((*at)->begin == p) {
            struct piece *gone = *at;
            *at = gone->next;
            free(gone);
            break;
        }
    pthread_mutex_unlock(&a->mutex);
    memory_free(p);
}

static inline bool ha_holds(const struct device *d, const void *p) {
    struct host_accel *a = (struct host_accel *)(uintptr_t)d;
    bool found = false;
    pthread_mutex_lock(&a->mutex);
    for (const struct piece *at = a->pieces; at; at = at->next)
        found = found || ((const char *)p >= at->begin && (const char *)p < at->end);
    pthread_mutex_unlock(&a->mutex);
    return found;
}

static struct device_runtime host_accel_functions; /* the host's, but for memory that is apart */

__attribute__((constructor)) static void ha_fill(void) {
    host_accel_functions = host_runtime;
    host_accel_functions.apart = true;
    host_accel_functions.alloc = ha_alloc;
    host_accel_functions.free = ha_free;
    host_accel_functions.holds = ha_holds;
}

static inline enum error ha_open(const struct device_params *p, struct device **out);

static inline void ha_close(struct device *d) {
    struct host_accel *a = (struct host_accel *)d;
    while (a->pieces) ha_free(d, a->pieces->begin);
    pthread_mutex_destroy(&a->mutex);
    free(a);
}

static const struct device_ops host_accel = {
    .name = "host_accel",
    .summary = "an accelerator over the host's memory",
    .open = ha_open,
    .close = ha_close,
    .runtime = &host_accel_functions,
};

static inline enum error ha_open(const struct device_params *p, struct device **out) {
    struct host_accel *a = calloc(1, sizeof *a);
    a->base.ops = &host_accel;
    a->base.params = *p;
    pthread_mutex_init(&a->mutex, NULL);
    *out = &a->base;
    return ERR_NONE;
}
