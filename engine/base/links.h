/* The links as a table (links.def), for all parts of the program. The configuration checks its values by this table;
 * transport implements the links. */
#pragma once
#include <stdbool.h>

/* What guards the messages of ranks on different hosts. Expressly sealed or encrypted, messages that stay on one host and
 * pass over TCP are so, too. */
enum secure {
    SECURE_AUTO,      /* sealed where the ranks share a secret, else a checksum */
    SECURE_OFF,       /* a checksum */
    SECURE_SEALED,    /* readable, and nobody can change them */
    SECURE_ENCRYPTED, /* not readable either */
    SECURES
};
extern const char *const secure_names[SECURES];

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
