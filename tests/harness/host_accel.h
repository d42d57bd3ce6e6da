/* An accelerator over the host's memory, in step with its caller: what is made of accel.h can be
 * tested with it where there is neither a GPU nor an emulation of one. */
#pragma once
#include "engine/device/accel.h"
#include "engine/device/impl.h"

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
struct device_mark {
    int set;
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

static inline enum error ha_host_alloc(struct device *d, size_t bytes, void **out) {
    (void)d;
    return memory_alloc(bytes, out);
}

static inline void ha_host_free(struct device *d, void *p) {
    (void)d;
    memory_free(p);
}

static inline enum error ha_move(struct device *d, enum device_lane l, void *to, const void *from,
                                 size_t bytes) {
    (void)d, (void)l;
    memmove(to, from, bytes);
    return ERR_NONE;
}

static inline enum error ha_copy(struct device *d, enum device_lane l, void *to,
                                 struct device *peer, const void *from, size_t bytes) {
    (void)peer;
    return ha_move(d, l, to, from, bytes);
}

static inline enum error ha_mark_create(struct device *d, struct device_mark **out) {
    (void)d;
    *out = calloc(1, sizeof **out);
    return ERR_NONE;
}

static inline void ha_mark_free(struct device_mark *m) {
    free(m);
}

static inline enum error ha_mark(struct device *d, enum device_lane l, struct device_mark *m) {
    (void)d, (void)l, (void)m;
    return ERR_NONE;
}

static inline enum error ha_follow(struct device *d, enum device_lane l,
                                   const struct device_mark *m) {
    (void)d, (void)l, (void)m;
    return ERR_NONE;
}

static inline bool ha_passed(const struct device_mark *m) {
    (void)m;
    return true;
}

static inline enum error ha_give_up(struct device *d, enum device_lane l, double seconds) {
    (void)d, (void)l;
    return FAIL(ERR_TIMEOUT, "the device has not answered for %g s", seconds);
}

static inline enum error ha_wait(struct device *d, enum device_lane l) {
    (void)d, (void)l;
    return ERR_NONE;
}

/* As SUM_TREE and SUM_LINEAR say. */
static inline enum error ha_sum(struct device *d, enum device_lane l, float *to,
                                const float *const *terms, int count, enum sum_order order,
                                int64_t n) {
    (void)d, (void)l;
    for (int64_t i = 0; i < n; i++) {
        float v[SUM_TERMS] = {0};
        for (int t = 0; t < count; t++) v[t] = terms[t][i];
        for (int t = 1; order == SUM_LINEAR && t < count; t++) v[0] += v[t];
        for (int m = count, h; order == SUM_TREE && m > 1; m = h) {
            h = (m + 1) / 2;
            for (int t = 0; t + h < m; t++) v[t] += v[t + h];
        }
        to[i] = v[0];
    }
    return ERR_NONE;
}

static const struct accel_ops host_accel_functions = {
    .alloc = ha_alloc,
    .free = ha_free,
    .holds = ha_holds,
    .host_alloc = ha_host_alloc,
    .host_free = ha_host_free,
    .write = ha_move,
    .read = ha_move,
    .copy = ha_copy,
    .mark_create = ha_mark_create,
    .mark_free = ha_mark_free,
    .mark = ha_mark,
    .follow = ha_follow,
    .passed = ha_passed,
    .wait = ha_wait,
    .give_up = ha_give_up,
    .sum = ha_sum,
};

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
    .accel = &host_accel_functions,
};

static inline enum error ha_open(const struct device_params *p, struct device **out) {
    struct host_accel *a = calloc(1, sizeof *a);
    a->base.ops = &host_accel;
    a->base.params = *p;
    pthread_mutex_init(&a->mutex, NULL);
    *out = &a->base;
    return ERR_NONE;
}
