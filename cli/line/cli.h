/* Commands: one file each, listed in commands.def. A command is its table of options (options.h) and
 * what it does with them. */
#pragma once
#include "cli/line/end.h"
#include "cli/line/options.h"

#define COMMAND(name, group) extern const struct command command_##name;
#include "cli/line/commands.def"
#undef COMMAND
enum command_group { GROUP_TRAIN, GROUP_RESULTS, GROUP_USE, GROUP_COMPARE, GROUP_LEARN, GROUP_SYSTEM, GROUP_HIDDEN };
struct command_row {
    const struct command *command;
    enum command_group group; /* GROUP_HIDDEN: for programs, not for people */
};
const struct command_row *command_rows(int *count);
const struct command *command_find(const char *name);
const char *command_name(int i); /* of those that are not hidden; NULL: there are fewer */

struct command_alias { /* "engine validate" is "engine config --check" */
    const char *old;
    const struct command *command;
    const char *option;
};
const struct command_alias *command_alias(const char *word); /* NULL: it is none */
/* The whole program (cli/main.c), from its words to its exit code. The library exports it for 'engine' of the same build;
 * it is no part of engine/engine.h. */
__attribute__((visibility("default"))) int engine_program(int argc, char **argv);

const char *cli_zoo_name(int i);  /* of networks; NULL: there are fewer */
const char *cli_mode_name(int i); /* likewise, of modes */

/* Reads channels, height and width as in 3x32x32, or a number, into a struct shape. */
enum error cli_read_shape(const char *value, void *out);
