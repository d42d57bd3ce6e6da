/* The largest gradients alone: of each bucket a share 'ratio', with the numbers of their places, 8
 * bytes each. Every rank sends its own choice to all and adds what comes in the order of the ranks.
 * What was not chosen waits on its rank, is added to the gradients of the next step, and leaves when
 * it has grown large enough.
 *
 * Bytes: (N-1) 8 k sent and received by each rank, k = ratio of the bucket: it grows with N, where
 * an all-reduce does not, so ratio must be well below 1 / N.
 *
 * Magnitudes are compared by the upper 15 bits of theirs (a part in 128); of the last that are alike
 * those that stand first are taken. That finds k in two passes, whatever the numbers are. */
#include "engine/base/half.h"
#include "modes/share/compress.h"

#include <math.h>

enum { CLASSES = 1 << 15 };

static int64_t topk_wanted(const struct engine_packet *p, int64_t n) {
    int64_t k = (int64_t)ceil(p->parameter[COMPRESS_RATIO] * (double)n);
    return k < n ? k : n;
}

/* k places, then their k values. */
static int64_t topk_bytes(const struct engine_packet *p, int64_t n) {
    return topk_wanted(p, n) * (int64_t)(sizeof(uint32_t) + sizeof(float));
}

static uint32_t class_of(float x) {
    return bits_of(x) >> 16 & (CLASSES - 1);
}

/* The class of the k-th largest; *left: how many of that class are to be taken. */
static uint32_t find_class(const float *x, int64_t n, int64_t k, int64_t *left) {
    uint32_t count[CLASSES] = {0};
    for (int64_t i = 0; i < n; i++) count[class_of(x[i])]++;
    uint32_t class = CLASSES - 1;
    for (; k > count[class]; class --) k -= count[class];
    *left = k;
    return class;
}

static void largest_choose(float *x, int64_t n, int64_t k, uint32_t *place, float *value) {
    int64_t left, found = 0;
    uint32_t least = find_class(x, n, k, &left);
    for (int64_t i = 0; i < n; i++) {
        uint32_t class = class_of(x[i]);
        if (class < least || (class == least && left-- <= 0)) continue;
        place[found] = (uint32_t)i;
        value[found++] = x[i];
        x[i] = 0;
    }
}

static void topk_encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    int64_t k = topk_wanted(p, n);
    uint32_t *place = wire;
    largest_choose(x, n, k, place, (float *)(void *)(place + k));
}

static void topk_add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    int64_t k = topk_wanted(p, n);
    const uint32_t *place = wire;
    const float *value = (const float *)(const void *)(place + k);
    for (int64_t i = 0; i < k; i++)
        if (place[i] < n) sum[place[i]] += value[i];
}

static const struct engine_compressor topk_coder = {
    .feedback = 1, .bytes = topk_bytes, .encode = topk_encode, .add = topk_add};
const struct compress_ops compress_topk = COMPRESS_CODED(&topk_coder, true);
