/* The words for peers that do not come. */
#include "transport/link/words.h"

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
