/* What a shell may take away. A limit on the size of files (ulimit -f) is an error like a full disk: it is told, and
 * leaves no half of a file. Where standard input, output or error is closed, no file gets what is meant for it. */
#include "tests/harness/program.h"

#include "engine/base/file.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>

static struct program p;

/* blocks: of 512 bytes, what no file may be larger than. */
static void run_limited(int blocks, const char *const *words) {
    char limit[600];
    const char *all[PROGRAM_ARGS] = {"sh", "-c", limit, "engine"};
    int n = 4;
    snprintf(limit, sizeof limit, "ulimit -f %d && exec " ENGINE_BINARY_DIR "/engine \"$@\"", blocks);
    while (*words && n < PROGRAM_ARGS - 1) all[n++] = *words++;
    program_spawn(&p, all);
    if (!program_wait(&p, 60)) fail_msg("hung: %s", p.err);
}

static void fails_whole(const char *what, const char *folder) {
    char pattern[700];
    glob_t left;
    if (p.code != 74) fail_msg("%s: exit code %d: %s", what, p.code, p.err);
    if (!strstr(p.err, "File too large")) fail_msg("%s: %s", what, p.err);
    snprintf(pattern, sizeof pattern, "%s/*tmp*", scratch_path(folder));
    int none = glob(pattern, GLOB_PERIOD, NULL, &left);
    if (none != GLOB_NOMATCH) fail_msg("%s left %s", what, left.gl_pathv[0]);
}

static void every_writer(void **state) {
    (void)state;
    char dir[600], run[600], limited[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("run"));
    snprintf(run, sizeof run, "%s", scratch_path("run"));
    snprintf(limited, sizeof limited, "log.dir=%s", scratch_path("limited"));
    program_run(&p, 60, "run", "--mode", "single", "--set", dir, "--set", "train=4st", NULL);
    assert_int_equal(p.code, 0);
    run_limited(8, (const char *[]){"report", run, NULL});
    fails_whole("report", "run");
    run_limited(8, (const char *[]){"data", "prepare", "digits", scratch_path("data"), NULL});
    fails_whole("data prepare", "data");
    for (int i = 0; i < 2; i++) {
        const char *mode = i ? "mode=dp" : "mode=single", *devices = i ? "cpu:2" : "cpu:1";
        snprintf(limited, sizeof limited, "log.dir=%s%d", scratch_path("limited"), i);
        run_limited(40, (const char *[]){"run", "--set", limited, "--set", mode, "--devices", devices, "--set",
                                         "train=20st", "--set", "checkpoint=5st", NULL});
        fails_whole(mode, i ? "limited1/ckpt" : "limited0/ckpt");
        assert_non_null(strstr(p.err, "was not saved"));
    }
}

/* The limit holds for memory that processes share, too, before anything is trained. */
static void what_processes_share(void **state) {
    (void)state;
    char dir[600];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("shared"));
    run_limited(100, (const char *[]){"run", "--mode", "ddp", "--devices", "cpu:2", "--set", dir, NULL});
    fails_whole("ddp", "shared");
    assert_non_null(strstr(p.err, "ulimit -f"));
}

static void assert_file(const char *name, const char *begins) {
    char path[700], line[1 << 16];
    snprintf(path, sizeof path, "%s/%s", scratch_path("closed"), name);
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("no %s", path);
    while (fgets(line, sizeof line, f))
        if (!begins || strncmp(line, begins, strlen(begins)) != 0) fail_msg("%s holds: %s", path, line);
    fclose(f);
}

static void closed_descriptors(void **state) {
    (void)state;
    static const struct {
        const char *mode, *devices, *closed;
        int code; /* that of output which cannot be written, but for output that nobody has asked for */
    } cases[] = {
        {"single", "cpu:1", "<&- >&- 2>&-", 74}, {"single", "cpu:1", ">&-", 74}, {"single", "cpu:1", "2>&-", 0},
        {"ddp", "cpu:2", "<&- >&- 2>&-", 74},    {"ddp", "cpu:2", ">&-", 74},    {"ddp", "cpu:2", "<&- 2>&-", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1200];
        assert_ok(file_remove_tree(scratch_path("closed")));
        snprintf(line, sizeof line,
                 "exec " ENGINE_BINARY_DIR "/engine run --mode %s --devices %s --set log.dir=%s --set train=4st %s",
                 cases[i].mode, cases[i].devices, scratch_path("closed"), cases[i].closed);
        program_spawn(&p, (const char *[]){"sh", "-c", line, NULL});
        if (!program_wait(&p, 60)) fail_msg("%s: hung", line);
        if (p.code != cases[i].code) fail_msg("%s: exit code %d: %s", line, p.code, p.err);
        assert_file("metrics.jsonl", "{");
        assert_file("run.lock", NULL);
    }
}

/* Where the program starts at all: some builds need more addresses. */
static void too_few_addresses(void **state) {
    (void)state;
    char line[900];
    snprintf(line, sizeof line,
             "ulimit -v 20000 && exec " ENGINE_BINARY_DIR "/engine run --mode dp --devices cpu:2 --set log.dir=%s",
             scratch_path("addresses"));
    program_spawn(&p, (const char *[]){"sh", "-c", line, NULL});
    if (!program_wait(&p, 60)) fail_msg("hung: %s", p.err);
    if (!strstr(p.err, "cannot reserve")) return;
    assert_int_equal(p.code, 71);
    assert_non_null(strstr(p.err, "bytes of addresses: Cannot allocate memory"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_writer), cmocka_unit_test(what_processes_share),
                                       cmocka_unit_test(closed_descriptors), cmocka_unit_test(too_few_addresses)};
    return cmocka_run_group_tests_name("limits", tests, NULL, NULL);
}
