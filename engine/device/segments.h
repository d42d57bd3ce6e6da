/* Segments: the shards of a batch that one pass computes together, each of whose sums over samples is its own. The
 * sums of all segments are added as a binary tree whose leaves they are, from left to right:
 *
 *   segment     0     1           2           3
 *   slots      [0]   [0][1]      [0+1][2]    [0+1][2][3]
 *   then              [0+1]                   [0+1][2+3], [0+1+2+3]
 *
 * Each is computed into the slot segment_slot(i), and then slots are added to the one before them, from that one down
 * to the one after segment_bottom(i). The sum of all ends in slot 0. What passes are to a device's shards, shards are
 * to a pass: the same two functions count there. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum { SEGMENTS_MAX = 16, SEGMENT_SLOTS = 5 };
struct segments {
    int count;                       /* a power of two */
    int64_t begin[SEGMENTS_MAX + 1]; /* segment i: samples [begin[i], begin[i + 1]), perhaps none */
};

static inline int64_t segment_size(const struct segments *s, int i) {
    return s->begin[i + 1] - s->begin[i];
}
static inline int segment_slot(int i) {
    return __builtin_popcount((unsigned)i);
}
static inline int segment_bottom(int i) {
    return segment_slot(i) - __builtin_ctz(~(unsigned)i);
}
/* The number of slots in use for this many segments. */
static inline int segment_slots(int count) {
    return segment_slot(count - 1) + 1;
}
/* How many segments side by side, a power of two, hold at most 'most' things whichever they are; at least one. */
static inline int segments_within(const struct segments *s, int64_t each, int64_t most) {
    int count = s->count;
    for (int i = 0; i < s->count && count > 1;) {
        bool fit = (s->begin[i + count] - s->begin[i]) * each <= most;
        i = fit ? i + count : 0;
        if (!fit) count /= 2;
    }
    return count;
}
