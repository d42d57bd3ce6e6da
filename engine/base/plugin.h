/* Plug-ins: shared objects with parts of a user's own (engine/plugin.h), opened once a process and never closed. While
 * one of their functions runs it is a guest: a crash names its file, and so does a stay that takes too long. One in Python
 * (plugin_python.h) has the same functions, which a python3 of its own serves. */
#pragma once
#include "engine/base/digest.h"
#include "engine/plugin.h"

#include <limits.h>
#include <stdbool.h>

enum plugin_kind { PLUGIN_ALGORITHM, PLUGIN_COMPRESSOR, PLUGIN_OPTIMIZER, PLUGIN_SHARE, PLUGIN_ANY };

struct python;
struct plugin {
    char path[PATH_MAX];
    char digest[SHA256_TEXT]; /* of the file, when it was opened */
    const struct engine_plugin *of;
    struct python *python; /* of one in Python; else NULL */
    struct plugin *next;
};

/* Whether a word is a plug-in's file and no name: it has a '/', or ends in ".so" or ".py". */
bool plugin_is_path(const char *text);
/* Opens the file, which runs code of it, and checks what it exports. digest: the one that it must have; NULL: any.
 * ERR_INPUT: there is none or it cannot be read; ERR_CONFIG: it is no plug-in, not this one, or not of the kind. */
MUST_CHECK enum error plugin_open(const char *path, enum plugin_kind kind, const char *digest,
                                  const struct plugin **out);
/* Before its algorithm is called in a group of so many ranks: one in Python makes its plan then, which is checked. */
MUST_CHECK enum error plugin_prepare(const struct plugin *p, int ranks);
/* How many parameters it declares. */
int plugin_parameters(const struct engine_plugin *p);

/* ---- guests (plugin_guest.c) ---- */

/* Before the first call: seconds that a function of a plug-in may take by itself before the process ends, which names
 * it; 0, as at first: any time. */
void plugin_set_patience(double seconds);
/* Around each call of a plug-in's function, on the thread that calls it; doing: "all_reduce", static. The engine's own
 * functions that it calls in turn are host's time: leave before, enter after. */
void plugin_enter(const struct plugin *p, const char *doing);
void plugin_leave(void);
/* Which plug-in this thread is a guest of, and in what (which may be NULL): for functions that serve several. */
const struct plugin *plugin_guest(const char **doing);
/* What plugin_set_patience was given. */
double plugin_patience(void);
/* In a signal's handler, after a crash in a plug-in: what the address is that it touched ("the buffer", past whose end it
 * lies), or NULL. */
void plugin_explain_crash(const char *(*explain)(const void *address));
