/* What the keys of a run mean together. Devices, shards, threads, order and link are decided in
 * that order, each from those before it, and written into the tree as "auto", so that the resolved
 * configuration runs anywhere as it did here. */
#include "engine/settings/run_resolve.h"
#include "engine/base/leaves.h"
#include "engine/base/plugin.h"
#include "engine/device/runtime.h"
#include "engine/model/spec.h"
#include "engine/optim/schedule.h"
#include "engine/settings/metric.h"
#include "engine/settings/mode.h"
#include "engine/settings/resolve.h"

#include "engine/base/text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tree ---- */

struct node *resolve_find(const struct resolve *r, const char *path) {
    char word[64];
    struct node *node = r->tree;
    while (node && *path) {
        size_t n = strcspn(path, ".");
        snprintf(word, sizeof word, "%.*s", (int)n, path);
        node = node_get(node, word);
        path += n + (path[n] == '.');
    }
    return node;
}

bool resolve_is_given(const struct node *node) {
    return node && node->source && strcmp(node->source, "default") != 0 && strcmp(node->source, "auto") != 0;
}

bool resolve_is_set(const struct node *node) {
    return node && node->source && !strncmp(node->source, "--set ", 6);
}

const char *resolve_place(const struct resolve *r, const struct node *node) {
    if (node && node->line > 0) {
        const char *text = pool_printf(r->pool, "set at %d:%d", node->line, node->col);
        return text ? text : "set";
    }
    if (resolve_is_set(node)) return "set by --set";
    return node && node->source && !strcmp(node->source, "auto") ? "chosen for this host" : "by default";
}

void resolve_needs(struct resolve *r, const char *path, const char *other) {
    const struct node *node = resolve_find(r, path);
    if (!resolve_is_given(node) || resolve_is_given(resolve_find(r, other))) return;
    config_error(r->e, node, true, "'%s' does nothing without '%s'\ngive that, too", path, other);
}

enum error resolve_decide(struct resolve *r, const char *path, const char *text) {
    struct node *node = resolve_find(r, path);
    if (!text) return ERR_MEMORY;
    if (node && node->kind == NODE_SCALAR) {
        node->text = text;
        node->quoted = false;
        node->source = "auto";
        node->line = node->col = 0;
    }
    return ERR_NONE;
}

static enum error decide_int(struct resolve *r, const char *path, int64_t value) {
    return resolve_decide(r, path, pool_printf(r->pool, "%lld", (long long)value));
}

/* ---- names ---- */

void resolve_check_name(struct resolve *r, const char *path, const char *const *names, const char *word,
                        const char *near) {
    const struct node *node = resolve_find(r, path);
    if (!node || node->kind != NODE_SCALAR || (word && !strcmp(node->text, word))) return;
    int n = 0;
    const char *all = word ? word : "";
    for (; names[n] && all; n++) {
        if (!strcmp(names[n], node->text)) return;
        if (!word || strcmp(names[n], word) != 0) all = pool_printf(r->pool, "%s%s%s", all, *all ? ", " : "", names[n]);
    }
    if (!near) near = text_nearest(node->text, names, n);
    config_error(r->e, node, false, "'%s' must be one of %s, got \"%.48s\"%s%s%s", path, all ? all : "?", node->text,
                 near ? "\ndid you mean '" : "", near ? near : "", near ? "'?" : "");
}

static void check_run_name(struct resolve *r) {
    const char *name = r->c->name;
    if (!name) return;
    bool good = *name && *name != '.' && strlen(name) <= RUN_NAME_MAX;
    for (size_t n; *name && good; name += n) good = (n = run_name_character(name)) > 0;
    if (!good)
        config_error(r->e, resolve_find(r, "name"), false,
                     "'name' must be of letters, digits, '-', '_' and '.', at most %d, as it names a folder",
                     RUN_NAME_MAX);
}

static void check_log_dir(struct resolve *r) {
    const char *dir = r->c->log.dir;
    if (!dir) return;
    if (!*dir) config_error(r->e, resolve_find(r, "log.dir"), false, "'log.dir' is empty");
    for (const char *c = dir; (c = strchr(c, '$')); c++)
        if (strncmp(c, "$name", 5) != 0 && strncmp(c, "$time", 5) != 0) {
            config_error(r->e, resolve_find(r, "log.dir"), false,
                         "'log.dir' knows no '%.16s'\nthere are $name and $time", c);
            return;
        }
}

