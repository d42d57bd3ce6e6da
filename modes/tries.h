/* What the first steps of a run may try: sizes of buckets, and algorithms. */
#pragma once
#include "modes/bucket.h"
#include "modes/team.h"

struct tries;
struct tries_of {
    struct trainer *t;
    struct group *group; /* open, or NULL */
    const struct group_params *place;
    bool leave; /* gradients do, in buckets as sharing.cut says */
};
/* *out stays NULL where nothing is chosen by time (sharing.tunes). */
MUST_CHECK enum error tries_open(const struct tries_of *of, struct tries **out);
void tries_close(struct tries *t); /* NULL is fine */
void tries_tell(const struct tries *t, struct trials *out);
int tries_most(const struct tries *t, int buckets); /* so many buckets, or the most of any choice */
/* Choice i of the buckets; as long as the tries. */
const struct buckets *tries_cut(const struct tries *t, int i);
