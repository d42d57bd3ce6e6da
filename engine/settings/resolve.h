/* The resolution and checks of a configuration: the keys of a run as a tree, and the errors in them. The parts of
 * run_resolve share it, and so do the modes and shares, which check their own keys. */
#pragma once
#include "engine/settings/run_config.h"

struct resolve {
    struct run_config *c;
    struct node *tree;
    struct pool *pool;
    struct config_errors *e;
    const struct plugin *algorithm; /* of comm.algorithm, where it was opened to resolve this */
};

/* The node at "batch.shards", or NULL. */
struct node *resolve_find(const struct resolve *r, const char *path);
bool resolve_is_given(const struct node *node);
bool resolve_is_set(const struct node *node); /* by --set */
/* "set at 3:10", "set by --set", "by default": the second place of an error. */
const char *resolve_place(const struct resolve *r, const struct node *node);
/* A key that was given, and means nothing as long as another is not: that one has to be given, too,
 * if only as what it is by default. */
void resolve_needs(struct resolve *r, const char *path, const char *other);
/* Writes what was decided into the tree, with the source "auto". */
MUST_CHECK enum error resolve_decide(struct resolve *r, const char *path, const char *text);

/* Checks that the value at path is one of the names, or the word (NULL: none). near: what may be meant; NULL: the nearest. */
void resolve_check_name(struct resolve *r, const char *path, const char *const *names, const char *word,
                        const char *near);

/* ---- resolve_sharing.c: which mode it is, and how it shares gradients ---- */
struct mode_row;
const struct mode_row *resolve_mode(struct resolve *r, const struct mode_row *const *modes);
MUST_CHECK enum error resolve_sharing(struct resolve *r, const struct mode_row *mode);
MUST_CHECK enum error resolve_buckets(struct resolve *r);

/* ---- resolve_places.c: who starts the ranks, and what they reach each other by ---- */
MUST_CHECK enum error resolve_processes(struct resolve *r);
MUST_CHECK enum error resolve_single(struct resolve *r); /* that its devices are one */
MUST_CHECK enum error resolve_link(struct resolve *r);
/* ---- resolve_links.c: the links that comm.emulate describes; ranks are known ---- */
MUST_CHECK enum error resolve_emulated(struct resolve *r);
/* Devices of all nodes: as many as a group can hold, a server of its own beside them. */
int resolve_devices_most(const struct resolve *r);
void resolve_check_count(struct resolve *r);
/* Nodes that have no devices, but a server each: the first ones, never all. */
static inline int64_t resolve_own_nodes(const struct resolve *r) {
    int64_t servers = r->c->sharing.servers, most = r->c->run.nodes - 1;
    if (r->c->sharing.hosts != SERVERS_OWN) return 0;
    return servers < most ? servers : most;
}
/* Whether this is the configuration of a rank that 'engine run' has started: checked before, and perhaps of fewer
 * devices than the run began with. */
bool resolve_is_rank(const struct resolve *r);
void resolve_algorithm(struct resolve *r); /* checks that it adds this many shards on this many devices in that order */
void resolve_elastic(struct resolve *r);   /* checks that fewer devices can continue; called once their number is
                                            * known */

/* ---- resolve_clash.c: what does not go together ---- */
/* When it is so, adds an error: a combination that makes no sense. at: the key to blame; of "KEY|KEY" the first that is
 * given. In 'why', "{KEY}" is a key's value and "{at KEY}" where it was set; the hint follows a '\n'. */
void resolve_clash(struct resolve *r, bool when, const char *at, const char *why);
MUST_CHECK enum error resolve_numbers(struct resolve *r); /* precision, and what devices are capable of */
void resolve_backend(struct resolve *r);                  /* what carries what lies on accelerators */
void resolve_inject(struct resolve *r);                   /* what goes wrong on purpose */

/* ---- resolve_end.c: when training ends ---- */
MUST_CHECK enum error resolve_end(struct resolve *r);

/* ---- resolve_trace.c: which steps are traced ---- */
void resolve_trace(struct resolve *r);

/* ---- resolve_plugins.c: what plug-ins say of themselves ---- */
MUST_CHECK enum error resolve_plugins(struct resolve *r);
