/* engine lab: the labs of a course, each a question, what to run, and what should come out of it. */
#include "cli/line/cli.h"

#include "engine/base/file.h"
#include "engine/train/stop.h"
#include "lab/lesson/run.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

struct lab_options {
    const char *lab, *dir; /* NN; DIR */
    bool quick, json, quiet;
    struct pool *pool;
};
#define OPTIONS_STRUCT struct lab_options

/* ---- list, show, copy ---- */

static enum error lab_list_json(const struct lesson_about *all, int n) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_open(&j, "labs", '[');
    for (int i = 0; i < n; i++)
        json_object(&j, NULL, JSON_TEXT("name", all[i].name), JSON_TEXT("title", all[i].title),
                    JSON_TEXT("question", all[i].question), JSON_REAL("minutes", all[i].minutes));
    json_close(&j, ']');
    json_close(&j, '}');
    return cli_json(ERR_NONE, &j, stdout);
}

static int lab_list(const struct cli *cli) {
    const struct lab_options *o = cli->options;
    struct lesson_about all[LESSONS_MOST];
    int n;
    enum error err = lesson_list(cli->pool, all, &n);
    if (err == ERR_NONE && o->json) err = lab_list_json(all, n);
    if (err != ERR_NONE || o->json) return cli_end(err);
    for (int i = 0; i < n; i++)
        printf("%-24s %s (%g min)\n%24s %s\n", all[i].name, all[i].title, all[i].minutes, "", all[i].question);
    printf("\n'engine lab show NN' describes a lab, 'engine lab run NN' runs it\n");
    return 0;
}

static int lab_show(const struct cli *cli) {
    const struct lab_options *o = cli->options;
    const char *full;
    enum error err = lesson_find(o->lab, cli->pool, &full);
    if (err == ERR_NONE) fputs(lesson_readme(full), stdout);
    return cli_end(err);
}

static bool lab_is_empty(const char *folder) {
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d) closedir(d);
    return n == 0;
}

static enum error lab_copy_files(const struct lab_options *o, struct pool *pool) {
    const char *full;
    int kept;
    TRY(lesson_find(o->lab, pool, &full));
    if (file_exists(o->dir) && (!file_is_folder(o->dir) || !lab_is_empty(o->dir)))
        return FAIL(ERR_CREATE, "'%s' already exists, and is not an empty folder", o->dir);
    TRY(lesson_copy(full, o->dir, pool, &kept));
    printf("wrote %s; 'engine lab run %s' runs this copy\n", o->dir, o->dir);
    return ERR_NONE;
}

static int lab_copy(const struct cli *cli) {
    return cli_end(lab_copy_files(cli->options, cli->pool));
}

/* ---- run ---- */

/* The folder to work in: one that is named, or a copy of a lab that comes with the program. */
static enum error lab_find_folder(const struct lab_options *o, const char **folder) {
    const char *full;
    int kept;
    char *yaml = pool_printf(o->pool, "%s/lab.yaml", o->lab);
    if (!yaml) return ERR_MEMORY;
    if (strchr(o->lab, '/') || file_exists(yaml)) {
        *folder = o->lab;
        return o->dir ? FAIL(ERR_USAGE, "'%s' is a folder: it is run in place, without --dir", o->lab) : ERR_NONE;
    }
    TRY(lesson_find(o->lab, o->pool, &full));
    *folder = o->dir ? o->dir : pool_printf(o->pool, "labs/%s", full);
    if (!*folder) return ERR_MEMORY;
    TRY(lesson_copy(full, *folder, o->pool, &kept));
    if (kept) fprintf(stderr, "kept %d file%s that you changed in %s\n", kept, kept == 1 ? "" : "s", *folder);
    return ERR_NONE;
}

static enum error result_print(const struct lab_options *o, const struct lesson *l, const struct lesson_result *r) {
    struct json j = {0};
    if (!o->json) return lesson_print(l, r, stdout), ERR_NONE;
    return cli_json(lesson_json(l, r, &j), &j, stdout);
}