bool run_is_address(const char *text) {
    const char *colon = strrchr(text, ':');
    int64_t port;
    size_t host = colon ? (size_t)(colon - text) : 1;
    bool bare_v6 = colon && *text != '[' && memchr(text, ':', host);
    return host > 0 && host < 250 && !bare_v6 && text_int(colon ? colon + 1 : text, &port) && port >= 0 && port < 65536;
}

static void check_dashboard(struct resolve *r) {
    const char *text = r->c->log.dashboard;
    if (!text || !strcmp(text, "off") || run_is_address(text)) return;
    config_error(r->e, resolve_find(r, "log.dashboard"), false,
                 "'log.dashboard' is not an address: '%.40s'\nwrite off, a port such as 8080, or an address such as "
                 "127.0.0.1:8080 or [::1]:8080",
                 text);
}

/* ---- devices ---- */

/* after: ":4", or "". */
static void devices_refuse_kind(struct resolve *r, const struct node *node, const char *kind, const char *after) {
    const char *names[32], *all = "";
    int count, n = 0;
    const struct device_ops *const *kinds = device_kinds(&count);
    for (; n < count && n < 32 && all; n++) {
        names[n] = kinds[n]->name;
        all = pool_printf(r->pool, "%s%s%s", all, n ? ", " : "", names[n]);
    }
    const char *near = text_nearest(kind, names, n);
    int64_t number;
    for (int i = 0; i < n; i++)
        if (kinds[i]->units && (!strcasecmp(kind, "gpu") || !strcasecmp(kind, "gpus"))) near = names[i], after = "";
    if (text_int(kind, &number)) near = "cpu", after = pool_printf(r->pool, ":%.16s", kind);
    if (near && after) near = pool_printf(r->pool, "%s%.16s", near, after);
    config_error(r->e, node, false, "unknown device kind '%.48s' (there are %s)%s%s%s", kind, all ? all : "?",
                 near ? "\ndid you mean '" : "", near ? near : "", near ? "'?" : "");
}

/* "0,2": which units of an accelerator. */
static void devices_read_units(struct resolve *r, const struct node *node, const char *list) {
    struct device_choice *d = &r->c->devices;
    d->unit = pool_alloc(r->pool, (strlen(list) / 2 + 1) * sizeof *d->unit);
    for (const char *p = list; d->unit && d->listed < RUN_DEVICES_MAX; p++) {
        char *end;
        long unit = strtol(p, &end, 10);
        if (end == p || !isdigit((unsigned char)*p) || (*end && *end != ',') || unit > 1023) break;
        d->unit[d->listed++] = (int)unit;
        p = end;
        if (*p == '\0') {
            d->count = d->listed;
            return;
        }
    }
    config_error(r->e, node, false, "'devices' must be %s, or %s: and which of them, got \"%.48s\"\nas in %s:0,2",
                 d->kind, d->kind, r->c->devices_text, d->kind);
}

/* "4": the number of devices of a kind that is not limited by the machine. */
static void devices_read_count(struct resolve *r, const struct node *node, const char *text) {
    struct device_choice *d = &r->c->devices;
    int64_t count = 0;
    if (text_int(text, &count) && count >= 1 && count <= RUN_DEVICES_MAX)
        d->count = (int)count;
    else
        config_error(r->e, node, false,
                     "'devices' must be auto, or a kind and a number from 1 to %d, got \"%.48s\"\nas in %s:4",
                     RUN_DEVICES_MAX, r->c->devices_text, d->kind);
}

/* The first accelerator that this machine has, else processors. */
static const char *automatic_kind(void) {
    int n, units;
    const struct device_ops *const *kinds = device_kinds(&n);
    for (int i = 0; i < n; i++)
        if (kinds[i]->units && kinds[i]->units(&units) == ERR_NONE) return kinds[i]->name;
    return "cpu";
}

/* auto | KIND | KIND:N | KIND:LIST; count stays 0 where it is for us to choose. */
static enum error read_devices(struct resolve *r) {
    const char *text = r->c->devices_text;
    const struct node *node = resolve_find(r, "devices");
    struct device_choice *d = &r->c->devices;
    if (!text) return ERR_NONE;
    if (!strcmp(text, "auto")) text = automatic_kind();
    size_t n = strcspn(text, ":");
    char *kind = pool_strndup(r->pool, text, n);
    if (!kind) return ERR_MEMORY;
    const struct device_ops *ops = device_find(kind);
    if (!ops) {
        devices_refuse_kind(r, node, kind, text + n);
        return ERR_NONE;
    }
    *d = (struct device_choice){.kind = ops->name};
    if (text[n] && ops->units)
        devices_read_units(r, node, text + n + 1);
    else if (text[n])
        devices_read_count(r, node, text + n + 1);
    d->automatic = d->count == 0;
    return ERR_NONE;
}

