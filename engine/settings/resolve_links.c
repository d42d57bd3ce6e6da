/* The links that comm.emulate describes: which ranks they join, and whether the entries make sense together. */
#include "engine/settings/resolve.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- one entry ---- */

/* "3", "0-3" */
static bool range_read(const char *text, struct rank_range *out) {
    char word[32];
    const char *dash = strchr(text, '-');
    int64_t first, last;
    snprintf(word, sizeof word, "%.*s", dash ? (int)(dash - text) : (int)strlen(text), text);
    if (!text_int(word, &first) || !text_int(dash ? dash + 1 : word, &last)) return false;
    if (first < 0 || last < first || last >= RUN_DEVICES_MAX) return false;
    *out = (struct rank_range){(int)first, (int)last};
    return true;
}

static enum error ranks_read(struct resolve *r, const struct config_list *list, const struct node *at,
                             struct rank_set *out) {
    const char *const *text = list->items;
    struct rank_range *ranges = pool_alloc(r->pool, (size_t)list->count * sizeof *ranges);
    if (!ranges) return ERR_MEMORY;
    *out = (struct rank_set){list->count, ranges};
    for (int i = 0; i < list->count; i++)
        if (!range_read(text[i], &ranges[i]))
            config_error(r->e, at->kind == NODE_LIST ? at->items[i] : at, false,
                         "'%s' must be a rank or a range of them, got \"%.32s\"\nas in 2, 0-3 or [0-3, 8-11]", at->key,
                         text[i]);
    return ERR_NONE;
}

static void links_check(struct resolve *r, const struct emulated_links *l, const struct node *at) {
    bool says = false;
    for (int k = 0; k < EMULATED_KEYS; k++) says = says || l->value[k] >= 0;
    if (!says)
        config_error(r->e, at, false, "these links differ in nothing\ngive bandwidth, up, latency, jitter or loss");
    if (l->value[EMULATED_UP] >= 0 && l->to.count)
        config_error(r->e, node_get(at, "up"), true,
                     "'up' is a port's, which has no 'to'\ngive bandwidth, or leave out 'to'");
    if (l->one_way && !l->to.count)
        config_error(r->e, node_get(at, "one_way"), true, "'one_way' does nothing without 'to'\ngive that, too");
}

static enum error links_read(struct resolve *r, const struct links_config *from, const struct node *at,
                             struct emulated_links *out) {
    TRY(ranks_read(r, &from->ranks, node_get(at, "ranks"), &out->ranks));
    TRY(ranks_read(r, &from->to, node_get(at, "to"), &out->to));
    out->one_way = from->one_way;
    memcpy(out->value, from->value, sizeof out->value);
    links_check(r, out, at);
    return ERR_NONE;
}

/* ---- all entries ---- */

/* A rank of an elastic run may be started with fewer others than the entries name. */
static void links_check_all(struct resolve *r, const struct node *list) {
    const struct emulation *e = &r->c->comm.emulate.as;
    int ranks = run_all_ranks(r->c), other, wrong = emulation_find_wrong(e, ranks, &other);
    if (wrong < 0 || ranks < 2 || resolve_is_rank(r)) return;
    if (other == LINKS_OF_NOBODY)
        config_error(r->e, list->items[wrong], false, "these links are of a rank that is not there\nranks are 0 to %d",
                     ranks - 1);
    else if (other == LINKS_JOIN_NONE)
        config_error(r->e, list->items[wrong], false, "these links join no two ranks");
    else
        config_error(
            r->e, list->items[wrong], false,
            "all that this says of links is said again by comm.emulate.links[%d], which comes later and counts\n"
            "leave one of them out, or put the narrower one last",
            other);
}

enum error resolve_emulated(struct resolve *r) {
    struct emulate_config *c = &r->c->comm.emulate;
    const struct links_config *given = c->links.items;
    const struct node *list = resolve_find(r, "comm.emulate.links");
    int before = config_errors_count(r->e);
    c->as.seed = (uint64_t)r->c->seed;
    if (!c->links.count) return ERR_NONE;
    struct emulated_links *links = pool_alloc(r->pool, (size_t)c->links.count * sizeof *links);
    if (!links) return ERR_MEMORY;
    for (int i = 0; i < c->links.count; i++) TRY(links_read(r, &given[i], list->items[i], &links[i]));
    c->as.count = c->links.count;
    c->as.links = links;
    if (config_errors_count(r->e) == before) links_check_all(r, list);
    return ERR_NONE;
}
