/* Notes. Stores and loads of the text are ordered, so a reader that sees one version twice has seen one text. */
#include "transport/link/note.h"

#include "engine/base/clock.h"

#include <string.h>

void note_write(struct note *n, const char *doing, int64_t step) {
    uint64_t words[NOTE_WORDS] = {0};
    memcpy(words, doing, strnlen(doing, sizeof words - 1));
    uint32_t version = atomic_load_explicit(&n->version, memory_order_relaxed);
    atomic_store_explicit(&n->version, version + 1, memory_order_relaxed);
    atomic_store_explicit(&n->time, clock_ns(), memory_order_release);
    atomic_store_explicit(&n->step, step, memory_order_release);
    for (int i = 0; i < NOTE_WORDS; i++) atomic_store_explicit(&n->text[i], words[i], memory_order_release);
    atomic_store_explicit(&n->version, version + 2, memory_order_release);
}

/* A writer that is always in the way is given up on, and nothing is known. */
struct sighting note_read(const struct note *n) {
    for (int tries = 0; tries < 1000; tries++) {
        struct sighting s = {0};
        uint64_t words[NOTE_WORDS];
        uint32_t version = atomic_load(&n->version);
        int64_t time = atomic_load(&n->time);
        s.step = atomic_load(&n->step);
        for (int i = 0; i < NOTE_WORDS; i++) words[i] = atomic_load(&n->text[i]);
        if (version % 2 || version != atomic_load(&n->version)) continue;
        if (version == 0) break;
        memcpy(s.doing, words, sizeof words);
        s.ago = clock_seconds(clock_ns() - time);
        return s;
    }
    return (struct sighting){0};
}
