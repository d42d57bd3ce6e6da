/* The installed library: the examples, and a program that calls every function for groups, build
 * against it as a user would build them, and run under 'engine launch', mpirun, or alone. */
#include "engine/base/file.h"
#include "engine/base/memory.h"
#include "engine/base/version.h"
#include "tests/harness/program.h"

#include <ctype.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct program p;
static char prefix[512], example[600], example_train[600], trainer[600], ranks[600];

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

/* Compiles a program of the source folder against what is installed. */
static void build(const char *source, char out[600]) {
#ifdef ENGINE_SANITIZED
    const char *flags = "-fsanitize=" ENGINE_SANITIZED_AS;
#else
    const char *flags = "";
#endif
    snprintf(out, 600, "%s", scratch_path(strrchr(source, '/') + 1));
    out[strlen(out) - strlen(".c")] = '\0';
    shell(0,
          "cc -std=c11 -O1 -Wall -Wextra -Werror %s %s/%s "
          "$(PKG_CONFIG_PATH=%s/lib/pkgconfig:%s/lib/$(cc -print-multiarch)/pkgconfig "
          "pkg-config --cflags --libs engine) -Wl,-rpath,%s/lib -Wl,-rpath,%s/lib/$(cc "
          "-print-multiarch) -o %s",
          flags, ENGINE_SOURCE_DIR, source, prefix, prefix, prefix, prefix, out);
}

static int setup(void **state) {
    (void)state;
    snprintf(prefix, sizeof prefix, "%s", scratch_path("installed"));
    shell(0, "cmake --install %s --prefix %s", ENGINE_BINARY_DIR, prefix);
    build("examples/allreduce.c", example);
    build("examples/train.c", example_train);
    build("tests/e2e/library_train.c", trainer);
    build("tests/e2e/library_ranks.c", ranks);
    return 0;
}

static char *text_of(const char *path, struct pool *pool) {
    char *text;
    size_t n;
    assert_ok(file_read(path, 1 << 20, pool, &text, &n));
    return text;
}

/* Another project's CMakeLists.txt, in a place whose name has a space, as has the engine's. */
static void found_by_cmake(void **state) {
    static const char lists[] = "cmake_minimum_required(VERSION 3.22)\n"
                                "project(user C)\n"
                                "find_package(engine 0.1 REQUIRED)\n"
                                "add_executable(train \"" ENGINE_SOURCE_DIR "/examples/train.c\")\n"
                                "target_link_libraries(train PRIVATE engine::engine)\n";
    char place[512];
    (void)state;
    snprintf(place, sizeof place, "%s", scratch_path("of others"));
    shell(0, "cmake --install %s --prefix \"%s/the engine\" && mkdir \"%s/user\"", ENGINE_BINARY_DIR, place, place);
    save_text(scratch_path("of others/user/CMakeLists.txt"), lists);
#ifdef ENGINE_SANITIZED
    const char *flags = "-DCMAKE_C_FLAGS=-fsanitize=" ENGINE_SANITIZED_AS;
#else
    const char *flags = "";
#endif
    shell(0,
          "cd \"%s/user\" && cmake -S . -B build -DCMAKE_PREFIX_PATH=\"%s/the engine\" %s "
          "-G \"$(sed -n s/^CMAKE_GENERATOR:INTERNAL=//p %s/CMakeCache.txt)\" && "
          "cmake --build build && build/train",
          place, place, flags, ENGINE_BINARY_DIR);
    shell(0,
          "cd \"%s\" && PKG_CONFIG_PATH=$(dirname \"$(find \"$PWD\" -name engine.pc)\") && "
          "export PKG_CONFIG_PATH && eval cc %s \"" ENGINE_SOURCE_DIR "/examples/train.c\" "
          "\"$(pkg-config --cflags --libs engine)\" -o train",
          place, flags + (*flags ? strlen("-DCMAKE_C_FLAGS=") : 0));
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
    program_run(&p, 30, "launch", "-n", "2", "sh", "-c", "\"$0\" && echo $MASTER_ADDR:$MASTER_PORT", example, NULL);
    if (p.code) fail_msg("through a shell: %s%s", p.out, p.err);
    assert_int_equal(count(p.out, ": all right"), 2);
    assert_int_equal(count(p.out, "127.0.0.1:"), 2);
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
    static const char *const plays[] = {"wait", "start", "parts"};
    static const char root[] = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1";
    shell(0, "%s mpirun --oversubscribe -np 3 %s", root, example);
    bool module = access(ENGINE_BINARY_DIR "/libengine_mpi.so", R_OK) == 0 || getenv("ENGINE_MPI_MODULE");
    for (int i = 0; module && i < 3; i++) /* messages by tags, too, which the library does not carry */
        shell(0, "%s TEST_LINK=mpi mpirun --oversubscribe -np 3 %s %s", root, ranks, plays[i]);
}

