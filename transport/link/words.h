/* The messages of all links about a peer that does not come, and what is known of its work: a note, which the rank writes
 * many times a step and others read while it changes. */
#pragma once
#include "transport/link/link.h"
#include <stdatomic.h>

enum { REASON_MAX = 600, NOTE_TEXT = 48, NAME_MAX_BYTES = 96 };

/* The last known work of a peer. */
struct sighting {
    char doing[NOTE_TEXT + 1]; /* "": nothing is known */
    int64_t step;
    double ago; /* seconds */
};
enum late { LATE_JOINING, LATE_ENTERING, LATE_WITHIN };

/* "ranks 2, 5", "ranks 4 to 62": a name for several, in ascending order; as many as fit. */
void words_several(char out[NAME_MAX_BYTES], const int *ranks, int n);
/* "rank 2 (pid 4711) has not entered all_reduce 412 (4.0 MB) within 60 s; last seen in ..." */
void words_late(char out[REASON_MAX], const char *name, enum late how, const char *doing, double seconds,
                const struct sighting *seen);
/* "rank 2 (pid 4711) has died; last seen in ...; rank 0 waits for it in all_reduce 412 (4.0 MB)".
 * seen and doing (what 'rank' waits in) may be NULL. */
void words_lost(char out[REASON_MAX], const char *name, const char *how, const struct sighting *seen, int rank,
                const char *doing);

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
