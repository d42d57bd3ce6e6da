/* The current work of a rank, which the rank writes many times a step and others read while it changes. */
#pragma once
#include "transport/link/words.h"
#include <stdatomic.h>

enum { NOTE_WORDS = NOTE_TEXT / 8 };
/* 'version' is odd while the rest changes. All zeros: nothing was noted. */
struct note {
    _Alignas(64) _Atomic uint32_t version;
    _Atomic int64_t time, step;
    _Atomic uint64_t text[NOTE_WORDS];
};
/* One thread at a time; the text is copied. */
void note_write(struct note *n, const char *doing, int64_t step);
struct sighting note_read(const struct note *n);