static void refused(void **state) {
    (void)state;
    program_run(&p, 10, "launch", example, NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "launch", "-n", "4097", example, NULL);
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

/* ---- every function ---- */

static void every_call(const char *part, const char *size) {
    program_run(&p, 120, "launch", "-n", size, ranks, part, NULL);
    if (p.code) fail_msg("%s of %s: %s%s", part, size, p.out, p.err);
    assert_int_equal(count(p.out, " is right"), atoi(size));
}

/* Under 'engine launch', over the links that need a store, too. */
static void every_link(void **state) {
    (void)state;
    static const char *const links[] = {"shm", "tcp", "hosts"};
    for (int i = 0; i < 3; i++) {
        setenv("TEST_LINK", links[i], 1);
        every_call("wait", "3");
        every_call("start", "2");
        every_call("parts", "3");
    }
    unsetenv("TEST_LINK");
}

/* Two hosts with two ranks each: network namespaces that a bridge joins. hosts.sh gives a program the
 * words: run PART --nnodes 2 --node-rank K --master-addr A. */
static void over_hosts(void **state) {
    (void)state;
    static const char *const plays[] = {"wait", "start", "parts"};
    for (int i = 0; i < 3; i++) {
        char folder[600], script[700], text[2000], command[3000];
        snprintf(folder, sizeof folder, "%s", scratch_path(plays[i]));
        assert_int_equal(mkdir(folder, 0755), 0);
        snprintf(script, sizeof script, "%s/launch", folder);
        snprintf(text, sizeof text, "#!/bin/sh\nexec %s/engine launch -n 2 --join-timeout=20 $3 $4 $5 $6 $7 $8 %s $2\n",
                 ENGINE_BINARY_DIR, ranks);
        save_text(script, text);
        assert_int_equal(chmod(script, 0755), 0);
        snprintf(command, sizeof command,
                 "timeout -s KILL 120 unshare -rn sh %s/tests/harness/hosts.sh %s 2 none %s %s", ENGINE_SOURCE_DIR,
                 folder, script, plays[i]);
        if (system(command) != 0) {
            print_message("no network namespaces here: nothing is tested\n");
            skip();
        }
        for (int k = 0; k < 2; k++) {
            char said[2][700];
            struct pool *pool;
            assert_ok(pool_create(&pool));
            snprintf(said[0], sizeof said[0], "%s/host%d.out", folder, k);
            snprintf(said[1], sizeof said[1], "%s/host%d.err", folder, k);
            if (count(text_of(said[0], pool), " of 4: ") != 2)
                fail_msg("%s, host %d: %s", plays[i], k, text_of(said[1], pool));
            pool_free(pool);
        }
    }
}

/* ---- torchrun's words ---- */

static const char all_variables[] =
    "echo $RANK.$LOCAL_RANK.$WORLD_SIZE.$LOCAL_WORLD_SIZE.$GROUP_RANK.$GROUP_WORLD_SIZE.$TORCHELASTIC_RESTART_COUNT; "
    "test $TORCHELASTIC_RESTART_COUNT = 1";

/* All ranks fail at the first start; what they write goes to files alone, or there and here. */
static void restarted_and_logged(void **state) {
    struct pool *pool;
    char folder[600], path[700];
    (void)state;
    assert_ok(pool_create(&pool));
    for (int tee = 0; tee < 2; tee++) {
        snprintf(folder, sizeof folder, "%s", scratch_path(tee ? "logs/tee" : "logs/redirects"));
        program_run(&p, 30, "launch", "--standalone", "--nproc_per_node=2", "--max-restarts", "3", "--log-dir", folder,
                    "-r", "3", "--tee", tee ? "3" : "0", "sh", "-c", all_variables, NULL);
        if (p.code) fail_msg("%s%s", p.out, p.err);
        assert_int_equal(count(p.err, "ended with code 1: all ranks start again, for the 1. time of 3"), 1);
        assert_int_equal(count(p.out, "1.1.2.2.0.1.0"), tee);
        snprintf(path, sizeof path, "%s/rank1.log", folder);
        assert_string_equal(text_of(path, pool), "1.1.2.2.0.1.0\n1.1.2.2.0.1.1\n");
    }
    pool_free(pool);
    program_run(&p, 30, "launch", "-n", "2", "--max-restarts=2", "false", NULL);
    assert_int_equal(p.code, 1);
    assert_int_equal(count(p.err, "all ranks start again"), 2);
}

static void by_python(void **state) {
    const char *file = scratch_path("train.py");
    char line[700];
    (void)state;
    save_text(file, "");
    setenv("PYTHON_EXEC", "echo", 1);
    program_run(&p, 10, "launch", "-n", "1", "-m", "package.train", "--lr", "1", NULL);
    assert_string_equal(p.out, "[rank 0] -u -m package.train --lr 1\n");
    program_run(&p, 10, "launch", "-n", "1", file, "-m", NULL);
    snprintf(line, sizeof line, "[rank 0] -u %s -m\n", file);
    assert_string_equal(p.out, line);
    program_run(&p, 10, "launch", "-n", "1", "--no-python", file, NULL);
    assert_int_equal(p.code, 73);
    save_text(file, "#!/bin/sh\necho itself\n");
    assert_int_equal(chmod(file, 0755), 0);
    program_run(&p, 10, "launch", "-n", "1", file, NULL);
    assert_string_equal(p.out, "[rank 0] itself\n");
    unsetenv("PYTHON_EXEC");
}

/* The environment of a pod stands for options that are not given. */
static void by_variables(void **state) {
    static const char place[] = "echo $MASTER_ADDR:$MASTER_PORT";
    (void)state;
    setenv("PET_NPROC_PER_NODE", "3", 1);
    setenv("PET_NNODES", "1:1", 1);
    setenv("PET_NODE_RANK", "", 1);
    setenv("PET_RDZV_ENDPOINT", "[::1]:28765", 1);
    program_run(&p, 10, "launch", "sh", "-c", place, NULL);
    assert_int_equal(count(p.out, "::1:28765\n"), 3);
    program_run(&p, 10, "launch", "-n", "1", "--master-addr", "127.0.0.2", "--master-port", "28766", "sh", "-c", place,
                NULL);
    assert_string_equal(p.out, "[rank 0] 127.0.0.2:28766\n");
    setenv("PET_NNODES", "1:x", 1);
    program_run(&p, 10, "launch", "true", NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "PET_NNODES is a number of hosts, as in 2, or 2:4 from MIN to MAX, not '1:x'"));
    unsetenv("PET_NPROC_PER_NODE");
    unsetenv("PET_NNODES");
    unsetenv("PET_NODE_RANK");
    unsetenv("PET_RDZV_ENDPOINT");
}

