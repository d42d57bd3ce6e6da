/* engine lab: the labs of a course, each a question, what to run, and what should come out of it. */
#include "cli/line/cli.h"

#include "engine/base/file.h"
#include "engine/train/stop.h"
#include "lab/lesson/audit.h"
#include "lab/lesson/grade.h"
#include "lab/lesson/run.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

struct lab_options {
    const char *lab, *dir; /* NN; DIR */
    bool quick, json, quiet, python;
    struct option_list hand_ins;
    const char *key;
    double timeout;
    struct pool *pool;
};
#define OPTIONS_STRUCT struct lab_options

/* ---- list, show, copy ---- */

static void lab_put_about(struct json *j, const struct lesson_about *a) {
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("name", a->name), JSON_TEXT("title", a->title), JSON_TEXT("question", a->question),
             JSON_REAL("minutes", a->minutes));
    json_array(j, "hand_in", i, a->hand_in ? a->hand_in->count : 0) json_string(j, NULL, a->hand_in->items[i]->text);
    json_close(j, '}');
}

static enum error lab_list_json(const struct lesson_about *all, int n) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_array(&j, "labs", i, n) lab_put_about(&j, &all[i]);
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
        printf("%-24s %s (%g min%s)\n%24s %s\n", all[i].name, all[i].title, all[i].minutes,
               all[i].hand_in ? "; you write code" : "", "", all[i].question);
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
    TRY(lesson_copy(full, o->dir, o->python, pool, &kept));
    printf("wrote %s; 'engine lab run %s' runs this copy\n", o->dir, o->dir);
    return ERR_NONE;
}

static int lab_copy(const struct cli *cli) {
    return cli_end(lab_copy_files(cli->options, cli->pool));
}

/* Opens a lab ('head': all but its steps and claims) for what is done with it. */
static int lab_open(const struct lab_options *o, const char *folder, bool head,
                    int (*work)(const struct lab_options *o, const struct lesson *l)) {
    struct lesson *l = pool_alloc(o->pool, sizeof *l);
    char *report = NULL;
    if (!l) return cli_fail(ERR_MEMORY);
    enum error err = head ? lesson_open_head(folder, l, &report) : lesson_open(folder, o->quick, l, &report);
    int code = err == ERR_NONE ? work(o, l) : cli_reported(err, report);
    lesson_close(l);
    return code;
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
    TRY(lesson_copy(full, *folder, false, o->pool, &kept));
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
    enum error err = lab_find_folder(o, &folder);
    return err == ERR_NONE ? lab_open(o, folder, false, lab_run_opened) : cli_fail(err);
}

/* ---- grade ---- */

/* Each has a folder of its name. */
static enum error grade_check_names(const struct lab_options *o) {
    size_t n, m;
    for (int i = 0; i < o->hand_ins.count; i++) {
        const char *name = grade_name(o->hand_ins.of[i], &n);
        if (n == 0 || *name == '.')
            return FAIL(ERR_USAGE, "hand-in '%s' has no name of its own\nname its folder: class/anna",
                        o->hand_ins.of[i]);
        for (int k = 0; k < i; k++) {
            const char *other = grade_name(o->hand_ins.of[k], &m);
            if (n == m && !memcmp(name, other, n))
                return FAIL(ERR_USAGE,
                            "two hand-ins are called '%.*s'\ngrade them one after the other, each with its --dir",
                            (int)n, name);
        }
    }
    return ERR_NONE;
}

static enum error grade_all(const struct grader *g, const struct lab_options *o, struct grade *all) {
    TRY(lesson_needs(g->key));
    TRY(file_make_folders(g->dir));
    for (int i = 0; i < o->hand_ins.count; i++) {
        if (!o->quiet && !o->json) fprintf(stderr, "%d of %d: %s\n", i + 1, o->hand_ins.count, o->hand_ins.of[i]);
        TRY(grade_run(g, o->hand_ins.of[i], &all[i]));
    }
    grades_sort(all, o->hand_ins.count);
    return ERR_NONE;
}

static int grade_opened(const struct lab_options *o, const struct lesson *key) {
    const struct grader g = {
        "/proc/self/exe", key,    o->dir ? o->dir : "graded", o->timeout > 0 ? o->timeout : 60 + 4 * 60 * key->minutes,
        o->quick,         o->pool};
    struct grade *all = pool_alloc(o->pool, (size_t)o->hand_ins.count * sizeof *all);
    struct json j = {0};
    bool good = true;
    if (!all) return cli_fail(ERR_MEMORY);
    if (!key->nfiles)
        return cli_fail(FAIL(ERR_CONFIG,
                             "%s/lab.yaml says nothing of 'hand_in'\nname the files to take: hand_in: [ring.c]",
                             key->folder));
    if (file_exists(g.dir) && (!file_is_folder(g.dir) || !lab_is_empty(g.dir)))
        return cli_fail(
            FAIL(ERR_CREATE, "'%s' already exists, and is not an empty folder\nname another with --dir", g.dir));
    stop_install();
    enum error err = grade_all(&g, o, all);
    if (stop_signal()) return stop_exit_code(stop_signal());
    if (err == ERR_NONE && o->json) err = cli_json(grades_json(&g, all, o->hand_ins.count, &j), &j, stdout);
    if (err != ERR_NONE) return cli_fail(err);
    if (!o->json) grades_print(all, o->hand_ins.count, stdout);
    for (int i = 0; i < o->hand_ins.count; i++) good &= !all[i].reason && !all[i].broken;
    return good ? 0 : error_exit_code(ERR_RESULT);
}

