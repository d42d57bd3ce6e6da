/* Help, the manual and the shells' completion: that each tells the whole of every command's table,
 * that the programs that read them (where they are here) find nothing wrong, and that bash completes
 * real command lines. */
#include "cli/line/cli.h"
#include "engine/settings/run_config.h"
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>

static struct program p;

static bool is_here(const char *program) {
    program_spawn(&p, (const char *const[]){"sh", "-c", "command -v \"$1\"", "sh", program, NULL});
    program_wait(&p, 10);
    if (p.code) print_message("%s is not here: what it would check is left out\n", program);
    return p.code == 0;
}

/* Of what a page may consist: these macros, and text that begins with no dot. */
static void check_roff(const char *page) {
    static const char *const macros[] = {".TH ", ".SH ",  ".TP\n", ".PP\n",   ".B ",   ".I ",
                                         ".BR ", ".br\n", ".nh\n", ".ad l\n", ".nf\n", ".fi\n"};
    assert_int_equal(strncmp(page, ".TH \"", 5), 0);
    for (const char *line = page; *line; line = strchr(line, '\n') + 1) {
        bool known = *line != '.' && *line != '\'';
        for (size_t i = 0; i < sizeof macros / sizeof *macros; i++)
            known |= !strncmp(line, macros[i], strlen(macros[i]));
        if (!known) fail_msg("roff will not understand: %.60s", line);
        assert_non_null(strchr(line, '\n'));
    }
    assert_non_null(strstr(page, ".SH NAME\n"));
    assert_non_null(strstr(page, ".SH SEE ALSO\n"));
}

/* Without what roff and the breaking of lines have added. */
static void make_plain(char *text) {
    char *to = text;
    for (const char *c = text; *c; c++) {
        if (*c == '\\') c += c[1] == 'f' ? 3 : c[1] == '&' ? 2 : 1;
        bool blank = *c == ' ' || *c == '\n';
        if (blank && to > text && to[-1] == ' ') continue;
        *to++ = blank ? ' ' : *c;
    }
    *to = '\0';
}

static void find(const char *where, const char *text, const char *part, const char *end) {
    const char *at = strstr(text, part);
    while (at && end && !strchr(end, at[strlen(part)])) at = strstr(at + 1, part);
    if (!at) fail_msg("%s: '%s' is missing", where, part);
}

/* p.out is help or a page. */
static void check_tables(const char *where, const struct command *c) {
    char usage[USAGE_TEXT], left[OPTION_TEXT], text[OPTION_TEXT];
    const struct command *form;
    make_plain(p.out);
    find(where, p.out, c->summary + 1, NULL);
    for (int i = 0; (form = command_form(c, i)); i++) {
        find(where, p.out, command_usage(c, form, usage), NULL);
        find(where, p.out, form->summary + 1, NULL);
        for (const struct option *o = form->options; o && o->name; o++) {
            const char *help = option_help(o, text);
            if (help) find(where, p.out, help, NULL);
            if (help) find(where, p.out, option_left(o, left), " ");
            if (!help) assert_true(option_is_word(o)); /* it stands in the usage line */
        }
    }
}

/* What may come after the words, each with a blank after it, in p.out. */
static void offered(const char *word, const char *form, const char *option, const char *begun) {
    const char *args[8] = {ENGINE_BINARY_DIR "/engine", "complete", "--", word};
    int n = 4;
    if (form) args[n++] = form;
    if (option) args[n++] = option;
    args[n++] = begun;
    program_spawn(&p, args);
    assert_true(program_wait(&p, 10));
    assert_int_equal(p.code, 0);
    make_plain(p.out);
}

static void check_completion(const struct command *c) {
    const struct command *form;
    char text[OPTION_TEXT];
    const char *word;
    for (int i = 0; c->forms && (form = command_form(c, i)); i++) {
        offered(c->name, NULL, NULL, "");
        find(c->name, p.out, form->name, " ");
    }
    for (int i = 0; (form = command_form(c, i)); i++) {
        const char *name = form != c ? form->name : NULL;
        offered(c->name, name, NULL, "-");
        find(form->name, p.out, "--help", " ");
        for (const struct option *o = form->options; o && o->name; o++) {
            if (!option_is_word(o)) find(form->name, p.out, o->name, " ");
            if (o->also) find(form->name, p.out, o->also, " ");
        }
        for (const struct option *o = form->options; o && o->name; o++) {
            if (!option_word(o, 0, text)) continue;
            offered(c->name, name, option_is_word(o) ? NULL : o->name, "");
            for (int k = 0; (word = option_word(o, k, text)); k++) find(o->name, p.out, word, " ");
        }
    }
}

