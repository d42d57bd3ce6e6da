/* Plug-ins that a configuration names: whose digest or properties it does not say yet, which are opened for them here. One
 * that has been resolved is opened by nobody but who needs it. */
#include "engine/settings/resolve.h"

#include "engine/optim/plugin.h"
#include "engine/settings/compress.h"

/* Opens it as the configuration describes it; what is wrong is an error at the node. *out is NULL then. */
static enum error plugin_settle(struct resolve *r, struct plugged_config *c, enum plugin_kind kind, const char *section,
                                const struct plugin **out) {
    double value[ENGINE_PARAMETERS];
    const char *name = kind == PLUGIN_ALGORITHM ? "algorithm" : kind == PLUGIN_SHARE ? "with" : "file";
    const char *file = pool_printf(r->pool, "%s.%s", section, name);
    const char *key = pool_printf(r->pool, "%s.sha256", section);
    const struct plugin *p;
    *out = NULL;
    if (!file || !key) return ERR_MEMORY;
    if (plugged_open(c, kind, &p, value) != ERR_NONE) {
        config_error(r->e, resolve_find(r, file), false, "%s\n%s", error_message(), error_hint());
        return ERR_NONE;
    }
    *out = p;
    if (c->sha256) return ERR_NONE;
    const struct node digest = {.kind = NODE_SCALAR, .text = p->digest, .source = "auto"};
    c->sha256 = p->digest;
    return tree_put(r->tree, key, &digest, r->pool, r->e);
}

static enum error resolve_own_order(struct resolve *r, const struct plugin *p) {
    struct comm_config *c = &r->c->comm;
    int order = p->of->algorithm->order;
    bool ring = c->order == COMM_ORDER_RING, tree = c->order == COMM_ORDER_TREE;
    resolve_clash(r, (ring && order == ENGINE_TREE) || (tree && order == ENGINE_RING), "comm.order",
                  "plug-in '{comm.algorithm}' ({at comm.algorithm}) does not add in order '{comm.order}'\n"
                  "use comm.order: auto");
    if (c->order != COMM_ORDER_AUTO) return ERR_NONE;
    c->order = order == ENGINE_TREE ? COMM_ORDER_TREE : COMM_ORDER_RING;
    return resolve_decide(r, "comm.order", order == ENGINE_TREE ? "tree" : "ring");
}

/* Whether the value of the key is a plug-in's path, which becomes one that does not hang on the configuration's folder. Where
 * it is none, its digest is an error. */
static enum error resolve_own_path(struct resolve *r, const char *key, const char *digest, const char **file,
                                   bool *own) {
    struct node *at = resolve_find(r, key), *given = resolve_find(r, digest);
    *own = *file && at && plugin_is_path(*file);
    if (*own) TRY(tree_path(at, key, "", r->pool, r->e));
    if (*own) *file = at->text;
    if (!*own && given && resolve_is_given(given))
        config_error(r->e, given, false, "'%s' is the digest of a plug-in, but %s is '%s'\nleave it out", digest, key,
                     *file);
    return ERR_NONE;
}

static enum error resolve_own_algorithm(struct resolve *r) {
    struct comm_config *c = &r->c->comm;
    const struct plugin *p;
    bool own;
    TRY(resolve_own_path(r, "comm.algorithm", "comm.sha256", &c->algorithm, &own));
    if (!own || (c->sha256 && c->order != COMM_ORDER_AUTO)) return ERR_NONE;
    struct plugged_config plugged = {.file = c->algorithm, .sha256 = c->sha256};
    TRY(plugin_settle(r, &plugged, PLUGIN_ALGORITHM, "comm", &p));
    c->sha256 = plugged.sha256;
    r->algorithm = p;
    return p ? resolve_own_order(r, p) : ERR_NONE;
}

/* A share under the keys SECTION.with and SECTION.sha256. */
static enum error resolve_own_share(struct resolve *r, const char *section, const char **with, const char **sha256) {
    const char *key = pool_printf(r->pool, "%s.with", section), *digest = pool_printf(r->pool, "%s.sha256", section);
    const struct plugin *p;
    bool own;
    if (!key || !digest) return ERR_MEMORY;
    TRY(resolve_own_path(r, key, digest, with, &own));
    if (!own || *sha256) return ERR_NONE;
    struct plugged_config plugged = {.file = *with};
    TRY(plugin_settle(r, &plugged, PLUGIN_SHARE, section, &p));
    *sha256 = plugged.sha256;
    return ERR_NONE;
}

enum error resolve_plugins(struct resolve *r) {
    const struct plugin *p;
    struct run_config *c = r->c;
    struct plugged_config *optimizer = optim_plugged(&c->optimizer.kind);
    struct compress_config *compress = c->comm.compress.config;
    TRY(resolve_own_algorithm(r));
    TRY(resolve_own_share(r, "ddp.sync", &c->ddp.sync.with, &c->ddp.sync.sha256));
    TRY(resolve_own_share(r, "ddp.reduce", &c->ddp.reduce.with, &c->ddp.reduce.sha256));
    if (compress && c->comm.compress.index == COMPRESS_plugin && compress->plugged.file && !compress->plugged.sha256)
        TRY(plugin_settle(r, &compress->plugged, PLUGIN_COMPRESSOR, "comm.compress", &p));
    if (optimizer && optimizer->file && !optimizer->sha256)
        TRY(plugin_settle(r, optimizer, PLUGIN_OPTIMIZER, "optimizer", &p));
    return ERR_NONE;
}
