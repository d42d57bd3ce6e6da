/* The words of a command line, taken from the table of commands and its help: for the manual and
 * for completion. */
#pragma once
#include "cli/cli.h"

enum { WORDS_MOST = 64, WORD_TEXT = 48 };
struct command_words {
    int nparts, noptions;
    char part[WORDS_MOST][WORD_TEXT]; /* "list", "show": what may stand right behind the command */
    char option[WORDS_MOST][WORD_TEXT]; /* "--json", "-n": each once */
};
void command_words(const struct command *c, struct command_words *out);

/* One piece of a command's help. */
enum help_kind { HELP_END, HELP_TEXT, HELP_ITEM, HELP_BREAK };
struct help_piece {
    enum help_kind kind;
    const char *name; /* ITEM: what stands on the left: "--set KEY=VALUE" */
    size_t nname;
    const char *text; /* the rest of the line, or the line */
    size_t ntext;
    bool more; /* TEXT: goes on with the item before it */
};
/* Takes the next line off *help: items begin with two spaces, what belongs to one with more. */
struct help_piece help_next(const char **help);
