/* The messages of all links about a peer that does not come. */
#pragma once
#include "transport/link/link.h"

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