static int lab_grade(const struct cli *cli) {
    struct lab_options *o = cli->options;
    o->pool = cli->pool;
    enum error err = grade_check_names(o);
    return err == ERR_NONE ? lab_open(o, o->key, true, grade_opened) : cli_fail(err);
}

/* ---- check ---- */

static enum error check_all(const struct lab_options *o, const struct lesson *key, struct audit *all) {
    struct json j = {0};
    int n = o->hand_ins.count;
    if (key->nfiles)
        return FAIL(ERR_CONFIG, "this lab asks for code, which has to be run\nengine lab grade --key %s ...",
                    key->folder);
    for (int i = 0; i < n; i++) TRY(audit_run(key, o->hand_ins.of[i], &all[i]));
    audits_find_copies(all, n);
    if (o->json) return cli_json(audits_json(all, n, &j), &j, stdout);
    audits_print(all, n, stdout);
    return ERR_NONE;
}

static int check_opened(const struct lab_options *o, const struct lesson *key) {
    struct audit *all = pool_alloc(o->pool, (size_t)o->hand_ins.count * sizeof *all);
    bool good = true;
    enum error err = all ? check_all(o, key, all) : ERR_MEMORY;
    if (err != ERR_NONE) return cli_fail(err);
    for (int i = 0; i < o->hand_ins.count; i++) good &= !all[i].nfindings && all[i].claims == all[i].hold;
    return good ? 0 : error_exit_code(ERR_RESULT);
}

static int lab_check(const struct cli *cli) {
    struct lab_options *o = cli->options;
    o->pool = cli->pool;
    return lab_open(o, o->key, false, check_opened);
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
    {"NN", NULL, NULL, WHICH},
    {"DIR", NULL, NULL, CONFIG_STRING, AT(dir), .missing = "copy where to?"},
    {"--python", NULL, "what you write is in Python, where the lab has that, and else in C", CONFIG_BOOL, AT(python)},
    {0}};
static const struct option grade_options[] = {
    {"HANDIN", NULL, "a folder for each student: class/*", .at = AT(hand_ins), .many = OPTION_LIST,
     .missing = "which hand-ins?"},
    {"--key", "FOLDER", "the lecturer's copy of the lab, whose lab.yaml may have further claims", CONFIG_STRING,
     AT(key), .wants = "a folder", .missing = "--key FOLDER: which lab?"},
    {"--dir", "DIR", "where each is run, in DIR/NAME; 'graded' by default", CONFIG_STRING, AT(dir),
     .wants = "a folder"},
    {"--timeout", "SECONDS", "how long a hand-in may take; by default a minute, and four times the lab's minutes",
     CONFIG_SECONDS, AT(timeout), 1, 86400},
    {"--quick", NULL, "the lab's quick form", CONFIG_BOOL, AT(quick)},
    OPTION_JSON(TEXT),
    {"--quiet", NULL, "no progress", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {0}};
static const struct option check_options[] = {
    {"HANDIN", NULL, "a folder for each student: class/*", .at = AT(hand_ins), .many = OPTION_LIST,
     .missing = "which hand-ins?"},
    {"--key", "FOLDER", "the lecturer's copy of the lab", CONFIG_STRING, AT(key), .wants = "a folder",
     .missing = "--key FOLDER: which lab?"},
    {"--quick", NULL, "the results of the lab's quick form", CONFIG_BOOL, AT(quick)},
    OPTION_JSON(TEXT),
    {0}};
static const struct command forms[] = {
    {"list", "lists the labs: number, name, title, question, and how long each takes", OPTIONS(list_options),
     .run = lab_list},
    {"show", "shows what to run, what to look at, and the questions to answer", OPTIONS(show_options), .run = lab_show},
    {"run",
     "copies the lab's files into labs/NN-name, runs its steps there, and compares the results with the lab's claims",
     OPTIONS(run_options), .run = lab_command},
    {"copy", "copies its files into a new folder, to be changed and run by hand", OPTIONS(copy_options),
     .run = lab_copy},
    {"grade", "runs what a class has handed in against the lecturer's copy of a lab: a line each, the best first",
     OPTIONS(grade_options), .run = lab_grade},
    {"check", "judges the claims by the files of results that were handed in, and names what was changed in them",
     OPTIONS(check_options), .run = lab_check}};

const struct command command_lab = {
    .name = "lab",
    .summary = "runs the labs of a course, and checks their results",
    .notes =
        "Runs go to DIR/runs (quick form: DIR/quick), and the results to claims.json there.\n"
        "Exit codes: 0; 1 a claim does not hold; 64 usage; 65 code that does not compile; 66 no such lab;\n"
        "69 the machine lacks what the lab needs; 78 a bad lab.yaml; the code of a step that failed; 130/143.\n"
        "Of grade: 0 all claims of all hand-ins hold; 1 one does not, or a hand-in could not be run (its line has\n"
        "the reason); 64; 66 no such key; 69; 73 DIR is not empty; 78 the key's lab.yaml is bad; 130/143\n"
        "Of check: 0 all claims of all hand-ins hold, and nothing was changed; 1 if not; 64; 66; 78\n",
    .forms = (const struct command *const[]){forms, forms + 1, forms + 2, forms + 3, forms + 4, forms + 5, NULL},
};
