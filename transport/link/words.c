/* The words for peers that do not come, and the notes that these leave. */
#include "transport/link/words.h"

#include "engine/base/clock.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

static void words_last_seen(const struct sighting *s, char out[160]) {
    *out = '\0';
    if (s && *s->doing)
        snprintf(out, 160, "; last seen in %s of step %lld, %.1f s ago", s->doing, (long long)s->step, s->ago);
}

static const char *const several = "ranks ";

void words_several(char out[NAME_MAX_BYTES], const int *ranks, int n) {
    size_t at = (size_t)snprintf(out, NAME_MAX_BYTES, "%s", several);
    text_of_numbers(ranks, n, out + at, NAME_MAX_BYTES - at);
}

void words_late(char out[REASON_MAX], const char *name, enum late how, const char *doing, double seconds,
                const struct sighting *seen) {
    char last[160];
    const char *has = strncmp(name, several, strlen(several)) ? "has" : "have";
    words_last_seen(seen, last);
    if (how == LATE_JOINING)
        snprintf(out, REASON_MAX, "%s %s not joined within %.3g s", name, has, seconds);
    else
        snprintf(out, REASON_MAX, "%s %s not %s %s within %.3g s%s", name, has,
                 how == LATE_ENTERING ? "entered" : "done its part of", doing, seconds, last);
}

void words_lost(char out[REASON_MAX], const char *name, const char *how, const struct sighting *seen, int rank,
                const char *doing) {
    char last[160], waits[DESCRIBED_MAX + 48] = "";
    words_last_seen(seen, last);
    if (doing && *doing) snprintf(waits, sizeof waits, "; rank %d waits for it in %s", rank, doing);
    snprintf(out, REASON_MAX, "%s %s%s%s", name, how, last, waits);
}

/* ---- notes: stores and loads of the text are ordered, so a reader that sees one version twice has seen one text ---- */

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
