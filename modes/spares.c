#include "modes/spares.h"

#include "modes/share/share.h"

#include <string.h>

/* Of bucket b what is others': below this rank's part, and above it. */
enum { SIDES = 2 };
struct side {
    float *at;
    size_t bytes;
};
static void bucket_sides(const struct mode *m, float *arena, int b, struct side side[SIDES]) {
    const struct span s = share_bucket(m, arena, b);
    const int64_t *own = s.part + m->t->rank;
    side[0] = (struct side){arena + s.begin, (size_t)(own[0] - s.begin) * sizeof *arena};
    side[1] = (struct side){arena + own[1], (size_t)(s.end - own[1]) * sizeof *arena};
}

void bucket_release(const struct mode *m, float *arena, int b) {
    struct side side[SIDES];
    bucket_sides(m, arena, b, side);
    for (int i = 0; i < SIDES; i++) memory_release(side[i].at, side[i].bytes);
}

enum error bucket_overlay(const struct mode *m, float *arena, int b) {
    struct side side[SIDES];
    bucket_sides(m, arena, b, side);
    for (int i = 0; i < SIDES; i++) TRY(memory_overlay(side[i].at, side[i].bytes));
    return ERR_NONE;
}

static int spare_pull(struct spares *s, int i) {
    int b = s->bucket[i];
    s->count--;
    memmove(s->bucket + i, s->bucket + i + 1, (size_t)(s->count - i) * sizeof *s->bucket);
    return b;
}

/* Gives the pages back of those that have gone the longest, until that many bytes are back. */
static void spares_release(struct spares *s, size_t bytes) {
    struct side side[SIDES];
    for (size_t back = 0; s->count && back < bytes; back += side[0].bytes + side[1].bytes) {
        int b = spare_pull(s, 0);
        bucket_sides(s->m, s->arena, b, side);
        bucket_release(s->m, s->arena, b);
    }
}

void spares_use(struct spares *s, float *arena) {
    if (arena != s->arena) spares_release(s, SIZE_MAX);
    s->arena = arena;
}

void spares_put(struct spares *s, int b) {
    s->bucket[s->count++] = b;
}

enum error spares_take(struct spares *s, int b) {
    struct side to[SIDES], from[SIDES];
    for (int i = 0; i < s->count; i++)
        if (s->bucket[i] == b) return spare_pull(s, i), ERR_NONE;
    bucket_sides(s->m, s->arena, b, to);
    for (int i = 0; i < s->count; i++) {
        bucket_sides(s->m, s->arena, s->bucket[i], from);
        if (from[0].bytes != to[0].bytes || from[1].bytes != to[1].bytes) continue;
        spare_pull(s, i);
        TRY(memory_move(from[0].at, to[0].at, to[0].bytes));
        return memory_move(from[1].at, to[1].at, to[1].bytes);
    }
    spares_release(s, to[0].bytes + to[1].bytes);
    return ERR_NONE;
}
