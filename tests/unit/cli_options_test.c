/* The parser of command lines, by tables of this test: every type, each way to write an option, and
 * what is said of each mistake. */
#include "tests/harness/harness.h"

#include "cli/line/cli.h"
#include "cli/line/load.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct test_options {
    const char *path, *output, *colour;
    bool flag, quiet;
    int format, kind, word;
    int64_t count, free, size, numbers[4];
    double real, time;
    struct option_list more, tags, rest;
    struct cli_config config;
};
#define OPTIONS_STRUCT struct test_options
static struct test_options got;
static int ran; /* 1: the command; 2: the other one's form "second" */

static int run(const struct cli *cli) {
    got = *(const struct test_options *)cli->options;
    ran = cli->form->name[0] == 's' ? 2 : 1;
    /* lists lie in the command line's pool */
    static const char *more[8], *tags[8], *rest[8];
    const char **const copies[] = {more, tags, rest};
    struct option_list *lists[] = {&got.more, &got.tags, &got.rest};
    for (int k = 0; k < 3; k++) {
        assert_true(lists[k]->count == 0 || !lists[k]->of[lists[k]->count]);
        for (int i = 0; i < lists[k]->count && i < 8; i++) copies[k][i] = lists[k]->of[i];
        lists[k]->of = copies[k];
    }
    static char sets[64][64]; /* so do assignments */
    for (int i = 0; i < got.config.nsets && i < 64; i++) {
        snprintf(sets[i], sizeof sets[i], "%s", got.config.sets[i]);
        got.config.sets[i] = sets[i];
    }
    return 7;
}

static const char *word_name(int i) {
    static const char *const names[] = {"alpha", "beta", "gamma"};
    return i < 3 ? names[i] : NULL;
}

static enum error read_pair(const char *value, void *out) {
    int64_t *numbers = out;
    return sscanf(value, "%ldx%ld", &numbers[0], &numbers[1]) == 2 ? ERR_NONE : ERR_USAGE;
}

static enum error read_told(const char *value, void *out) {
    (void)out;
    return FAIL(ERR_USAGE, "'%s' is odd\ntry another", value);
}

static const struct option options[] = {
    {"PATH", NULL, "where", CONFIG_STRING, AT(path), .missing = "which path?", .one = "path"},
    {"MORE", NULL, "others", .at = AT(more), .max = 2, .many = OPTION_LIST},
    {"--flag", NULL, "a flag", CONFIG_BOOL, AT(flag)},
    {"--quiet", NULL, "another", CONFIG_BOOL, AT(quiet), .also = "-q"},
    {"--json", NULL, "a format", CONFIG_ENUM, AT(format), 1},
    {"--csv", NULL, "a format", CONFIG_ENUM, AT(format), 2},
    {"-o", "FILE", "to", CONFIG_STRING, AT(output), .wants = "the name of a file", .also = "--output"},
    {"--count", "N", "how many", CONFIG_INT, AT(count), 1, 64, .wants = "a number of things"},
    {"--from-here", "N", "no upper bound", CONFIG_INT, AT(free), 3, -1},
    {"--real", "X", "a real", CONFIG_REAL, AT(real), 0, 1},
    {"--size", "S", "a size", CONFIG_BYTES, AT(size)},
    {"--time", "T", "a time", CONFIG_SECONDS, AT(time), 0, 60, .wants = "a time up to 1m"},
    {"--kind", NULL, "a choice", CONFIG_ENUM, AT(kind), .choices = "one|two|three"},
    {"--word", "W", "one of a list", CONFIG_ENUM, AT(word), .word = word_name, .wants = "letter"},
    {"--colour", "C", "any, or one of a list", CONFIG_STRING, AT(colour), .word = word_name},
    {"--pair", "NxN", "read by a function", .at = AT(numbers), .read = read_pair, .wants = "two numbers as in 2x3"},
    {"--odd", "O", "never right", .at = AT(numbers), .read = read_told},
    {"--tag", "TAG", "repeated", .at = AT(tags), .max = 3, .many = OPTION_LIST},
    OPTION_SET(config, "changes one key"),
    OPTION_KEY("--mode", "M", config, "mode"),
    {"--resume", NULL, NULL, .at = AT(config), .key = "checkpoint.resume", .set = "auto"},
    {"--board", "[=AT]", "may have a value", .at = AT(config), .key = "log.board", .set = "here"},
    {0}};
