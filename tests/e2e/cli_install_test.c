/* What 'cmake --install' leaves: a program that works wherever its folder is moved to, with its code once, and all that
 * belongs to it. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct program p;
static char prefix[512]; /* has a space */

/* What a shell command prints, in 'p'; $P is the prefix. No variable of this process but the sanitizers' is known to it. */
static const char *shell(const char *command) {
    char place[600], options[600];
    const char *asan = getenv("ASAN_OPTIONS");
    snprintf(place, sizeof place, "P=%s", prefix);
    snprintf(options, sizeof options, "ASAN_OPTIONS=%s", asan ? asan : "");
    program_spawn(&p, (const char *const[]){"env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin", place, options, "sh",
                                            "-c", command, NULL});
    assert_true(program_wait(&p, 120));
    if (p.code) fail_msg("%s: %d\n%s%s", command, p.code, p.out, p.err);
    return p.out;
}

static int setup(void **state) {
    (void)state;
    snprintf(prefix, sizeof prefix, "%s", scratch_path("first place"));
    program_spawn(&p,
                  (const char *const[]){"cmake", "--install", ENGINE_BINARY_DIR, "--prefix", prefix, "--strip", NULL});
    assert_true(program_wait(&p, 120));
    if (p.code) fail_msg("%s%s", p.out, p.err);
    char moved[512];
    snprintf(moved, sizeof moved, "%s", scratch_path("another place"));
    assert_int_equal(rename(prefix, moved), 0);
    snprintf(prefix, sizeof prefix, "%s", moved);
    return 0;
}

static void all_is_there(void **state) {
    static const char *const files[] = {
        "bin/engine",
        "include/engine/engine.h",
        "share/man/man1/engine.1",
        "share/man/man1/engine-run.1",
        "share/man/man5/engine.yaml.5",
        "share/bash-completion/completions/engine",
        "share/zsh/site-functions/_engine",
        "share/fish/vendor_completions.d/engine.fish",
        "share/engine/configs/quickstart.yaml",
        "share/engine/configs/models/lenet.yaml",
        "share/doc/engine/README.md",
        "share/doc/engine/CHANGELOG.md",
        "share/doc/engine/LICENSE",
        "share/doc/engine/docs/install.md",
        "share/doc/engine/docs/pictures/ps-vs-ring.svg",
        "share/doc/engine/examples/train.c",
        "share/doc/engine/examples/ps-vs-ring.yaml",
        "share/doc/engine/examples/labs/03-ps-vs-ring/README.md",
    };
    struct stat st;
    char path[700];
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", prefix, files[i]);
        if (stat(path, &st) != 0 || st.st_size == 0) fail_msg("%s is missing or empty", files[i]);
    }
    (void)shell("for f in engine.pc engineConfig.cmake libengine.so.0; do find \"$P\"/lib* -name $f | grep -q . || "
                "exit 1; done");
}

/* What students hand in is theirs to write: neither files nor programs have a solution, and what labs ask for is to do. */
static void no_answers_are_there(void **state) {
    (void)state;
    (void)shell("grep -rl 'A solution of lab' \"$P\" || :");
    assert_string_equal(p.out, "");
    (void)shell("cd \"$P/share/doc/engine/examples/labs\" && n=0 && for lab in */lab.yaml; do"
                "  for file in $(sed -n 's/^hand_in: \\[\\(.*\\)\\]$/\\1/p' $lab | tr -d ,); do"
                "    grep -q 'TODO\\|: null' \"$(dirname $lab)/$file\" && n=$((n + 1)) || echo \"$lab: $file\"; done; "
                "done; echo $n");
    assert_string_equal(p.out, "11\n");
}

/* Every link of a document to a file of the project leads somewhere. */
static void links_lead_somewhere(void **state) {
    (void)state;
    (void)shell("cd \"$P/share/doc/engine\" && find . -name '*.md' | while read -r page; do"
                "  grep -oE '\\]\\([^)# ]+' \"$page\" | cut -c3- | grep -v ^http | while read -r link; do"
                "    [ -e \"$(dirname \"$page\")/$link\" ] || echo \"$page: $link\"; done; done");
    assert_string_equal(p.out, "");
}

/* The program is the few lines that call the library, unless the build was told to put everything into it. */
static void the_code_is_there_once(void **state) {
    struct stat program, library;
    char path[700];
    (void)state;
    (void)shell("grep -c '^ENGINE_SHARED:BOOL=ON' '" ENGINE_BINARY_DIR "/CMakeCache.txt' || :");
    if (atoi(p.out) == 0) skip();
    snprintf(path, sizeof path, "%s/bin/engine", prefix);
    assert_int_equal(stat(path, &program), 0);
    (void)shell("find \"$P\"/lib* -name 'libengine.so.*.*' | tr -d '\\n'");
    assert_int_equal(stat(p.out, &library), 0);
    assert_true(program.st_size * 10 < library.st_size);
}

static void it_finds_its_own(void **state) {
    (void)state;
    assert_non_null(strstr(shell("cd / && \"$P/bin/engine\" version"), "engine "));
    assert_non_null(strstr(shell("cd / && \"$P/bin/engine\" model list"), "resnet18"));
    assert_non_null(strstr(shell("cd / && \"$P/bin/engine\" lab list"), "ps-vs-ring"));
    assert_non_null(strstr(shell("cd / && \"$P/bin/engine\" help conv2d"), "conv2d"));
}

static void train(const char *program, const char *name, struct program *out) {
    char command[1500];
    snprintf(command, sizeof command,
             "cd / && \"%s\" run \"$P/share/engine/configs/quickstart.yaml\" --json --quiet --set train=4st "
             "--set data.train=1000 --set data.val=100 --set \"log.dir=$P/runs/%s\"",
             program, name);
    (void)shell(command);
    *out = p;
}

/* Its ranks are processes of it, so it finds itself, too. */
static void it_trains_to_the_same_weights(void **state) {
    static struct program built, installed;
    (void)state;
    train(ENGINE_BINARY_DIR "/engine", "built", &built);
    train("$P/bin/engine", "installed", &installed);
    program_assert_same(&built, &installed, "installed");
}

/* Runs of another build are others: here of a library that another time is on. */
static void a_new_library_is_a_new_build(void **state) {
    static const char command[] = "cd / && \"$P/bin/engine\" compare \"$P/share/engine/configs/quickstart.yaml\" "
                                  "--modes single,dp --quick --quiet --set train=30st --set data.train=1000 "
                                  "--set data.val=100 --set devices=cpu:1 --dir \"$P/compared\" >\"$P/log\" 2>&1; "
                                  "find \"$P/compared\" -name summary.json | wc -l";
    (void)state;
    assert_int_equal(atoi(shell(command)), 2);
    assert_int_equal(atoi(shell(command)), 2);
    (void)shell("find \"$P\" \\( -name 'libengine.so.*.*' -o -name engine \\) -type f -exec touch -d 2001-01-01 {} +");
    assert_int_equal(atoi(shell(command)), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_there),
        cmocka_unit_test(no_answers_are_there),
        cmocka_unit_test(links_lead_somewhere),
        cmocka_unit_test(the_code_is_there_once),
        cmocka_unit_test(it_finds_its_own),
        cmocka_unit_test(it_trains_to_the_same_weights),
        cmocka_unit_test(a_new_library_is_a_new_build),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