static int result_exit_code(const struct lab_options *o, const struct lesson *l, const struct lesson_result *r) {
    if (r->stopped) return stop_exit_code(stop_signal());
    if (r->failed >= 0) {
        int code = r->outcome[r->failed].exit, wanted = l->step[r->failed].exit;
        fprintf(stderr, "engine: step '%s' has ended with exit code %d, not %d\n  %s, in %s\n", l->step[r->failed].name,
                code, wanted, r->command[r->failed], l->folder);
        return code ? code : error_exit_code(ERR_RESULT);
    }
    enum error err = result_print(o, l, r);
    if (err != ERR_NONE) return cli_fail(err);
    return r->broken ? error_exit_code(ERR_RESULT) : 0;
}

static int lab_run_opened(const struct lab_options *o, const struct lesson *l) {
    struct lesson_runner runner = {"/proc/self/exe", o->quiet, o->json};
    struct lesson_result *r = pool_alloc(o->pool, sizeof *r);
    enum error err = r ? lesson_needs(l) : ERR_MEMORY;
    if (err != ERR_NONE) return cli_fail(err);
    if (!o->json)
        printf("%s\n%s\nabout %g min%s; all files go to %s\n", l->title, l->question, l->minutes,
               l->quick ? " in full form, far less in quick form" : "", l->folder);
    stop_install();
    err = lesson_run(&runner, l, r);
    return err == ERR_NONE ? result_exit_code(o, l, r) : cli_fail(err);
}

static int lab_command(const struct cli *cli) {
    struct lab_options *o = cli->options;
    const char *folder;
    o->pool = cli->pool;
    struct lesson *l = pool_alloc(o->pool, sizeof *l);
    char *report = NULL;
    enum error err = l ? lab_find_folder(o, &folder) : ERR_MEMORY;
    if (err != ERR_NONE) return cli_fail(err);
    err = lesson_open(folder, o->quick, l, &report);
    int code = err == ERR_NONE ? lab_run_opened(o, l) : cli_reported(err, report);
    lesson_close(l);
    return code;
}

/* ---- the command ---- */

#define WHICH CONFIG_STRING, AT(lab), .word = lesson_name, .missing = "which lab? 'engine lab list' lists them"
#define TEXT "on standard output instead of the text"
static const struct option list_options[] = {OPTION_JSON(TEXT), {0}}, show_options[] = {{"NN", NULL, NULL, WHICH}, {0}};
static const struct option run_options[] = {
    {"NN|FOLDER", NULL, "a number or a name; a folder with a lab.yaml is run in place", WHICH},
    {"--quick", NULL, "fewer steps and runs: takes seconds, but gives no verdicts", CONFIG_BOOL, AT(quick)},
    {"--dir", "DIR", "instead of labs/NN-name", CONFIG_STRING, AT(dir), .wants = "a folder"},
    OPTION_JSON(TEXT),
    {"--quiet", NULL, "no progress", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {0}};
static const struct option copy_options[] = {
    {"NN", NULL, NULL, WHICH}, {"DIR", NULL, NULL, CONFIG_STRING, AT(dir), .missing = "copy where to?"}, {0}};
static const struct command forms[] = {
    {"list", "lists the labs: number, name, title, question, and how long each takes", OPTIONS(list_options),
     .run = lab_list},
    {"show", "shows what to run, what to look at, and the questions to answer", OPTIONS(show_options), .run = lab_show},
    {"run",
     "copies the lab's files into labs/NN-name, runs its steps there, and compares the results with the lab's claims",
     OPTIONS(run_options), .run = lab_command},
    {"copy", "copies its files into a new folder, to be changed and run by hand", OPTIONS(copy_options),
     .run = lab_copy}};

const struct command command_lab = {
    .name = "lab",
    .summary = "runs the labs of a course, and checks their results",
    .notes = "Runs go to DIR/runs (quick form: DIR/quick), and the results to claims.json there.\n"
             "Exit codes: 0; 1 a claim does not hold; 64 usage; 66 no such lab; 69 the machine\nlacks what the lab "
             "needs; 78 a bad lab.yaml; the code of a step that failed; 130/143\n",
    .forms = (const struct command *const[]){forms, forms + 1, forms + 2, forms + 3, NULL},
};
