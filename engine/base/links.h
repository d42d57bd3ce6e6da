/* The links as a table (links.def), for all parts of the program. The configuration checks its values by this table;
 * transport implements the links. */
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
