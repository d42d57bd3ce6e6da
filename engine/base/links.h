/* What all parts of the program know of the links: links.def, as a table. The configuration checks by it what it is
 * asked for; transport has the links themselves. */
#pragma once
#include <stdbool.h>

enum link_joins { JOINS_ANY, JOINS_THREADS, JOINS_PROCESSES, JOINS_HOSTS };
enum comm_link {
    COMM_LINK_AUTO,
#define LINK(KIND, name, joins, launched, about) COMM_LINK_##KIND,
#include "engine/base/links.def"
};
struct link_row {
    const char *name;
    enum link_joins joins;
    bool launched;
};
extern const struct link_row link_rows[]; /* by enum comm_link; auto joins any */
