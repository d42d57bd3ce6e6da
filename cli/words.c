/* Commands say their arguments and options in words for people, in one form: this reads that form,
 * so that what the manual and completion know is what the help says. */
#include "cli/words.h"

#include <ctype.h>
#include <string.h>

static void add(char list[][WORD_TEXT], int *n, const char *word, size_t length) {
    if (length >= WORD_TEXT || *n == WORDS_MOST) return;
    for (int i = 0; i < *n; i++)
        if (strlen(list[i]) == length && !memcmp(list[i], word, length)) return;
    memcpy(list[*n], word, length);
    list[(*n)++][length] = '\0';
}

static size_t option_length(const char *at) {
    size_t n = strspn(at, "-");
    if (n == 0 || n > 2 || !isalpha((unsigned char)at[n])) return 0;
    if (n == 1) return isalnum((unsigned char)at[2]) ? 0 : 2;
    while (isalnum((unsigned char)at[n]) || at[n] == '-') n++;
    return n;
}

/* What stands in single quotes is somebody else's: 'engine version --features'. */
static void find_options(const char *text, struct command_words *out) {
    bool quoted = false;
    for (const char *p = text; *p; p++) {
        bool word_begins = p == text || strchr(" \n[(|", p[-1]);
        if (*p == '\'' && (quoted || word_begins)) quoted = !quoted;
        size_t n = word_begins && !quoted ? option_length(p) : 0;
        if (n) add(out->option, &out->noptions, p, n), p += n - 1;
    }
}

/* "list | show NAME|CONFIG | ..." : the words in small letters with which alternatives begin. */
static void find_parts(const char *arguments, struct command_words *out) {
    int depth = 0;
    bool begins = true;
    for (const char *p = arguments; *p; p++) {
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyz");
        bool ends = !p[n] || p[n] == ' ';
        if (begins && depth == 0 && n && ends) add(out->part, &out->nparts, p, n);
        depth += (*p == '[') - (*p == ']');
        begins = (*p == ' ' && p > arguments && p[-1] == '|') || (begins && *p == ' ');
    }
}

void command_words(const struct command *c, struct command_words *out) {
    *out = (struct command_words){0};
    find_parts(c->arguments, out);
    find_options(c->arguments, out);
    find_options(c->help, out);
}

/* Where an item's name ends: at two spaces, or at the line's end. */
static size_t name_length(const char *line, size_t n) {
    for (size_t i = 0; i + 1 < n; i++)
        if (line[i] == ' ' && line[i + 1] == ' ') return i;
    return n;
}

struct help_piece help_next(const char **help) {
    const char *line = *help;
    if (!*line) return (struct help_piece){.kind = HELP_END};
    size_t n = strcspn(line, "\n"), indent = strspn(line, " ");
    *help = line + n + (line[n] == '\n');
    if (indent >= n) return (struct help_piece){.kind = HELP_BREAK};
    const char *text = line + indent;
    n -= indent;
    size_t name = name_length(text, n);
    if (indent != 2 || (name == n && *text != '-'))
        return (struct help_piece){.kind = HELP_TEXT, .text = text, .ntext = n, .more = indent > 2};
    size_t gap = strspn(text + name, " ");
    return (struct help_piece){.kind = HELP_ITEM,
                               .name = text,
                               .nname = name,
                               .text = text + name + gap,
                               .ntext = n - name - gap};
}