static void words_refused(void **state) {
    static const struct {
        const char *words[5], *says;
        int code;
    } all[] = {
        {{"--standalone", "--nnodes", "2"}, "--standalone is this host alone", 64},
        {{"--standalone", "--rdzv-endpoint", "a"}, "--standalone is this host alone", 64},
        {{"-m", "--no-python"}, "-m runs a module by Python", 64},
        {{"-r", "3"}, "-r and -t write to a folder: --log-dir DIR", 64},
        {{"-r", "2"}, "-r is 0 or 3, not '2'", 64},
        {{"--nnodes", "3:2"}, "as in 2, or 2:4 from MIN to MAX, not '3:2'", 64},
        {{"--nnodes", "2:"}, "not '2:'", 64},
        {{"-n", "some"}, "auto, gpu or cpu, not 'some'", 64},
        {{"--log-dir", "/dev/null/x"}, "/dev/null", 73},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *words[12] = {ENGINE_BINARY_DIR "/engine", "launch", "-n", "1"};
        int n = 4;
        for (int k = 0; all[i].words[k]; k++) words[n++] = all[i].words[k];
        words[n] = "true";
        program_spawn(&p, words);
        assert_true(program_wait(&p, 10));
        if (p.code != all[i].code || !strstr(p.err, all[i].says)) fail_msg("%s: %d: %s", all[i].says, p.code, p.err);
    }
}

