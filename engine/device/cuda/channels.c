/* How channels are cut. Parts are many enough for a large GPU, and each long enough that its sum is worth a block's
 * end. */
#include "engine/device/cuda/image.h"

struct channels_cut channels_cut(int64_t rows, int64_t channels, enum element type) {
    enum { THREADS = 256, PARTS = 512, ROWS = 16 };
    struct channels_cut c = {type, rows, channels, .vector = 16 / (int)element_bytes(type), .wide = 1};
    if (channels % c.vector) c.vector = 1;
    while (c.wide < 32 && (int64_t)c.wide * c.vector < channels) c.wide *= 2;
    c.high = THREADS / c.wide;
    int64_t parts = rows / ((int64_t)c.high * ROWS);
    c.parts = (int)(parts < 1 ? 1 : parts > PARTS ? PARTS : parts);
    c.part = (rows + c.parts - 1) / c.parts;
    return c;
}

int64_t channels_part_floats(const struct channels_cut *c) {
    return 2 * c->channels * c->parts;
}