static void every_table_is_told_everywhere(void **state) {
    int n, options = 0;
    const struct command_row *all = command_rows(&n);
    (void)state;
    for (int i = 0; i < n; i++) {
        const struct command *c = all[i].command, *form;
        for (int k = 0; (form = command_form(c, k)); k++)
            for (const struct option *o = form->options; o && o->name; o++) options += !option_is_word(o);
        program_run(&p, 10, "help", c->name, NULL);
        assert_int_equal(p.code, 0);
        check_tables("help", c);
        program_run(&p, 10, c->name, "--help", NULL);
        assert_int_equal(p.code, 0);
        check_tables("--help", c);
        program_run(&p, 10, "help", "--man", c->name, NULL);
        assert_int_equal(p.code, 0);
        check_roff(p.out);
        check_tables("manual", c);
        check_completion(c);
    }
    assert_true(options > 120);
    program_run(&p, 10, "help", "--man", NULL);
    check_roff(p.out);
    assert_non_null(strstr(p.out, ".B 78\nbad configuration"));
    program_run(&p, 10, "help", "--man", "nonsense", NULL);
    assert_int_equal(p.code, 64);
}

/* The list has every command once, below its group's title, and no word of earlier versions. */
static void commands_stand_in_groups(void **state) {
    int n;
    const struct command_row *all = command_rows(&n);
    char line[64];
    (void)state;
    program_run(&p, 10, "help", NULL);
    assert_int_equal(p.code, 0);
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, "\n  %-10s ", all[i].command->name);
        assert_int_equal(strstr(p.out, line) != NULL, all[i].group != GROUP_HIDDEN);
        if (i) assert_true(all[i].group >= all[i - 1].group);
    }
    assert_null(strstr(p.out, "\n  validate "));
}

/* Each does what the command does that it stands for now, with the same exit code. */
static void words_of_earlier_versions_go_on(void **state) {
    static const char *const cases[][2][5] = {
        {{"validate", "nowhere.yaml"}, {"config", "--check", "nowhere.yaml"}},
        {{"validate", "--set", "train=0ep"}, {"config", "--check", "--set", "train=0ep"}},
        {{"validate"}, {"config", "--check"}},
        {{"devices", "--json"}, {"doctor", "--devices", "--json"}},
        {{"man"}, {"help", "--man"}},
        {{"man", "validate"}, {"help", "--man", "config"}},
        {{"man", "nonsense"}, {"help", "--man", "nonsense"}},
        {{"completion", "fish"}, {"help", "--completion", "fish"}},
        {{"completion"}, {"help", "--completion"}},
    };
    static struct program old;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *a = cases[i][0], *const *b = cases[i][1];
        program_run(&old, 20, a[0], a[1], a[2], a[3], NULL);
        program_run(&p, 20, b[0], b[1], b[2], b[3], b[4], NULL);
        assert_int_equal(old.code, p.code);
        if (strcmp(a[0], "devices")) assert_string_equal(old.out, p.out); /* free memory changes */
        assert_string_equal(old.err, p.err);
    }
    program_run(&p, 10, "help", "devices", NULL);
    assert_int_equal(p.code, 0);
    assert_int_equal(strncmp(p.out, "engine devices is now engine doctor --devices\n", 46), 0);
}

struct found {
    const char *page;
    int keys;
};

static void find_key(void *user, const struct config_key *key) {
    struct found *f = user;
    char entry[256];
    snprintf(entry, sizeof entry, ".TP\n.B %s\n", key->path);
    if (!strstr(f->page, entry)) fail_msg("the manual has no entry '%s'", key->path);
    f->keys++;
}

