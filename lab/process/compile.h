/* Sources of plug-ins, which are built with the compiler of this machine, and the texts from which a plug-in begins. */
#pragma once
#include "engine/base/memory.h"

#include <stdbool.h>

/* The compiler and the options with which it makes a plug-in, up to "-o NAME.so NAME.c -lm". */
#define COMPILE_LINE "cc -O2 -ffp-contract=off -shared -fPIC"
/* Whether a path is that of a source: it ends in ".c". */
bool compile_is_source(const char *path);
/* Builds FILE.so beside FILE.c, with this engine's engine_plugin.h on the include path; what the compiler says goes to
 * standard error. *object lies in the pool. ERR_INPUT: no source; ERR_DEVICE: no compiler; ERR_DATA: it does not
 * compile. */
MUST_CHECK enum error compile_plugin(const char *source, struct pool *pool, const char **object);
/* The text of examples/plugins/ or of engine/plugin.h whose path ends so ("share.c", "plugin.h"); "": there is none. */
const char *compile_text(const char *ending);