/* The number of shards by default: SHARDS, fewer of a small batch, more for more devices. A shard is no smaller than
 * batchnorm can bear, whose moments are a shard's. */
enum { SHARDS = 8, BATCHNORM_SAMPLES = 16 };

static int64_t next_power_of_two(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

/* As many as there are cores, fewer where that would not fit the batch. */
static int64_t devices_choose_count(const struct resolve *r) {
    const struct batch_config *b = &r->c->batch;
    if (r->c->sharing.place == PLACE_ALONE) return 1;
    int64_t nodes = r->c->run.nodes - resolve_own_nodes(r), most = b->size / b->accumulate / nodes;
    int64_t n = device_host_cores(), possible = resolve_devices_most(r) / nodes;
    if (n > possible) n = possible;
    if (b->shards) most = b->shards / nodes;
    if (n > most && !r->c->asks) n = most;
    while (n > 1 && !b->shards && next_power_of_two(n * nodes) > b->size / b->accumulate) n--;
    return n > 1 ? n : 1;
}

/* Launchers may show each process a unit of its own, which is then the first and only one to it. */
static bool devices_see_own_unit(const struct device_choice *d) {
    const struct device_ops *ops = device_find(d->kind);
    int units = 0;
    return d->listed == 1 && ops->units && ops->units(&units) == ERR_NONE && units == 1;
}

/* Each process that a launcher has started is one device. */
static enum error devices_count_launched(struct resolve *r) {
    const struct run_launched *l = &r->c->launched;
    struct device_choice *d = &r->c->devices;
    int here = l->locals > 0 ? l->locals : 1;
    if (d->count && d->count != here && d->count != l->size && !devices_see_own_unit(d))
        config_error(r->e, resolve_find(r, "devices"), false,
                     "%d devices, but %s has started %d process%s, %d of them here\nleave 'devices' to it: %s",
                     d->count, l->by, l->size, l->size == 1 ? "" : "es", here, d->kind);
    d->local = here;
    d->count = l->size - r->c->sharing.servers;
    if (d->count < 1)
        config_error(r->e, resolve_find(r, "mode"), false,
                     "%d of %d processes that %s has started would be servers, and none is left to compute\n"
                     "start more, or use ps.place: workers",
                     r->c->sharing.servers, l->size, l->by);
    bool units = device_find(d->kind)->units; /* of which cuda:2 would be the third */
    r->c->devices_text = units ? pool_printf(r->pool, "%s (%d device%s)", d->kind, d->count, d->count == 1 ? "" : "s")
                               : pool_printf(r->pool, "%s:%d", d->kind, d->count);
    return r->c->devices_text ? ERR_NONE : ERR_MEMORY;
}

/* "cuda:0,1": the units that were chosen. */
static const char *units_text(struct resolve *r) {
    const struct device_choice *d = &r->c->devices;
    const char *text = d->kind;
    for (int i = 0; i < d->local && text; i++) text = pool_printf(r->pool, "%s%c%d", text, i ? ',' : ':', i);
    return text;
}

/* All units of an accelerator. */
static enum error devices_choose_units(struct resolve *r, const struct device_ops *ops) {
    struct device_choice *d = &r->c->devices;
    int here, count = 1;
    TRY(ops->units(&here));
    if (r->c->sharing.place != PLACE_ALONE) count = here < RUN_DEVICES_MAX ? here : RUN_DEVICES_MAX;
    d->local = count;
    return ERR_NONE;
}

static enum error resolve_devices(struct resolve *r) {
    struct device_choice *d = &r->c->devices;
    const struct device_ops *ops = device_find(d->kind);
    TRY(resolve_single(r));
    if (r->c->launched.by && r->c->sharing.place == PLACE_PROCESSES) return devices_count_launched(r);
    if (resolve_is_rank(r)) {
        d->local = r->c->launched.locals - r->c->sharing.servers_here;
        d->count = r->c->launched.size - r->c->sharing.servers;
        return ERR_NONE;
    }
    bool given = d->count > 0;
    if (given)
        d->local = d->count;
    else if (ops->units)
        TRY(devices_choose_units(r, ops));
    else
        d->local = (int)devices_choose_count(r);
    d->count = d->local * (int)(r->c->run.nodes - resolve_own_nodes(r));
    if (r->c->run.node_rank < resolve_own_nodes(r)) d->local = 0;
    resolve_check_count(r);
    if (given) return ERR_NONE;
    r->c->devices_text = ops->units ? units_text(r) : pool_printf(r->pool, "%s:%d", d->kind, d->local);
    return resolve_decide(r, "devices", r->c->devices_text);
}

/* ---- the batch ---- */

/* "4 or 8" */
static const char *shards_near(const struct resolve *r, int64_t shards) {
    int64_t above = next_power_of_two(shards);
    if (above > RUN_SHARDS_MAX) return pool_printf(r->pool, "%d", RUN_SHARDS_MAX);
    return pool_printf(r->pool, "%lld or %lld", (long long)above / 2, (long long)above);
}

static void check_shards(struct resolve *r) {
    const struct batch_config *b = &r->c->batch;
    const struct node *at = resolve_find(r, "batch.shards"), *devices = resolve_find(r, "devices");
    long long shards = b->shards;
    int n = r->c->devices.count;
    if (!is_power_of_two(shards)) {
        const char *near = shards_near(r, shards);
        config_error(r->e, at, false, "%lld shards are not a power of two\nset batch.shards to %s", shards,
                     near ? near : "another number");
    } else if (shards < n && !r->c->asks) {
        config_error(r->e, at, false, "%lld shards are not enough for %d devices (%s)\nset batch.shards to %lld",
                     shards, n, resolve_place(r, devices), (long long)next_power_of_two(n));
    } else if (shards > b->size) {
        const struct node *size = resolve_find(r, "batch.size");
        bool from_devices = !resolve_is_given(at);
        config_error(r->e, from_devices ? size : at, false, "a batch of %lld cannot be cut into %lld shards (%s %s)",
                     (long long)b->size, shards, from_devices ? "devices" : "batch.size",
                     resolve_place(r, from_devices ? devices : size));
    } else if (b->accumulate > b->size / shards) {
        config_error(r->e, resolve_find(r, "batch.accumulate"), false,
                     "%lld pieces of a shard that has %lld samples (batch.size %lld, %s)\nset "
                     "batch.accumulate to %lld or less",
                     (long long)b->accumulate, (long long)(b->size / shards), (long long)b->size,
                     resolve_place(r, resolve_find(r, "batch.size")), (long long)(b->size / shards));
    }
}

/* A GPU computes its shards one by one, each slower than in a larger one; without bitwise its sums are not those of any
 * number of devices anyway. */
static bool shards_go_one_by_one(const struct resolve *r) {
    const struct device_ops *ops = device_find(r->c->devices.kind);
    return ops && ops->runtime->asynchronous && r->c->deterministic != DETERMINISTIC_BITWISE &&
           is_power_of_two(r->c->devices.count);
}

static enum error shards_choose(struct resolve *r) {
    struct batch_config *b = &r->c->batch;
    int64_t least = next_power_of_two(r->c->devices.count);
    bool batchnorm = false;
    b->shards = SHARDS;
    if (!r->c->sync_batchnorm) TRY(spec_has_moments(r->c->model, r->pool, &batchnorm));
    while (b->shards > 1 && b->size / b->shards < (batchnorm ? BATCHNORM_SAMPLES : 1)) b->shards /= 2;
    while (b->shards > 1 && b->accumulate > b->size / b->shards) b->shards /= 2;
    b->shards_why = b->shards == SHARDS ? "" : batchnorm ? ", for batchnorm's sake" : ", as many as it can be cut in";
    if (b->shards < least) b->shards = least, b->shards_why = ", so that each device has one";
    if (b->shards > least && shards_go_one_by_one(r))
        b->shards = least, b->shards_why = ", one a device: a GPU takes them one by one";
    return decide_int(r, "batch.shards", b->shards);
}

static enum error resolve_batch(struct resolve *r) {
    r->c->batch.shards_why = "";
    if (!r->c->batch.shards) TRY(shards_choose(r));
    check_shards(r);
    return ERR_NONE;
}

/* ---- threads, order, link ---- */

static enum error resolve_threads(struct resolve *r) {
    if (r->c->threads) return ERR_NONE;
    int each = device_host_cores() / (r->c->devices.local ? r->c->devices.local : 1);
    r->c->threads = each < 1 ? 1 : each > 1024 ? 1024 : each;
    return decide_int(r, "threads", r->c->threads);
}

static enum error resolve_order(struct resolve *r) {
    struct comm_config *c = &r->c->comm;
    bool ring = c->algorithm && !strcmp(c->algorithm, "ring");
    resolve_clash(r, ring && c->order == COMM_ORDER_TREE, "comm.order",
                  "algorithm 'ring' ({at comm.algorithm}) cannot add in order 'tree'\nuse another algorithm");
    if (c->order == COMM_ORDER_AUTO) {
        c->order = ring ? COMM_ORDER_RING : COMM_ORDER_TREE;
        TRY(resolve_decide(r, "comm.order", ring ? "ring" : "tree"));
    }
    resolve_clash(r, c->order == COMM_ORDER_RING && r->c->deterministic == DETERMINISTIC_BITWISE,
                  "comm.order|comm.algorithm",
                  "order 'ring' depends on the number of devices, but deterministic is 'bitwise' ({at deterministic})\n"
                  "use order tree");
    return ERR_NONE;
}

/* ---- what needs evaluation ---- */

static void check_metrics(struct resolve *r) {
    const struct run_config *c = r->c;
    const struct node *every = resolve_find(r, "eval.every");
    bool off = span_steps(c->eval.every, 1) < 0, keeps_best = strcmp(c->checkpoint.best, "off") != 0;
    resolve_clash(r, keeps_best && off, "checkpoint.best",
                  "'checkpoint.best' needs validation, but 'eval' makes none before the end ({at eval.every})");
    resolve_clash(r, keeps_best && c->checkpoint.every.unit == SPAN_OFF, "checkpoint.best",
                  "'checkpoint.best' needs checkpoints, but 'checkpoint.every' is off ({at checkpoint.every})");
    if (c->train.patience_metric && off)
        config_error(r->e, c->train.patience, true,
                     "'train.patience' needs validation, but 'eval' makes none before the end (%s)",
                     resolve_place(r, every));
    if (c->train.until_metric && !strncmp(c->train.until_metric, "val.", 4) && off)
        config_error(r->e, c->train.until->items[0], true,
                     "'train.until' needs validation, but 'eval' makes none before the end (%s)",
                     resolve_place(r, every));
}

/* names: of algorithms. */
static enum error check_algorithm(struct resolve *r, const char *const *names) {
    int n = 0;
    if (!r->c->comm.algorithm || plugin_is_path(r->c->comm.algorithm)) return ERR_NONE;
    while (names[n]) n++;
    const char **all = pool_alloc(r->pool, (size_t)(n + 2) * sizeof *all);
    if (!all) return ERR_MEMORY;
    memcpy(all, names, (size_t)n * sizeof *all);
    all[n] = TUNE_WORD;
    resolve_check_name(r, "comm.algorithm", all, "auto", NULL);
    return ERR_NONE;
}

enum error run_resolve(struct run_settings *s, const struct run_ask *ask, struct config_errors *e) {
    struct resolve r = {&s->config, s->tree, s->pool, e};
    s->mode = resolve_mode(&r, ask->modes);
    TRY(resolve_plugins(&r));
    TRY(check_algorithm(&r, ask->algorithms));
    check_run_name(&r);
    check_log_dir(&r);
    check_dashboard(&r);
    resolve_trace(&r);
    TRY(resolve_end(&r));
    TRY(read_devices(&r));
    if (config_errors_count(e)) return ERR_NONE; /* what follows would judge by values that are wrong */
    TRY(resolve_sharing(&r, s->mode));
    TRY(resolve_processes(&r));
    if (config_errors_count(e)) return ERR_NONE;
    TRY(resolve_devices(&r));
    resolve_elastic(&r);
    TRY(resolve_batch(&r));
    TRY(resolve_threads(&r));
    TRY(resolve_order(&r));
    resolve_algorithm(&r);
    TRY(resolve_link(&r));
    TRY(resolve_emulated(&r));
    TRY(resolve_buckets(&r));
    TRY(resolve_numbers(&r));
    s->mode->check(&r);
    resolve_backend(&r);
    resolve_inject(&r);
    check_metrics(&r);
    return ERR_NONE;
}