static void all_keys_are_told(void **state) {
    struct pool *pool;
    (void)state;
    program_run(&p, 10, "help", "--man", "engine.yaml", NULL);
    check_roff(p.out);
    assert_ok(pool_create(&pool));
    struct found f = {.page = p.out};
    assert_ok(config_walk(&run_schema, pool, find_key, &f));
    assert_true(f.keys > 80);
    pool_free(pool);
    assert_non_null(strstr(p.out, ".B batch.size\n\\&an integer >= 1; default 128."));
    assert_non_null(strstr(p.out, ".B optimizer.momentum\nWith sgd: "));
}

static void readers_of_roff_find_nothing_wrong(void **state) {
    (void)state;
    char folder[512], line[1600];
    snprintf(folder, sizeof folder, "%s", scratch_path("pages"));
    program_run(&p, 20, "help", "--man", "--all", folder, NULL);
    assert_int_equal(p.code, 0);
    if (is_here("groff")) {
        snprintf(line, sizeof line, "groff -man -Tascii -ww -z %s/* 2>&1", folder);
        program_spawn(&p, (const char *const[]){"sh", "-c", line, NULL});
        program_wait(&p, 60);
        assert_string_equal(p.out, "");
    }
    if (!is_here("mandoc")) return;
    snprintf(line, sizeof line, "mandoc -T lint -W error %s/*", folder);
    program_spawn(&p, (const char *const[]){"sh", "-c", line, NULL});
    program_wait(&p, 60);
    if (p.code) fail_msg("mandoc: %s", p.out);
}

/* What the program prints on a terminal of so many columns. */
static const char *on_terminal(int columns, const char *arguments) {
    char line[800];
    snprintf(line, sizeof line, "stty cols %d; %s/engine %s", columns, ENGINE_BINARY_DIR, arguments);
    program_spawn(&p, (const char *const[]){"script", "-qec", line, "/dev/null", NULL});
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 0);
    return p.out;
}

static int longest_line(const char *text) {
    int longest = 0;
    for (; *text; text += strcspn(text, "\n") + (strchr(text, '\n') != NULL)) {
        int n = (int)strcspn(text, "\r\n");
        longest = n > longest ? n : longest;
    }
    return longest;
}

static void texts_fit_the_terminal(void **state) {
    (void)state;
    if (!is_here("script")) return;
    char run[700];
    assert_between(longest_line(on_terminal(60, "help conv2d")), 50, 60);
    assert_between(longest_line(on_terminal(60, "help run")), 50, 100); /* usage lines stay as they are */
    assert_between(longest_line(on_terminal(45, "help optimizer")), 40, 45);
    assert_between(longest_line(on_terminal(45, "help layers")), 40, 45);
    snprintf(run, sizeof run, "run --mode single --set train=2st --set checkpoint=off --quiet --set log.dir=%s",
             scratch_path("narrow"));
    find("a narrow terminal", on_terminal(40, run), "\r\nval acc            ", NULL);
    find("a wide terminal", on_terminal(120, run), "mode    devices  steps  train loss  val loss ", NULL);
}

/* What bash offers at the end of the line. */
static const char *complete(const char *line) {
    static const char script[] =
        "PATH=" ENGINE_BINARY_DIR
        ":$PATH; . \"$1\"; COMP_LINE=$2 COMP_POINT=${#2}; _engine; printf '%s ' \"${COMPREPLY[@]}\"";
    program_spawn(
        &p, (const char *const[]){"bash", "--norc", "-c", script, "bash", scratch_path("engine.bash"), line, NULL});
    program_wait(&p, 10);
    assert_string_equal(p.err, "");
    return p.out;
}