static const struct command command = {
    .name = "test",
    .summary = "reads options",
    OPTIONS(options),
    .standard = &(const struct test_options){.real = 0.5, .kind = -1, .word = -1},
    .run = run,
};

static const struct option first_options[] = {
    {"--only", "X", "of the first", CONFIG_STRING, AT(output)},
    {"-n", "N", "how many", CONFIG_INT, AT(count), 1, 9, .missing = "how many? (-n N)"},
    {"PROGRAM", NULL, NULL, .at = AT(rest), .many = OPTION_REST, .missing = "which program?"},
    {0}};
static const struct option second_options[] = {{"--flag", NULL, "a flag", CONFIG_BOOL, AT(flag)}, {0}};
static const struct command forms[] = {{"first", "takes a program", OPTIONS(first_options), .run = run},
                                       {"second", "takes nothing", OPTIONS(second_options), .run = run}};
static const struct command several = {
    .name = "several",
    .summary = "has forms",
    .forms = (const struct command *const[]){forms, forms + 1, NULL},
};

/* ---- calling ---- */

static char said[8192]; /* on both streams */

static int call(const struct command *c, const char *line) {
    static char words[1024], nothing[] = "";
    const char *argv[64] = {nothing};
    char *rest = NULL;
    int argc = 1, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok_r(words, " ", &rest); w; w = strtok_r(NULL, " ", &rest))
        argv[argc++] = strcmp(w, "''") ? w : nothing;
    int fd = open(scratch_path("said"), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    fflush(NULL);
    dup2(fd, STDOUT_FILENO), dup2(fd, STDERR_FILENO);
    ran = 0;
    int code = command_call(c, argc, argv);
    fflush(NULL);
    dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
    close(out), close(err);
    ssize_t n = pread(fd, said, sizeof said - 1, 0);
    said[n < 0 ? 0 : n] = '\0';
    close(fd);
    return code;
}

static void accepted(const struct command *c, const char *line) {
    if (call(c, line) != 7 || !ran) fail_msg("%s: %s", line, said);
    assert_string_equal(said, "");
}

static void refused(const struct command *c, const char *line, const char *text) {
    if (call(c, line) != 64 || ran) fail_msg("%s was taken", line);
    if (!strstr(said, text)) fail_msg("%s: '%s' is missing: %s", line, text, said);
}

/* ---- what is right ---- */

static void every_type_is_read(void **state) {
    (void)state;
    accepted(&command, "here");
    assert_string_equal(got.path, "here");
    assert_true(!got.flag && got.format == 0 && got.kind == -1 && got.real == 0.5 && !got.tags.of[0]);
    accepted(&command, "--flag -q --json -o file --count 64 --from-here 1000000000000 --real 0.25 "
                       "--size 64KB --time 250ms --kind two --word gamma --colour mauve here "
                       "--pair 3x4 --tag a --tag=b");
    assert_true(got.flag && got.quiet && got.format == 1 && got.count == 64);
    assert_true(got.free == 1000000000000 && got.real == 0.25 && got.size == 64 << 10);
    assert_true(got.time == 0.25 && got.kind == 1 && got.word == 2);
    assert_true(got.numbers[0] == 3 && got.numbers[1] == 4);
    assert_string_equal(got.output, "file");
    assert_string_equal(got.colour, "mauve");
    assert_int_equal(got.tags.count, 2);
    assert_string_equal(got.tags.of[1], "b");
}

