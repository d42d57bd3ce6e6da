/* A ring all-reduce that goes wrong in one way: -DWRONG=..., by the numbers below. Right: 0. */
#include "engine_plugin.h"

#include <stdlib.h>
#include <string.h>

enum {
    RIGHT,
    OFF_BY_ONE,
    WRONG_RANK,
    DEADLOCK,
    PAST_THE_END,
    WRONG_BYTES,
    NOT_IN_PLACE,
    LEAKS,
    VERSION,
    CRASH,
    LOOP,
    OVERLOOKS,
    ODD_COUNTS,
    ORDER,
    LEG_BEYOND
};
void *wrong_leak; /* keeps the compiler from leaving it out */
#ifndef WRONG
#define WRONG RIGHT
#endif

static struct engine_leg chunk(const struct engine_call *c, int peer, int k, int landing) {
    int n = c->size;
    int64_t lo, hi;
    k = (k % n + n) % n;
    lo = engine_chunk(c->count, n, k), hi = engine_chunk(c->count, n, k + 1);
    if (WRONG == ODD_COUNTS) {
        lo = c->count / n * k;
        hi = c->count / n * (k + 1); /* the rest is nobody's */
    }
    if (WRONG == LEG_BEYOND && k == n - 1) hi += 3;
    return engine_leg(c, (peer + n) % n, lo, hi - lo, landing);
}

static int rounds(struct engine_call *c) {
    int r = c->rank, n = c->size, failed = 0;
    for (int s = 0; s < n - 1 && !failed; s++) {
        struct engine_leg out = chunk(c, r + 1, r - s, ENGINE_COPY);
        struct engine_leg in = chunk(c, r - 1, r - s - 1, ENGINE_ADD_LEFT);
        if (WRONG == OFF_BY_ONE && s == n - 2) break;
        if (WRONG == WRONG_RANK) out = chunk(c, r + 2, r - s, ENGINE_COPY);
        if (WRONG == DEADLOCK && (failed = c->exchange(c, NULL, &in))) return failed;
        failed = c->exchange(c, &out, WRONG == DEADLOCK ? NULL : &in);
        if (WRONG == OVERLOOKS) failed = 0;
    }
    for (int s = 0; s < n - 1 && !failed; s++) {
        struct engine_leg out = chunk(c, r + 1, r + 1 - s, ENGINE_COPY), in = chunk(c, r - 1, r - s, ENGINE_COPY);
        failed = c->exchange(c, &out, &in);
        if (WRONG == OVERLOOKS) failed = 0;
    }
    return failed;
}

static int all_reduce(struct engine_call *c) {
    if (WRONG == CRASH) return *(volatile int *)(uintptr_t)(c->rank * 8);
    for (volatile int i = 0; WRONG == LOOP && c->rank == c->size - 1; i = !i) continue;
    if (WRONG == LEAKS) wrong_leak = memset(malloc(1000), 1, 1000);
    if (WRONG == PAST_THE_END) ((volatile char *)c->buf)[c->count * c->bytes] = 1;
    if (WRONG == NOT_IN_PLACE) {
        struct engine_call copy = *c;
        size_t bytes = (size_t)(c->count * c->bytes);
        int failed;
        copy.buf = malloc(bytes);
        memcpy(copy.buf, c->buf, bytes);
        failed = rounds(&copy); /* the sum is in the copy, and stays there */
        free(copy.buf);
        return failed;
    }
    return rounds(c);
}

static int64_t chunk_size(int64_t count, int n, int k) {
    return engine_chunk(count, n, k % n + 1) - engine_chunk(count, n, k % n);
}

static void plan(int32_t rank, int32_t size, int64_t count, struct engine_plan *out) {
    out->sent = 2 * count - chunk_size(count, size, rank + 1) - chunk_size(count, size, rank + 2);
    out->received = 2 * count - chunk_size(count, size, rank) - chunk_size(count, size, rank + 1);
    out->steps = 2 * (size - 1);
    if (WRONG == WRONG_BYTES) out->sent /= 2;
}

static const struct engine_algorithm ring = {WRONG == ORDER ? ENGINE_TREE : ENGINE_RING, all_reduce,
                                             WRONG == OFF_BY_ONE || WRONG == ODD_COUNTS ? NULL : plan};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION + (WRONG == VERSION),
    .about = "a ring with a mistake",
    .algorithm = &ring,
};
