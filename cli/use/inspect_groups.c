/* The groups of this host's programs, from their flight recordings: where their ranks are, or were when they ended. */
#include "cli/dashboard/dashboard.h"
#include "cli/use/inspect.h"

#include "engine/base/json.h"
#include "engine/base/text.h"
#include "transport/flight/flight.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The command line of the first rank that lives; "": none does. */
static void groups_find_program(const struct flight_group *g, char out[160]) {
    *out = '\0';
    for (int i = 0; i < g->n && !*out; i++) {
        char path[40];
        if (g->ranks[i].process != PROCESS_LIVES && g->ranks[i].process != PROCESS_STOPPED) continue;
        snprintf(path, sizeof path, "/proc/%d/cmdline", g->ranks[i].pid);
        FILE *f = fopen(path, "re");
        if (!f) continue;
        size_t n = fread(out, 1, 159, f);
        fclose(f);
        while (n > 0 && !out[n - 1]) n--;
        for (size_t k = 0; k < n; k++) out[k] = out[k] ? out[k] : ' ';
        out[n] = '\0';
        text_defuse(out, "");
    }
}

static void groups_print_title(const struct flight_group *g) {
    char program[160], opened[32] = "";
    int split, color;
    time_t seconds = (time_t)(g->opened / 1000000000);
    struct tm t;
    const char *part = strrchr(g->name, '.');
    printf("group %s", g->name);
    if (*g->ranks->label) printf(", %s", g->ranks->label);
    if (part && sscanf(part, ".%9d-%9d", &split, &color) == 2) printf(", split %d, color %d", split, color);
    if (localtime_r(&seconds, &t)) strftime(opened, sizeof opened, "%Y-%m-%d %H:%M:%S", &t);
    groups_find_program(g, program);
    printf(": opened %s%s%s\n", opened, *program ? ", " : "", program);
}

static enum error print_group(const struct flight_group *g, bool whole, struct pool *pool) {
    char *text;
    TRY(recording_merge(g->ranks, g->n, whole, pool, &text));
    groups_print_title(g);
    printf("%s\n", text);
    return ERR_NONE;
}

static void group_json(const struct flight_group *g, struct json *j) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("name", g->name), JSON_TEXT("label", g->ranks->label), JSON_INT("size", g->ranks->size),
             JSON_BOOL("lives", g->lives));
    json_array(j, "ranks", i, g->n) dashboard_rank(j, &g->ranks[i], !g->lives);
    json_close(j, '}');
}

/* Whether the word is a process in the group, or the name of it or of a group from which it was split. */
static bool group_is_meant(const struct flight_group *g, const char *word) {
    int64_t pid;
    size_t n = strlen(word);
    if (!strncmp(g->name, word, n) && (!g->name[n] || g->name[n] == '.')) return true;
    for (int i = 0; text_int(word, &pid) && i < g->n; i++)
        if (g->ranks[i].pid == pid) return true;
    return false;
}

static bool groups_has_calls(const struct flight_group *g) {
    bool any = false;
    for (int i = 0; i < g->n; i++) any |= g->ranks[i].ncalls > 0;
    return any;
}

/* The index from which on the newest SHOWN groups that have ended lie. */
static int groups_first_ended(const struct flight_group *groups, int n) {
    enum { SHOWN = 3 };
    int i = n, ended = 0;
    while (i > 0 && ended < SHOWN) ended += !groups[--i].lives;
    return i;
}

static enum error groups_show(const struct flight_group *groups, int n, const char *word, struct json *j,
                              struct pool *pool) {
    int shown = 0, idle = 0, older = 0, first = word || j ? 0 : groups_first_ended(groups, n);
    for (int lives = 1; lives >= 0; lives--)
        for (int i = 0; i < n; i++) {
            if (groups[i].lives != lives || (word && !group_is_meant(&groups[i], word))) continue;
            if (!lives && i < first)
                older++;
            else if (j)
                group_json(&groups[i], j);
            else if (!word && !groups_has_calls(&groups[i]))
                idle++;
            else
                TRY(print_group(&groups[i], word != NULL, pool));
            shown++;
        }
    if (word && !shown)
        return FAIL(ERR_INPUT,
                    "no file or folder '%s', and no group or process of a group here is called so\n"
                    "engine inspect without a name lists the groups of this host",
                    word);
    if (older) printf("%d older, which have ended (--json lists them)\n", older);
    if (idle) printf("%d more, in which nothing was called\n", idle);
    if (!shown && !j) printf("no group is recorded on this host\n");
    return ERR_NONE;
}

enum error inspect_groups(const char *word, struct json *j, struct pool *pool) {
    struct flight_group *groups;
    int n;
    TRY(flight_list(pool, &groups, &n));
    if (j) json_open(j, NULL, '{');
    if (j) json_open(j, "groups", '[');
    TRY(groups_show(groups, n, word, j, pool));
    if (j) json_close(j, ']');
    if (j) json_close(j, '}');
    return ERR_NONE;
}