/* Hosts that were started wrongly are told so. */
static void hosts_refused(void **state) {
    (void)state;
    program_run(&p, 10, "launch", "-n", "2", "--nnodes", "2", example, NULL);
    assert_int_equal(p.code, 78);
    assert_non_null(strstr(p.err, "several hosts need a secret in common"));
    program_run(&p, 10, "launch", "-n", "2", "--nnodes", "2", "--node-rank", "2", example, NULL);
    assert_int_equal(p.code, 64);
    assert_non_null(strstr(p.err, "node 2 of 2"));
    program_run(&p, 10, "launch", "-n", "2", "--master-port", "0", example, NULL);
    assert_int_equal(p.code, 64);
    setenv("ENGINE_TOKEN", "a secret of this test", 1);
    program_run(&p, 10, "launch", "-n2", "--nnodes", "2", example, NULL);
    assert_int_equal(p.code, 64);
    program_run(&p, 10, "launch", "-n", "2", "--nnodes=2", "--join_timeout=1", "--master_port", "28977", example, NULL);
    assert_int_equal(p.code, 75);
    assert_non_null(strstr(p.err, "node 1 of 2 has not come within 1.0 s"));
    unsetenv("ENGINE_TOKEN");
}

static void calls_that_wait(void **state) {
    (void)state;
    static const char *const sizes[] = {"1", "3", "4"};
    for (int i = 0; i < 3; i++) every_call("wait", sizes[i]);
}

static void calls_waited_for_later(void **state) {
    (void)state;
    static const char *const sizes[] = {"1", "2", "3"};
    for (int i = 0; i < 3; i++) every_call("start", sizes[i]);
}

static void memory_and_parts(void **state) {
    (void)state;
    every_call("parts", "2");
    every_call("parts", "4");
}

static void calls_refused(void **state) {
    (void)state;
    every_call("many", "1");
    every_call("refuse", "1");
    every_call("disagree", "2");
    every_call("miscount", "2");
    every_call("give-up", "3");
}

/* Ranks that a script has started, over TCP. */
static void calls_over_tcp(void **state) {
    (void)state;
    static const char *const plays[] = {"wait", "start", "parts"};
    for (int i = 0; i < 3; i++)
        shell(0,
              "export TEST_LINK=tcp MASTER_ADDR=127.0.0.1 MASTER_PORT=%d WORLD_SIZE=3; "
              "RANK=2 %s %s & a=$!; RANK=1 %s %s & b=$!; RANK=0 %s %s && wait $a && wait $b",
              28000 + (int)(getpid() % 900), ranks, plays[i], ranks, plays[i], ranks, plays[i]);
}

/* A rank that a script has started and that is killed: the script collects its exit code before the
 * others look, so that its number names no process any more. */
