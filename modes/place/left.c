#include "modes/place/left.h"

#include "engine/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void left_all(struct left *l, const struct run_config *c) {
    *l = (struct left){.config = c, .count = c->devices.local, .loss.began = c->devices.count};
    for (int i = 0; i < l->count; i++) l->which[i] = i;
}

void left_lose(struct left *l, const struct launch_result *r, int first) {
    struct job_loss *loss = &l->loss;
    int kept = 0, next = 0;
    loss->seen = r->seen;
    loss->nlost = 0;
    for (int i = 0; i < l->count; i++) {
        bool lost = next < r->nlost && r->lost[next] == i;
        if (lost)
            loss->lost[loss->nlost++] = first + r->lost[next++];
        else
            l->which[kept++] = l->which[i];
    }
    l->count = kept;
}

enum error left_devices(const struct left *l, struct pool *pool, const char **out) {
    const struct device_choice *d = &l->config->devices;
    *out = pool_printf(pool, d->listed ? "%s" : "%s:%d", d->kind, l->count);
    for (int i = 0; d->listed && *out && i < l->count; i++)
        *out = pool_printf(pool, "%s%c%d", *out, i ? ',' : ':', d->unit[l->which[i]]);
    return *out ? ERR_NONE : ERR_MEMORY;
}

/* ---- what ranks are told ---- */

/* "4 4 3 8812345678 2": began, from, to, seen, and the ranks that were lost. */
enum error loss_write(const struct job_loss *loss, struct pool *pool, const char **out) {
    *out = loss->to ? pool_printf(pool, "%d %d %d %lld", loss->began, loss->from, loss->to, (long long)loss->seen) : "";
    for (int i = 0; loss->to && *out && i < loss->nlost; i++) *out = pool_printf(pool, "%s %d", *out, loss->lost[i]);
    return *out ? ERR_NONE : ERR_MEMORY;
}

bool loss_read(const char *text, struct job_loss *out) {
    long long seen;
    int at = 0;
    *out = (struct job_loss){.to = 0};
    if (!text || sscanf(text, "%9d %9d %9d %20lld%n", &out->began, &out->from, &out->to, &seen, &at) != 4) return false;
    out->seen = seen;
    for (char *end; text[at] == ' ' && out->nlost < RANKS_MAX; at = (int)(end - text))
        out->lost[out->nlost++] = (int)strtol(text + at, &end, 10);
    return true;
}
