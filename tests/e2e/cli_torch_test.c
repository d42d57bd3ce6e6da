/* Checkpoints into PyTorch's modules and back, by tests/reference/check_torch.py, where there is a
 * Python with torch; else this is skipped. */
#include "tests/harness/program.h"

#include <string.h>
#include <unistd.h>

static struct program p;

static bool python_runs(const char *python, const char *code) {
    const char *const words[] = {python, "-c", code, NULL};
    if (access(python, X_OK) != 0) return false;
    program_spawn(&p, words);
    return program_wait(&p, 60) && p.code == 0;
}

static void weights_go_to_pytorch_and_back(void **state) {
    (void)state;
    static const char python[] = "/usr/bin/python3",
                      script[] = ENGINE_SOURCE_DIR "/tests/reference/check_torch.py",
                      engine[] = ENGINE_BINARY_DIR "/engine";
    if (!python_runs(python, "import torch, numpy")) {
        print_message("no torch in %s: not tested\n", python);
        skip();
    }
    const char *const words[] = {python, script, engine, scratch_folder(), NULL};
    program_spawn(&p, words);
    if (!program_wait(&p, 300) || p.code != 0) fail_msg("%s%s", p.out, p.err);
    print_message("%s", p.out);
    assert_non_null(strstr(p.out, "vit: loss from PyTorch's weights"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_go_to_pytorch_and_back)};
    return cmocka_run_group_tests_name("PyTorch's modules", tests, NULL, NULL);
}