static void killed_by_hand(void **state) {
    (void)state;
    static const char *const links[] = {"shm", "tcp"}, *const plays[] = {"lose", "lose-another", "lose-sender"};
    for (int i = 0; i < 6; i++)
        shell(0,
              "export TEST_LINK=%s MASTER_ADDR=127.0.0.1 MASTER_PORT=%d WORLD_SIZE=3; "
              "RANK=1 %s %s & b=$!; RANK=2 %s %s & c=$!; RANK=0 %s %s & a=$!; "
              "wait $b; [ $? = 137 ] && wait $a && wait $c",
              links[i / 3], 28000 + (int)(getpid() % 900), ranks, plays[i % 3], ranks, plays[i % 3], ranks,
              plays[i % 3]);
}

/* ---- training ---- */

static void same_bits_by_both_modes(void **state) {
    (void)state;
    shell(0, "cd %s && %s", scratch_folder(), example_train);
}

/* What the library gives is what the program gives for the same configuration. */
/* Writes a locale in which numbers have a comma, in glibc's form: a mark, and the places of six values. false: the C library
 * does not read it. */
static bool comma_locale(void) {
    enum { MARK = 0x20031115 ^ LC_NUMERIC };
    const struct {
        uint32_t mark, values, at[6], comma, none, wide[2];
        char codeset[8];
    } all = {MARK, 6, {32, 36, 36, 40, 44, 48}, ',', 0, {',', 0}, "UTF-8"};
    FILE *f;
    shell(0, "mkdir -p %s", scratch_path("locales/comma"));
    assert_non_null(f = fopen(scratch_path("locales/comma/LC_NUMERIC"), "wb"));
    assert_int_equal(fwrite(&all, sizeof all, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    setenv("LOCPATH", scratch_path("locales"), 1);
    locale_t made = newlocale(LC_NUMERIC_MASK, "comma", (locale_t)0);
    unsetenv("LOCPATH");
    if (made) freelocale(made);
    return made != (locale_t)0;
}

/* A program whose numbers have a comma gets the same, and leaves the same checkpoint. */
static void trains_in_a_locale(const char *wanted, struct pool *pool) {
    if (!comma_locale()) {
        print_message("no locale with a comma here: not tested\n");
        return;
    }
    shell(0, "mkdir %s", scratch_path("comma"));
    shell(0, "cd %s && env -u LC_ALL LOCPATH=%s LC_NUMERIC=comma %s mode=dp devices=cpu:2 train=20st >told",
          scratch_path("comma"), scratch_path("locales"), trainer);
    const char *told = text_of(scratch_path("comma/told"), pool);
    assert_int_equal(strcspn(told, "\n"), strlen(wanted));
    assert_memory_equal(told, wanted, strlen(wanted));
    shell(0, "for step in %s/runs/*/ckpt/step-*; do %s/engine inspect $step || exit 1; done", scratch_path("comma"),
          ENGINE_BINARY_DIR);
}

static void trains(void **state) {
    (void)state;
    char mine[1000], theirs[1000];
    struct pool *pool;
    assert_ok(pool_create(&pool));
    shell(0, "cd %s && %s mode=dp devices=cpu:2 train=20st >told", scratch_folder(), trainer);
    assert_int_equal(sscanf(text_of(scratch_path("told"), pool), "%999[^\n]", mine), 1);
    program_run(&p, 60, "run", "--json", "--set", "mode=dp", "--set", "devices=cpu:2", "--set", "train=20st", NULL);
    assert_int_equal(p.code, 0);
    snprintf(theirs, sizeof theirs, "%s %s %s %lld %.17g %.17g %.17g", ENGINE_VERSION,
             program_string(&p, "weights_sha256"), program_string(&p, "losses_sha256"),
             (long long)program_number(&p, "steps"), program_number(&p, "train.loss"), program_number(&p, "val.loss"),
             program_number(&p, "val.accuracy"));
    assert_string_equal(mine, theirs);
    trains_in_a_locale(theirs, pool);
    pool_free(pool);
}

/* ---- what the header promises ---- */

enum { FUNCTIONS_MAX = 200 };
struct functions {
    int n;
    struct {
        char name[64];
        bool called;
    } of[FUNCTIONS_MAX];
};

/* What is declared is ENGINE_API and then, before the next ';', "engine_" and more before a '('. */
static void read_functions(struct functions *out, struct pool *pool) {
    for (const char *at = text_of(ENGINE_SOURCE_DIR "/engine/engine.h", pool); (at = strstr(at, "ENGINE_API ")); at++) {
        const char *end = strchr(at, '('), *line = strchr(at, ';');
        if (!end || !line || line < end) continue;
        const char *begin = end;
        while (isalnum((unsigned char)begin[-1]) || begin[-1] == '_') begin--;
        if (strncmp(begin, "engine_", 7)) continue; /* the macro itself */
        assert_true(out->n < FUNCTIONS_MAX);
        snprintf(out->of[out->n++].name, sizeof out->of->name, "%.*s", (int)(end - begin), begin);
    }
}

static bool calls(const char *text, const char *name) {
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)); at += n)
        if (at[n] == '(' && at > text && !isalnum((unsigned char)at[-1]) && at[-1] != '_') return true;
    return false;
}

