/* The name of a way, and the options that select it. */
#include "lab/advise/advise.h"

#include "engine/base/text.h"
#include "engine/settings/run_config.h"
#include "transport/algo/algo.h"

#include <stdio.h>
#include <string.h>

static bool way_is_named(const struct advise_ask *a, const struct advise_way *w) {
    return way_reduces(&w->way) && w->way.scheme != a->usual;
}

const char *advise_text(const struct advice *a, const struct advise_way *w) {
    char text[160], bytes[32];
    int n = w->mode == advise_alone()
                ? snprintf(text, sizeof text, "one device, no sharing")
                : snprintf(text, sizeof text, "%lld devices, %s", (long long)w->devices, advise_mode(w->mode)->name);
    size_t room = sizeof text;
    if (w->way.of->words) n += snprintf(text + n, room - (size_t)n, ", %s", w->way.of->words);
    if (w->way.count > 1) n += snprintf(text + n, room - (size_t)n, " (%d)", w->way.count);
    if (way_is_named(a->ask, w))
        n += snprintf(text + n, room - (size_t)n, ", %s", way_scheme_name(&w->way, w->way.scheme));
    if (w->bucket)
        n += snprintf(text + n, room - (size_t)n, ", buckets of %s", text_of_bytes((double)w->bucket, bytes));
    if (w->measured) snprintf(text + n, room - (size_t)n, ", %s", a->ask->measured[w->measured].precision);
    return pool_say(a->pool, "%s", text);
}

enum error advise_sets(const struct advise_ask *a, const struct advise_way *w, struct pool *pool,
                       const char *out[ADVISE_SETS], int *n) {
    const struct run_config *c = a->config;
    const struct mode_way *way = w->way.of;
    bool named = way_is_named(a, w);
    const char *algorithm = w->way.own ? w->way.own->name : scheme_name(w->way.scheme);
    *n = 0;
    out[(*n)++] = pool_printf(pool, "mode=%s", advise_mode(w->mode)->name);
    if (way->set && way != advise_mode(w->mode)->way(c)) out[(*n)++] = way->set;
    if (w->way.count) out[(*n)++] = pool_printf(pool, "%s=%d", way->counts, w->way.count);
    for (int m = 0; m < advise_modes(); m++) { /* what the configuration asks of another way */
        const struct mode_way *other = advise_mode(m)->way(c);
        if (other->unset && other != way && *n < 4) out[(*n)++] = other->unset;
    }
    if (way_reduces(&w->way) && (named || strcmp(c->comm.algorithm, "auto") != 0))
        out[(*n)++] = pool_printf(pool, "comm.algorithm=%s", named ? algorithm : "auto");
    if (w->bucket) out[(*n)++] = pool_printf(pool, "ddp.bucket=%lldKB", (long long)w->bucket / 1024);
    if (w->measured) out[(*n)++] = pool_printf(pool, "precision=%s", a->measured[w->measured].precision);
    for (int i = 0; i < *n; i++) TRY_MEMORY(out[i]);
    return ERR_NONE;
}

/* "cpu:4"; of devices that have units, the first ones. */
static const char *way_devices_text(const struct run_config *c, int64_t n, struct pool *pool) {
    if (!device_find(c->devices.kind)->units) return pool_say(pool, "%s:%lld", c->devices.kind, (long long)n);
    const char *text = pool_say(pool, "%s:0", c->devices.kind);
    for (int64_t i = 1; i < n; i++) text = pool_say(pool, "%s,%lld", text, (long long)i);
    return text;
}

const char *advise_words(const struct advice *a, const struct advise_way *w) {
    const struct run_config *c = a->ask->config;
    const char *sets[ADVISE_SETS];
    int64_t computing = advise_computing(a->ask, w);
    int n, leaves = cost_leaves((int)c->batch.shards, (int)computing);
    if (advise_sets(a->ask, w, a->pool, sets, &n) != ERR_NONE) return "";
    const char *text = pool_say(a->pool, "--set %s --devices %s", sets[0], way_devices_text(c, computing, a->pool));
    for (int i = 1; i < n; i++) text = pool_say(a->pool, "%s --set %s", text, sets[i]);
    return leaves > c->batch.shards ? pool_say(a->pool, "%s --set batch.shards=%d", text, leaves) : text;
}
