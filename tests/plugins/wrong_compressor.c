/* A compressor of whole buckets (16 bits a value: bf16, cut off) that goes wrong in one way: -DWRONG=... Right: 0. */
#include "engine_plugin.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RIGHT, PAST_THE_END, LOSES, SETS, HIDES, LEAKS, CRASH, LOOP, FEW_BYTES, DRIFTS, NO_ADD };
void *wrong_leak; /* keeps the compiler from leaving it out */
#ifndef WRONG
#define WRONG RIGHT
#endif

static int64_t bytes(const struct engine_packet *p, int64_t n) {
    (void)p;
    return WRONG == FEW_BYTES ? 2 * n - 2 : 2 * n;
}

static void encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    static unsigned calls;
    uint16_t *to = wire;
    (void)p;
    if (WRONG == CRASH) *(volatile float *)8 = x[0];
    for (volatile int i = 0; WRONG == LOOP; i = !i) continue;
    if (WRONG == LEAKS) wrong_leak = memset(malloc(1000), 1, 1000);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        float sent, y = WRONG == HIDES && !isfinite(x[i]) ? 0 : x[i];
        if (WRONG == DRIFTS) y *= 1 + (float)(calls++ % 3) / 8;
        memcpy(&u, &y, sizeof u);
        to[i] = (uint16_t)(u >> 16);
        u = (uint32_t)to[i] << 16;
        memcpy(&sent, &u, sizeof sent);
        x[i] = WRONG == LOSES ? 0 : isfinite(sent) ? x[i] - sent : 0;
    }
    if (WRONG == PAST_THE_END) to[n] = 0;
}

static void add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    const uint16_t *from = wire;
    (void)p;
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)from[i] << 16;
        float x;
        memcpy(&x, &u, sizeof x);
        sum[i] = WRONG == SETS ? x : sum[i] + x;
    }
}

static const struct engine_compressor halves = {
    .feedback = 1, .bytes = bytes, .encode = encode, .add = WRONG == NO_ADD ? NULL : add};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "the upper half of each float", .compressor = &halves};
