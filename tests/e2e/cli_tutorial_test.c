/* docs/tutorial.md stays true: each of its commands runs in an empty folder, in the page's order, and what the page
 * concludes from them is what they print. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct program p;
static char page[1 << 16], place[600], said[1 << 20];

static void read_page(void) {
    FILE *f = fopen(ENGINE_SOURCE_DIR "/docs/tutorial.md", "r");
    assert_non_null(f);
    size_t n = fread(page, 1, sizeof page - 1, f);
    assert_int_equal(fclose(f), 0);
    assert_true(n > 1000 && n < sizeof page - 1);
    page[n] = '\0';
}

/* The next fenced block of commands behind *at, as its own copy; NULL: there is none. */
static const char *next_block(const char **at) {
    static char block[8192];
    const char *begin = strstr(*at, "\n```sh\n");
    if (!begin) return NULL;
    begin += strlen("\n```sh\n");
    const char *end = strstr(begin, "\n```\n");
    assert_non_null(end);
    assert_true((size_t)(end - begin) < sizeof block);
    snprintf(block, sizeof block, "%.*s\n", (int)(end - begin), begin);
    *at = end;
    return block;
}

/* A block that fails anywhere fails as a whole. */
static int run_block(const char *block) {
    static const char script[] = "cd \"$1\" && PATH=\"$2:$PATH\" && export PATH && eval \"$3\"";
    program_spawn(&p, (const char *const[]){"sh", "-e", "-c", script, "sh", place, ENGINE_BINARY_DIR, block, NULL});
    assert_true(program_wait(&p, 200));
    return p.code;
}

/* All lines of 'said' that begin so are the same one; how many there are. */
static int same_lines(const char *beginning) {
    const char *first = NULL;
    int n = 0;
    for (const char *at = said; (at = strstr(at, beginning)); at++, n++) {
        if (!first) first = at;
        assert_memory_equal(at, first, strcspn(first, "\n"));
    }
    return n;
}

static void each_command_runs(void **state) {
    (void)state;
    const char *at = page, *block;
    int blocks = 0;
    size_t n = 0, three = 0;
    while ((block = next_block(&at))) {
        if (run_block(block)) fail_msg("exit code %d of\n%s\nsays\n%s%s", p.code, block, p.out, p.err);
        blocks++;
        if (strstr(block, "--mode single")) three = n;
        n += (size_t)snprintf(said + n, sizeof said - n, "%s", p.out);
        assert_true(n < sizeof said);
        if (strstr(block, "--mode single")) { /* three modes, the same bits */
            memmove(said, said + three, n - three + 1);
            assert_int_equal(same_lines("weights sha256"), 3);
            assert_int_equal(same_lines("losses  sha256"), 3);
            n = 0;
        }
    }
    assert_true(blocks >= 10);
    assert_non_null(strstr(said, "ddp faster"));
    assert_non_null(strstr(said, "B has the settings of A"));
    assert_non_null(strstr(said, "(1 of 1 pairs; the same in all cells)"));
    assert_non_null(strstr(said, "gate passed"));
    assert_int_equal(run_block("tar -tf handed-in.tar | grep -c ."), 0);
    assert_string_equal(p.out, "8\n"); /* the folder and seven files, as the page's table says */
}

static void a_block_with_a_bad_command_fails(void **state) {
    (void)state;
    assert_int_equal(run_block("engine version\nengine nonsense\necho behind"), 64);
    assert_null(strstr(p.out, "behind"));
    assert_non_null(strstr(p.out, "engine"));
}

/* Links of the page lead to files. */
static void links_lead_somewhere(void **state) {
    (void)state;
    int n = 0;
    for (const char *at = page; (at = strstr(at, "](")); n++) {
        char path[900];
        at += 2;
        snprintf(path, sizeof path, "%s/docs/%.*s", ENGINE_SOURCE_DIR, (int)strcspn(at, ")#"), at);
        struct stat s;
        if (stat(path, &s)) fail_msg("no such page: %s", path);
    }
    assert_true(n > 0);
}

static int set_up(void **state) {
    (void)state;
    snprintf(place, sizeof place, "%s", scratch_path("tutorial"));
    read_page();
    return mkdir(place, 0755);
}

static int tear_down(void **state) {
    (void)state;
    return program_orphans();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_with_a_bad_command_fails),
        cmocka_unit_test(links_lead_somewhere),
        cmocka_unit_test(each_command_runs),
    };
    return cmocka_run_group_tests_name("tutorial", tests, set_up, tear_down);
}
