/* The installed library: the examples build against it as a user would build them, and run under
 * 'engine launch', mpirun, or alone. */
#include "tests/harness/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct program p;
static char prefix[512], example[600];

/* A shell's exit code; its output goes to a log that is printed when it is not 'expected'. */
__attribute__((format(printf, 2, 3))) static void shell(int expected, const char *fmt, ...) {
    char command[4096], whole[5000], line[400];
    const char *log = scratch_path("shell.log");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof command, fmt, ap);
    va_end(ap);
    snprintf(whole, sizeof whole, "timeout -s KILL 120 sh -c '%s' >%s 2>&1", command, log);
    int status = system(whole);
    if (WIFEXITED(status) && WEXITSTATUS(status) == expected) return;
    FILE *f = fopen(log, "r");
    while (f && fgets(line, sizeof line, f)) print_message("%s", line);
    if (f) fclose(f);
    fail_msg("%s: status %x", command, (unsigned)status);
}

static int setup(void **state) {
    (void)state;
    snprintf(prefix, sizeof prefix, "%s", scratch_path("installed"));
    snprintf(example, sizeof example, "%s", scratch_path("allreduce"));
    shell(0, "cmake --install %s --prefix %s", ENGINE_BINARY_DIR, prefix);
#ifdef ENGINE_SANITIZED
    const char *flags = "-fsanitize=" ENGINE_SANITIZED_AS;
#else
    const char *flags = "";
#endif
    shell(0,
          "cc %s %s/examples/allreduce.c "
          "$(PKG_CONFIG_PATH=%s/lib/pkgconfig:%s/lib/$(cc -print-multiarch)/pkgconfig "
          "pkg-config --cflags --libs engine) -Wl,-rpath,%s/lib -Wl,-rpath,%s/lib/$(cc "
          "-print-multiarch) -o %s",
          flags, ENGINE_SOURCE_DIR, prefix, prefix, prefix, prefix, example);
    return 0;
}

static int count(const char *text, const char *word) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) n++;
    return n;
}

static void launched(void **state) {
    (void)state;
    static const char *const sizes[] = {"1", "2", "4"};
    for (int i = 0; i < 3; i++) {
        program_run(&p, 30, "launch", "-n", sizes[i], example, NULL);
        if (p.code) fail_msg("%s: %s%s", sizes[i], p.out, p.err);
        assert_int_equal(count(p.out, "hello from rank"), atoi(sizes[i]));
        assert_int_equal(count(p.out, ": all right"), atoi(sizes[i]));
    }
    assert_non_null(strstr(p.out, "[rank 3] hello from rank 3 of 4"));
    assert_non_null(strstr(p.out, "'around 4 ranks' came back"));
    assert_non_null(strstr(p.out, "all_reduce by direct"));
}

static void alone(void **state) {
    (void)state;
    shell(0, "env -u RANK -u WORLD_SIZE %s", example);
}

/* By the classic variables alone: what torchrun and Kubernetes set. */
static void by_environment(void **state) {
    (void)state;
    shell(0,
          "export MASTER_ADDR=127.0.0.1 MASTER_PORT=%d WORLD_SIZE=3; "
          "RANK=2 %s & a=$!; RANK=1 %s & b=$!; RANK=0 %s && wait $a && wait $b",
          29000 + (int)(getpid() % 900), example, example, example);
}

static void by_mpirun(void **state) {
    (void)state;
    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no mpirun here: not tested\n");
        skip();
    }
    shell(
        0,
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np 3 %s",
        example);
}

static void refused(void **state) {
    (void)state;
    program_run(&p, 10, "launch", example, NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "launch", "-n", "65", example, NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "launch", "-n", "2", NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "launch", "-n", "2", "/no/such/program", NULL);
    assert_int_equal(p.code, 73);
    assert_non_null(strstr(p.err, "cannot start /no/such/program"));
    program_run(&p, 10, "launch", "-n", "2", "false", NULL);
    assert_int_equal(p.code, 1);
    shell(64, "RANK=2 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29999 %s", example);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launched),  cmocka_unit_test(alone),   cmocka_unit_test(by_environment),
        cmocka_unit_test(by_mpirun), cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