static void values_are_joined_or_separate(void **state) {
    (void)state;
    accepted(&command, "x --count=3 --from_here=4 --output=a=b");
    assert_true(got.count == 3 && got.free == 4);
    assert_string_equal(got.output, "a=b");
    accepted(&command, "x -o=file --from_here 5 --count 2 --count 7 --json --csv");
    assert_string_equal(got.output, "file");
    assert_true(got.free == 5 && got.count == 7 && got.format == 2); /* the last one counts */
    accepted(&command, "x -o --flag --real 0");                      /* a value may look like an option */
    assert_string_equal(got.output, "--flag");
    assert_true(!got.flag);
}

static void keys_become_assignments(void **state) {
    static const char *const sets[] = {"a.b=c=d",        "mode=dp", "checkpoint.resume=auto",
                                       "log.board=here", "x=y",     "log.board=there"};
    (void)state;
    accepted(&command, "x --set a.b=c=d --mode dp --resume --board --set=x=y --board=there");
    assert_int_equal(got.config.nsets, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(got.config.sets[i], sets[i]);
}

static void words_have_their_places(void **state) {
    (void)state;
    accepted(&command, "a --flag b c");
    assert_string_equal(got.path, "a");
    assert_int_equal(got.more.count, 2);
    assert_string_equal(got.more.of[1], "c");
    accepted(&command, "-");
    assert_string_equal(got.path, "-");
    accepted(&command, "--flag -- --flag -q");
    assert_string_equal(got.path, "--flag");
    assert_string_equal(got.more.of[0], "-q");
    assert_true(got.flag && !got.quiet);
}

static void forms_have_tables_of_their_own(void **state) {
    (void)state;
    accepted(&several, "first -n 2 program --only -n 3 --help");
    assert_true(ran == 1 && got.count == 2 && got.rest.count == 5 && !got.output);
    assert_string_equal(got.rest.of[0], "program");
    assert_string_equal(got.rest.of[4], "--help");
    accepted(&several, "first -n 2 -- --only");
    assert_string_equal(got.rest.of[0], "--only");
    accepted(&several, "--only second -n 2 first program"); /* its value is no form's name */
    assert_string_equal(got.output, "second");
    accepted(&several, "--flag second");
    assert_true(ran == 2 && got.flag);
}

/* ---- what is wrong ---- */

static void mistakes_are_told(void **state) {
    static const char *const wrong[][2] = {
        {"", "which path?"},
        {"a b c d", "'d' is one word too many"},
        {"a --nonsense", "unknown option '--nonsense'\n"},
        {"a --nonsense=3", "unknown option '--nonsense'\n"},
        {"a --coutn 3", "unknown option '--coutn', did you mean '--count'?"},
        {"a --outputs x", "did you mean '--output'?"},
        {"a -x", "unknown option '-x'\n"},
        {"a -ofile", "unknown option '-ofile'\n"},
        {"a -qq", "unknown option '-qq'\n"},
        {"a --flag=yes", "--flag takes no value"},
        {"a --resume=yes", "--resume takes no value"},
        {"a --real", "--real needs a value"},
        {"a --kind", "--kind needs a value"},
        {"a --pair", "--pair needs a value"},
        {"a --mode", "--mode needs a value"},
        {"a --count", "--count needs a number of things from 1 to 64"},
        {"a -o", "-o needs the name of a file"},
        {"a --output ''", "--output needs the name of a file"},
        {"a --set", "--set needs KEY=VALUE"},
        {"a --count 0", "--count is a number of things from 1 to 64, not '0'"},
        {"a --count 65", "--count is a number of things from 1 to 64, not '65'"},
        {"a --count=x", "--count is a number of things from 1 to 64, not 'x'"},
        {"a --from_here 2", "--from_here is a number from 3 on, not '2'"},
        {"a --real 1.5", "--real is a number from 0 to 1, not '1.5'"},
        {"a --real nan", "--real is a number from 0 to 1, not 'nan'"},
        {"a --size 64QB", "--size is a size such as 64KB or 25MB, not '64QB'"},
        {"a --time 2m", "--time is a time up to 1m, not '2m'"},
        {"a --kind four", "--kind is one, two or three, not 'four'"},
        {"a --word gama", "no letter 'gama', did you mean 'gamma'?\nhint: there are alpha, beta"},
        {"a --pair 3", "--pair is two numbers as in 2x3, not '3'"},
        {"a --odd 1", "--odd: '1' is odd\nhint: try another"},
        {"a --tag 1 --tag 2 --tag 3 --tag 4", "more than 3 --tag options"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refused(&command, wrong[i][0], wrong[i][1]);
    refused(&command, "a --nonsense", "\nusage: engine test PATH [MORE] [--flag] ");
    refused(&command, "a --nonsense", "\nhint: engine help test\n");
    char line[4096] = "a";
    for (int i = 0; i < 60; i++) strcat(line, " --resume");
    accepted(&command, line);
}

static void mistakes_of_forms_are_told(void **state) {
    (void)state;
    refused(&several, "", "error: first or second?\nusage: engine several first [--only X] -n N PROG");
    refused(&several, "third", "first or second, not 'third'");
    refused(&several, "third", "\n       engine several second [--flag]\n");
    refused(&several, "second --only x", "--only is for first");
    refused(&several, "second x", "'x' is one word too many\nusage: engine several second");
    refused(&several, "first program", "how many? (-n N)");
    refused(&several, "first -n 3", "which program?");
}

static void one_of_a_kind(void **state) {
    static const struct option rows[] = {{"PATH", NULL, NULL, CONFIG_STRING, AT(path), .one = "path"}, {0}};
    static const struct command one = {"one", "takes a path", OPTIONS(rows), .run = run};
    (void)state;
    refused(&one, "a b", "one path at a time, got 'a' and 'b'\nusage: engine one [PATH]\n");
}

/* ---- the real tables ---- */

static void check_row(const struct command *form, const struct option *o, int row) {
    char text[OPTION_TEXT];
    if (row >= 64) fail_msg("%s: more rows than the parser can tell apart", form->name);
    if (o->at >= form->size) fail_msg("%s: %s goes nowhere", form->name, o->name);
    if (o->key && strlen(o->key)) assert_true(o->value || o->set);
    if (o->many) assert_null(o->key);
    if (option_is_word(o)) assert_true(!o->also && !o->key);
    if (o->value && *o->value == '[') assert_non_null(o->set);
    bool flag = !option_is_word(o) && !option_takes_value(o) && !o->key;
    if (flag) assert_true(o->type == CONFIG_BOOL || o->type == CONFIG_ENUM);
    if (o->one) assert_true(option_is_word(o) && o->type == CONFIG_STRING);
    assert_true(option_is_word(o) || option_help(o, text));
    for (const struct option *other = form->options; other < o; other++)
        if (!strcmp(other->name, o->name)) assert_true(option_is_word(o));
}

static void the_tables_are_sound(void **state) {
    int n;
    const struct command_row *all = command_rows(&n);
    const struct command *form;
    (void)state;
    for (int i = 0; i < n; i++)
        for (int k = 0; (form = command_form(all[i].command, k)); k++) {
            assert_true(form->run && form->summary);
            assert_true(!form->options == !form->size);
            for (const struct option *o = form->options; o && o->name; o++)
                check_row(form, o, (int)(o - form->options));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(values_are_joined_or_separate),
        cmocka_unit_test(keys_become_assignments),
        cmocka_unit_test(words_have_their_places),
        cmocka_unit_test(forms_have_tables_of_their_own),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(mistakes_of_forms_are_told),
        cmocka_unit_test(one_of_a_kind),
        cmocka_unit_test(the_tables_are_sound),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
