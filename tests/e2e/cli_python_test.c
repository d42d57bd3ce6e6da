/* The Python package in python/, by its own tests, where there is a Python with numpy (ENGINE_TORCH_PYTHON names one);
 * else this is skipped. One test a file of python/tests. */
#include "tests/harness/program.h"

#include <stdlib.h>
#include <string.h>

static struct program p;

/* needs: what the module's tests import. */
static void pass(const char *module, const char *needs) {
#ifdef ENGINE_SANITIZED
    skip(); /* the sanitizers' library would have to come before Python */
#endif
    const char *python = program_python(&p, needs);
    if (!python) skip();
    setenv("ENGINE_LIBRARY", ENGINE_BINARY_DIR "/libengine.so.0", 1);
    setenv("ENGINE_PROGRAM", ENGINE_BINARY_DIR "/engine", 1);
    setenv("PYTHONPATH", ENGINE_SOURCE_DIR "/python:" ENGINE_SOURCE_DIR "/python/tests", 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    (void)scratch_folder(); /* where groups record */
    const char *const words[] = {python, "-W", "error", "-m", "unittest", module, NULL};
    program_spawn(&p, words);
    if (!program_wait(&p, 600) || p.code != 0) fail_msg("%s%s", p.out, p.err);
    assert_non_null(strstr(p.err, "\nOK"));
}

static void groups(void **state) {
    (void)state;
    pass("test_group", "numpy");
}

static void inspect(void **state) {
    (void)state;
    pass("test_inspect", "numpy");
}

static void runs(void **state) {
    (void)state;
    pass("test_runs", "numpy");
}

static void exports(void **state) {
    (void)state;
    pass("test_export", "numpy");
}

static void notebooks(void **state) {
    (void)state;
    pass("test_notebooks", "json"); /* pandas only to run the cells */
}

static void torch(void **state) {
    (void)state;
    pass("test_torch", "numpy, torch");
}

static void servers(void **state) {
    (void)state;
    pass("test_server", "numpy, torch");
}

static void compression(void **state) {
    (void)state;
    pass("test_compress", "numpy, torch");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups),  cmocka_unit_test(inspect),     cmocka_unit_test(runs),
        cmocka_unit_test(exports), cmocka_unit_test(notebooks),   cmocka_unit_test(torch),
        cmocka_unit_test(servers), cmocka_unit_test(compression),
    };
    return cmocka_run_group_tests_name("the Python package", tests, NULL, NULL);
}
