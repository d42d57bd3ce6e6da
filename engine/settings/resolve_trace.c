/* log.trace: a range of steps, counted from 1 as in metrics.jsonl, both ends included. */
#include "engine/settings/resolve.h"

#include "engine/base/text.h"

#include <string.h>

/* "10", "10st" of text[0..n). */
static bool read_step(const char *text, size_t n, int64_t *out) {
    char digits[24];
    if (n > 2 && !strncmp(text + n - 2, "st", 2)) n -= 2;
    if (n >= sizeof digits) return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    return text_int(digits, out) && *out >= 1;
}

static bool read_range(const char *text, int64_t *first, int64_t *last) {
    const char *dots = strstr(text, "..");
    size_t n = strlen(text), head = dots ? (size_t)(dots - text) : n;
    if (!read_step(text, head, first)) return false;
    *last = *first;
    return !dots || (read_step(dots + 2, n - head - 2, last) && *last >= *first);
}

void resolve_trace(struct resolve *r) {
    struct log_config *c = &r->c->log;
    if (!c->trace || !strcmp(c->trace, "off")) return;
    if (read_range(c->trace, &c->trace_first, &c->trace_last)) return;
    config_error(r->e, resolve_find(r, "log.trace"), false,
                 "'log.trace' is not a range of steps: '%.40s'\nwrite off, one step such as 10, or the first and the "
                 "last such as 10..20st, counted from 1",
                 c->trace);
}
