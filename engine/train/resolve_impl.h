/* What the parts of run_resolve share: the keys of a run as a tree, and what is wrong with them. */
#pragma once
#include "engine/train/run_config.h"

struct resolve {
    struct run_config *c;
    struct node *tree;
    struct pool *pool;
    struct config_errors *e;
};

/* The node at "batch.shards", or NULL. */
struct node *resolve_find(const struct resolve *r, const char *path);
bool resolve_is_given(const struct node *node);
/* "set at 3:10", "set by --set", "by default": the second place of an error. */
const char *resolve_place(const struct resolve *r, const struct node *node);
/* A key that was given, and means nothing as long as another is not: that one has to be given, too,
 * if only as what it is by default. */
void resolve_needs(struct resolve *r, const char *path, const char *other);
/* Writes what was decided into the tree, with the source "auto". */
MUST_CHECK enum error resolve_decide(struct resolve *r, const char *path, const char *text);
bool resolve_mode_is(const struct resolve *r, const char *mode);

/* ---- resolve_places.c: who starts the ranks, and what they reach each other by ---- */
MUST_CHECK enum error resolve_processes(struct resolve *r);
MUST_CHECK enum error resolve_link(struct resolve *r);
/* Each process that a launcher has started is one device. */
MUST_CHECK enum error resolve_launched_devices(struct resolve *r);

/* ---- resolve_sharing.c: what is exchanged ---- */
MUST_CHECK enum error resolve_sharing(struct resolve *r);

/* ---- resolve_trace.c: which steps are traced ---- */
void resolve_trace(struct resolve *r);

/* ---- resolve_numbers.c: precision, and what devices are capable of ---- */
void resolve_numbers(struct resolve *r);

/* ---- resolve_inject.c: what goes wrong on purpose ---- */
void resolve_inject(struct resolve *r);
