/* Lab 26: of each block of 256 gradients, the 8 largest travel; the others wait. At first nothing does, and
 * 'engine check topk.c' says so.
 *
 * encode takes n floats (256, fewer at the end of a bucket) and writes a struct packet; what it leaves in x is added to the
 * gradients of the next step (error feedback). add adds the values of a packet to a sum. */
#include "engine_plugin.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256, K = 8 };
struct packet { /* 40 bytes for 1024 */
    float value[K];
    uint8_t place[K];
};

static int64_t bytes(const struct engine_packet *p, int64_t n) {
    (void)p, (void)n;
    return sizeof(struct packet);
}

static void encode(const struct engine_packet *p, float *x, int64_t n, void *wire) {
    struct packet *to = wire;
    (void)p, (void)x, (void)n;
    memset(to, 0, sizeof *to); /* a packet of K zeros, at place 0 */
    /* TODO: the K values of x with the largest magnitude and their places. What is sent leaves x: it becomes 0 there. A value
     * that is not finite (isfinite) has to travel, so that a run that diverges ends. */
}

static void add(const struct engine_packet *p, const void *wire, float *sum, int64_t n) {
    (void)p, (void)wire, (void)sum, (void)n;
    /* TODO */
}

static const struct engine_compressor topk = {
    .block = BLOCK, .feedback = 1, .bytes = bytes, .encode = encode, .add = add};

ENGINE_PLUGIN const struct engine_plugin engine_plugin = {
    .version = ENGINE_PLUGIN_VERSION, .about = "my top-k", .compressor = &topk};
