#include "cli/line/cli.h"

#include "engine/model/spec.h"
#include "modes/modes.h"

#include <string.h>

static const struct command_row commands[] = {
#define COMMAND(name, group) {&command_##name, GROUP_##group},
#include "cli/line/commands.def"
#undef COMMAND
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const struct command_alias aliases[] = {
#define ALIAS(old, name, option) {#old, &command_##name, option},
#include "cli/line/commands.def"
#undef ALIAS
};

const struct command_row *command_rows(int *count) {
    *count = COMMANDS;
    return commands;
}

const char *command_name(int i) {
    return i < COMMANDS && commands[i].group != GROUP_HIDDEN ? commands[i].command->name : NULL;
}

const struct command *command_find(const char *name) {
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(commands[i].command->name, name)) return commands[i].command;
    return NULL;
}

const struct command_alias *command_alias(const char *word) {
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(aliases[i].old, word)) return &aliases[i];
    return NULL;
}

const char *cli_zoo_name(int i) {
    int n;
    const struct zoo_model *zoo = zoo_models(&n);
    return i < n ? zoo[i].name : NULL;
}

const char *cli_mode_name(int i) {
    int n;
    const struct mode_row *const *modes = mode_kinds(&n);
    return i < n ? modes[i]->name : NULL;
}

enum error cli_read_shape(const char *value, void *out) {
    return shape_read(value, out) ? ERR_NONE : ERR_USAGE;
}
