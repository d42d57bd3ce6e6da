/* Every lab that comes with the program, in quick form: each of its claims must hold (those about time in the job 'timing'
 * alone). They take some seconds each, so one test runs every second lab, and another one (argument 1) those between. */
#include "tests/harness/lab.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct program p;

/* A lab is none the worse without a page, so nobody would notice. */
static void assert_reports(const char *dir) {
    char path[800];
    glob_t found;
    snprintf(path, sizeof path, "%s/quick/*/results.json", dir);
    int none = glob(path, 0, NULL, &found);
    for (size_t i = 0; !none && i < found.gl_pathc; i++) {
        const char *results = found.gl_pathv[i];
        snprintf(path, sizeof path, "%.*sreport.html", (int)(strlen(results) - strlen("results.json")), results);
        if (access(path, F_OK) != 0) fail_msg("%s is not there", path);
    }
    if (!none) globfree(&found);
}

/* As a lecturer checks what was handed in. */
static void assert_unchanged(const char *name, const char *dir) {
    char key[700];
    snprintf(key, sizeof key, "%s/examples/labs/%s", ENGINE_SOURCE_DIR, name);
    program_run(&p, 60, "lab", "check", dir, "--key", key, "--quick", NULL);
    program_assert_says(p.out, "; nothing was changed\n");
}

/* One that needs GPUs, hosts or Python's modules that are not here says so. */
static void every_claim_holds(void **state) {
    struct pool *pool;
    double all = 0;
    setenv("TMPDIR", scratch_folder(), 1);
    assert_ok(pool_create(&pool));
    program_run(&p, 20, "lab", "list", "--json", NULL);
    program_assert_code(&p, 0);
    const struct json_value *labs = json_get(program_json(&p, pool), "labs");
    assert_true(labs->count >= 11);
    for (int i = *(int *)*state; i < labs->count; i += 2) {
        const char *name = json_get(&labs->children[i], "name")->text;
        char dir[700];
        if (json_get(&labs->children[i], "hand_in")->count > 0)
            continue; /* code that is to be written: cli_code_labs_test */
        snprintf(dir, sizeof dir, "%s", scratch_path(name));
        program_run(&p, 300, "lab", "run", name, "--quick", "-q", "--json", "--dir", dir, NULL);
        if (p.code == 69) {
            print_message("%s: skipped, %s", name, p.err);
            continue;
        }
        print_message("%s: %.1f s\n", name, p.seconds);
        all += p.seconds;
        assert_true(lab_assert_holds(&p, name) > 0);
        assert_reports(dir);
        assert_unchanged(name, dir);
    }
    print_message("all: %.0f s\n", all);
    assert_int_equal(program_orphans(), 0);
    pool_free(pool);
}

int main(int argc, char **argv) {
    int first = argc > 1 ? atoi(argv[1]) : 0;
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(every_claim_holds, &first)};
    return cmocka_run_group_tests_name("claims of labs", tests, NULL, NULL);
}
