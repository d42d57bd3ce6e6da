/* engine new: a folder with a plug-in that works, to be changed: the example of its kind, under the name that it gets. */
#include "cli/line/end.h"
#include "cli/line/options.h"
#include "engine/base/file.h"
#include "engine/base/plugin.h"
#include "engine/settings/run_resolve.h"
#include "lab/process/compile.h"

#include <stdio.h>
#include <string.h>

struct new_options {
    int kind;
    const char *name;
    bool python;
};
#define OPTIONS_STRUCT struct new_options
static const char *const kinds[] = {"algorithm", "compressor", "optimizer", "share"};

static const char *new_ending(const struct new_options *o) {
    return o->python ? "py" : "c";
}

/* Where a file is named by the kind, it gets the new name; a shared object in Python is the source itself. */
static enum error new_write(const struct new_options *o, const char *text, const char *file) {
    static const char *const endings[] = {"so", "c\n", "c ", "py"};
    char path[PATH_MAX], old[32];
    struct file_text t;
    size_t n = (size_t)snprintf(old, sizeof old, "%s.", kinds[o->kind]);
    TRY(file_text_open(&t));
    for (const char *at = text; *at;) {
        bool named = false;
        for (size_t i = 0; i < sizeof endings / sizeof *endings && !strncmp(at, old, n); i++)
            named |= !strncmp(at + n, endings[i], 2);
        bool object = named && !strncmp(at + n, "so", 2);
        if (named)
            fprintf(t.out, "%s.%s", o->name, object && o->python ? "py" : "");
        else
            fputc(*at, t.out);
        at += named ? n + (object && o->python ? 2 : 0) : 1;
    }
    snprintf(path, sizeof path, "%s/%s", o->name, file);
    return file_text_save(&t, ERR_NONE, path);
}

static enum error new_folder(const struct new_options *o) {
    const char *kind = kinds[o->kind];
    char source[128], race[128], name[128];
    if (file_exists(o->name)) return FAIL(ERR_CREATE, "'%s' exists\ngive another name", o->name);
    TRY(file_make_folders(o->name));
    snprintf(source, sizeof source, "/%s.%s", kind, new_ending(o));
    snprintf(race, sizeof race, "/%s.yaml", kind);
    snprintf(name, sizeof name, "%s.%s", o->name, new_ending(o));
    TRY(new_write(o, compile_text(source), name));
    TRY(new_write(o, compile_text(race), "race.yaml"));
    return o->python ? ERR_NONE : new_write(o, compile_text("/plugin.h"), "engine_plugin.h");
}

static int new_run(const struct cli *cli) {
    const struct new_options *o = cli->options;
    size_t step = 1;
    for (const char *at = o->name; *at && step; at += step) step = run_name_character(at);
    if (!step || !*o->name || *o->name == '.' || *o->name == '-' || strlen(o->name) > RUN_NAME_MAX)
        return cli_usage(cli, "'%s' cannot name a folder and a file: letters, digits, '-', '_' and '.'", o->name);
    if (o->python && o->kind > PLUGIN_COMPRESSOR)
        return cli_usage(cli, "an algorithm or a compressor may be in Python, and %s %s is in C",
                         o->kind == PLUGIN_SHARE ? "a" : "an", kinds[o->kind]);
    enum error err = new_folder(o);
    if (err != ERR_NONE) return cli_end(err);
    const char *ending = new_ending(o);
    printf("%s/%s.%s works as it is. To %scheck and race it:\n", o->name, o->name, ending, o->python ? "" : "build, ");
    printf("  cd %s\n  engine check %s.%s\n  engine compare race.yaml\n", o->name, o->name, ending);
    return 0;
}

static const struct option options[] = {
    {"KIND", NULL, "what it is to be: algorithm, compressor, optimizer or share", CONFIG_ENUM, AT(kind),
     .choices = "algorithm|compressor|optimizer|share", .missing = "algorithm, compressor, optimizer or share?"},
    {"NAME", NULL, "the folder's and the file's name", CONFIG_STRING, AT(name), .missing = "which name?",
     .one = "name"},
    {"--python", NULL, "in Python: an algorithm or a compressor", CONFIG_BOOL, AT(python)},
    {0}};

const struct command command_new = {
    .name = "new",
    .summary = "writes a plug-in of your own that works, to be changed",
    OPTIONS(options),
    .notes = "The folder has the source, in C with the header that it includes, and race.yaml, an experiment that "
             "compares it with the engine's own part.\n",
    .run = new_run,
};
