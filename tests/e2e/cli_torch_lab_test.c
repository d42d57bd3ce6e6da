/* The lab that runs a PyTorch script, in quick form: every claim of it must hold. Where there is a Python with torch and numpy
 * (ENGINE_TORCH_PYTHON names one); else this is skipped. */
#include "tests/harness/lab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct program p;

/* The lab's python3 is the first one of PATH. */
static void every_claim_holds(void **state) {
    (void)state;
    char path[4000];
#ifdef ENGINE_SANITIZED
    skip(); /* the sanitizers' library would have to come before Python */
#endif
    const char *python = program_python(&p, "numpy, torch"), *name = python ? strrchr(python, '/') : NULL;
    if (!name) skip();
    snprintf(path, sizeof path, "%.*s:%s", (int)(name - python), python, getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("ENGINE_LIBRARY", ENGINE_BINARY_DIR "/libengine.so.0", 1);
    setenv("PYTHONPATH", ENGINE_SOURCE_DIR "/python", 1);
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
    program_run(&p, 580, "lab", "run", "19", "--quick", "-q", "--json", "--dir", scratch_path("lab"), NULL);
    assert_int_equal(lab_assert_holds(&p, "19-pytorch"), 12);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_claim_holds)};
    return cmocka_run_group_tests_name("the lab of a PyTorch script", tests, NULL, NULL);
}