/* The programs that the tests above run. */
static void every_function_is_called(void **state) {
    (void)state;
    static const char *const programs[] = {"tests/e2e/library_ranks.c", "tests/e2e/library_train.c"};
    static struct functions f;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    read_functions(&f, pool);
    assert_true(f.n >= 29);
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", ENGINE_SOURCE_DIR, programs[i]);
        const char *text = text_of(path, pool);
        for (int k = 0; k < f.n; k++) f.of[k].called |= calls(text, f.of[k].name);
    }
    for (int k = 0; k < f.n; k++)
        if (!f.of[k].called) fail_msg("no test calls %s", f.of[k].name);
    pool_free(pool);
}

/* The library gives a program these names and the one that 'engine' calls, and takes no other away from it. Debian's
 * package lists them, too. */
static void only_these_are_exported(void **state) {
    (void)state;
    static struct functions f;
    struct pool *pool;
    assert_ok(pool_create(&pool));
    read_functions(&f, pool);
    shell(0, "nm -D --defined-only %s/libengine.so | sed \"s/.* //\" | sort >%s", ENGINE_BINARY_DIR,
          scratch_path("exported"));
    const char *text = text_of(scratch_path("exported"), pool);
    const char *symbols = text_of(ENGINE_SOURCE_DIR "/debian/libengine0.symbols", pool);
    for (int k = 0; k < f.n; k++) {
        char line[80];
        snprintf(line, sizeof line, "\n %s@", f.of[k].name);
        if (!strstr(text, f.of[k].name)) fail_msg("%s is not exported", f.of[k].name);
        if (!strstr(symbols, line)) fail_msg("debian/libengine0.symbols lacks%s", line + 1);
    }
    assert_non_null(strstr(text, "engine_program\n"));
    assert_int_equal(count(text, "\n"), f.n + 1);
    pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_by_cmake),
        cmocka_unit_test(launched),
        cmocka_unit_test(restarted_and_logged),
        cmocka_unit_test(by_python),
        cmocka_unit_test(by_variables),
        cmocka_unit_test(words_refused),
        cmocka_unit_test(alone),
        cmocka_unit_test(by_environment),
        cmocka_unit_test(by_mpirun),
        cmocka_unit_test(refused),
        cmocka_unit_test(every_link),
        cmocka_unit_test(over_hosts),
        cmocka_unit_test(hosts_refused),
        cmocka_unit_test(calls_that_wait),
        cmocka_unit_test(calls_waited_for_later),
        cmocka_unit_test(memory_and_parts),
        cmocka_unit_test(calls_refused),
        cmocka_unit_test(calls_over_tcp),
        cmocka_unit_test(killed_by_hand),
        cmocka_unit_test(same_bits_by_both_modes),
        cmocka_unit_test(trains),
        cmocka_unit_test(every_function_is_called),
        cmocka_unit_test(only_these_are_exported),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
