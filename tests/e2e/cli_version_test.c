/* The version names the commit that the program was built from, and follows it without a new
 * configuration; what the build looks at is written only when the commit has changed. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static struct program p;

static const char *run(const char *const *words) {
    program_spawn(&p, words);
    assert_true(program_wait(&p, 30));
    p.out[strcspn(p.out, "\n")] = '\0';
    return p.code == 0 ? p.out : "";
}

static const char *git(const char *command) {
    static char whole[700];
    snprintf(whole, sizeof whole, "cd %s && git -c user.name=a -c user.email=a@b -c commit.gpgsign=false %s",
             scratch_path("tree"), command);
    return run((const char *const[]){"sh", "-c", whole, NULL});
}

static void the_version_has_its_form(void **state) {
    static const char form[] = "^engine [0-9]+[.][0-9]+[.][0-9]+( [(][0-9a-f]{7,}[+]?[)])?$";
    char line[200];
    (void)state;
    program_run(&p, 10, "version", NULL);
    snprintf(line, sizeof line, "printf '%%s' '%.*s' | grep -E '%s'", (int)strcspn(p.out, "\n"), p.out, form);
    if (!*run((const char *const[]){"sh", "-c", line, NULL})) fail_msg("%s", line);
}

/* What the build's step writes for the tree, in a static buffer, and when it did so. */
static const char *commit_of_tree(struct timespec *written) {
    static char text[200];
    char source[600], out[600];
    struct stat st;
    snprintf(source, sizeof source, "-DSOURCE=%s", scratch_path("tree"));
    snprintf(out, sizeof out, "-DOUT=%s", scratch_path("commit.c"));
    (void)run((const char *const[]){"cmake", source, out, "-P", ENGINE_SOURCE_DIR "/cmake/commit.cmake", NULL});
    assert_int_equal(p.code, 0);
    FILE *f = fopen(scratch_path("commit.c"), "r");
    assert_non_null(f);
    while (fgets(text, sizeof text, f)) continue;
    fclose(f);
    assert_int_equal(stat(scratch_path("commit.c"), &st), 0);
    *written = st.st_mtim;
    return text;
}

static void assert_says(const char *commit, const char *mark, struct timespec *written) {
    char want[200];
    snprintf(want, sizeof want, "const char engine_commit[] = \"%s%s\";\n", commit, mark);
    assert_string_equal(commit_of_tree(written), want);
}

static void the_commit_is_followed(void **state) {
    struct timespec first, again;
    char commit[64];
    (void)state;
    assert_int_equal(mkdir(scratch_path("tree"), 0755), 0);
    assert_says("", "", &first);
    save_text(scratch_path("tree/a"), "1\n");
    (void)git("init -q && git add a && git -c user.name=a -c user.email=a@b commit -qm a");
    if (p.code) {
        print_message("no git: not tested\n%s", p.err);
        skip();
    }
    snprintf(commit, sizeof commit, "%.7s", git("rev-parse HEAD"));
    assert_says(commit, "", &first);
    assert_says(commit, "", &again);
    assert_true(first.tv_sec == again.tv_sec && first.tv_nsec == again.tv_nsec);
    save_text(scratch_path("tree/a"), "2\n");
    assert_says(commit, "+", &again);
    (void)git("commit -qam b");
    assert_int_equal(p.code, 0);
    snprintf(commit, sizeof commit, "%.7s", git("rev-parse HEAD"));
    assert_says(commit, "", &again);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_version_has_its_form),
        cmocka_unit_test(the_commit_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