static void bash_completes(void **state) {
    (void)state;
    if (!is_here("bash")) return;
    program_run(&p, 10, "help", "--completion", "bash", NULL);
    assert_int_equal(p.code, 0);
    save_text(scratch_path("engine.bash"), p.out);
    program_spawn(&p, (const char *const[]){"bash", "-n", scratch_path("engine.bash"), NULL});
    program_wait(&p, 10);
    assert_int_equal(p.code, 0);
    assert_string_equal(complete("engine ru"), "run runs ");
    assert_string_equal(complete("engine runs --state fin"), "finished ");
    assert_non_null(strstr(complete("engine "), "dashboard "));
    assert_string_equal(complete("engine run --mod"), "--mode ");
    assert_string_equal(complete("engine run --mode s"), "single ");
    assert_string_equal(complete("engine run --set optimizer.mom"), "optimizer.momentum= ");
    assert_string_equal(complete("engine run --set mode="), "single dp ddp ps fsdp pipeline ");
    assert_string_equal(complete("engine run --set precision=b"), "bf16 ");
    assert_string_equal(complete("engine run --set optimizer.name=sg"), "sgd ");
    assert_string_equal(complete("engine run --set comm.algorithm=ha"), "halving_doubling ");
    assert_string_equal(complete("engine run --set model=resnet1"), "resnet18 ");
    assert_string_equal(complete("engine run --set data.train=/dev/nul"), "/dev/null ");
    assert_string_equal(complete("engine run --set data=/dev/nul"), "/dev/null ");
    assert_string_equal(complete("engine model show resnet1"), "resnet18 ");
    assert_string_equal(complete("engine bench layers --model gpt-n"), "gpt-nano ");
    assert_string_equal(complete("engine init sp"), "spirals ");
    assert_string_equal(complete("engine model su"), "summary ");
    assert_string_equal(complete("engine lab run 00"), "00-hello ");
    assert_string_equal(complete("engine lab show 00"), "00-hello ");
    assert_string_equal(complete("engine lab run /dev/nul"), "/dev/null ");
    assert_string_equal(complete("engine run --devices re"), "ref:1 ref:2 ref:4 ");
    assert_string_equal(complete("engine run --devices cpu:"), "1 2 4 "); /* after the colon */
    assert_string_equal(complete("engine report --format h"), "html ");
    assert_string_equal(complete("engine eval --split="), "val train ");
    assert_string_equal(complete("engine bench comm --link th"), "thread ");
    assert_string_equal(complete("engine help batch.si"), "batch.size ");
    assert_string_equal(complete("engine help conv"), "conv2d ");
    assert_string_equal(complete("engine help layers"), "layers ");
    assert_string_equal(complete("engine completion "), "bash zsh fish ");
    assert_string_equal(complete("engine run /dev/nul"), "/dev/null ");
    assert_non_null(strstr(complete("engine bench --al"), "--algorithm "));
}

static void other_shells_can_read_theirs(void **state) {
    static const char *const shells[] = {"zsh", "fish"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        program_run(&p, 10, "help", "--completion", shells[i], NULL);
        assert_int_equal(p.code, 0);
        assert_non_null(strstr(p.out, " complete -- "));
        save_text(scratch_path(shells[i]), p.out);
        if (!is_here(shells[i])) continue;
        program_spawn(&p, (const char *const[]){shells[i], "-n", scratch_path(shells[i]), NULL});
        program_wait(&p, 20);
        assert_int_equal(p.code, 0);
        assert_string_equal(p.err, "");
    }
    program_run(&p, 10, "help", "--completion", "tcsh", NULL);
    assert_int_equal(p.code, 64);
}

static void fish_completes(void **state) {
    (void)state;
    if (!is_here("fish")) return;
    static const char script[] =
        "set -x PATH " ENGINE_BINARY_DIR " $PATH; source $argv[1]; complete -C 'engine run --set optimizer.mom'";
    program_spawn(&p, (const char *const[]){"fish", "-N", "-c", script, scratch_path("fish"), NULL});
    program_wait(&p, 20);
    assert_non_null(strstr(p.out, "optimizer.momentum="));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_table_is_told_everywhere),
        cmocka_unit_test(commands_stand_in_groups),
        cmocka_unit_test(words_of_earlier_versions_go_on),
        cmocka_unit_test(all_keys_are_told),
        cmocka_unit_test(readers_of_roff_find_nothing_wrong),
        cmocka_unit_test(bash_completes),
        cmocka_unit_test(texts_fit_the_terminal),
        cmocka_unit_test(other_shells_can_read_theirs),
        cmocka_unit_test(fish_completes),
    };
    return cmocka_run_group_tests_name("pages", tests, NULL, NULL);
}
