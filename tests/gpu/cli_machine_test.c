/* A machine with GPUs, as 'engine doctor --devices' and 'engine doctor' see it; ranks on them that are killed; and the script
 * that proves all this on a real one. */
#include "tests/gpu/gpu.h"
#include "tests/harness/program.h"
#include "tests/harness/timing.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct program p;

static void expect(const char *text, const char *words) {
    if (!strstr(text, words)) fail_msg("no '%s' in:\n%s%s", words, p.out, p.err);
}

static void all_is_well(void **state) {
    char last[32];
    (void)state;
    snprintf(last, sizeof last, "ok       cuda:%d", gpu_count() - 1);
    program_run(&p, 300, "doctor", "cuda", NULL);
    if (p.code) fail_msg("%s%s", p.out, p.err);
    expect(p.out, last);
    expect(p.out, "opened, and a kernel ran");
    if (gpu_count() > 1) expect(p.out, "reaches the others' memory: copied, and compared");
    expect(p.out, "ok       cuDNN");
    expect(p.out, "0 missing");
    program_run(&p, 60, "devices", NULL);
    assert_int_equal(p.code, 0);
    expect(p.out, "  cuda:0  ");
    expect(p.out, "'devices: auto' means cuda:0");
}

/* kill -9: the others know within the deadline, and none is left. */
static void a_rank_is_killed(void **state) {
    char dir[600];
    (void)state;
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("killed"));
    const char *words[] = {"run",   "--no-progress",
                           "--set", "mode=ddp",
                           "--set", "devices=cuda:0,0",
                           "--set", "threads=1",
                           "--set", "train=1000000st",
                           "--set", "checkpoint=off",
                           "--set", "eval=end",
                           "--set", dir,
                           "--set", "model={zoo: mlp, hidden: [16]}",
                           NULL};
    program_start(&p, words);
    pid_t victim = program_rank(&p, 1, 60);
    program_wait_text(&p, "NCCL_HOSTID", 60); /* the group is open */
    usleep(500000);
    assert_int_equal(kill(victim, SIGKILL), 0);
    if (!program_wait(&p, 60)) fail_msg("still running:\n%s", p.err);
    assert_int_equal(p.code, 75);
    expect(p.err, "rank 1");
    assert_int_equal(program_orphans(), 0);
}

#ifdef ENGINE_EMULATED
/* A kernel of the fifth step that never ends: the run does, within comm.timeout, and names the GPU, in every mode and
 * whichever way gradients take. */
static void a_gpu_that_hangs_is_named(void **state) {
    static const struct {
        const char *hang, *mode, *devices, *more, *says;
    } cases[] = {
        {"rows_add:5@0", "single", "cuda:0", "cuda.graph=auto", "GPU 0 (Emulated GPU)"},
        {"rows_add:5@1", "single", "cuda:1", "cuda.graph=off", "GPU 1 (Emulated GPU)"},
        {"rows_add:5@1", "dp", "cuda:0,1", "comm.backend=peer", "GPU 1 (Emulated GPU)"},
        {"rows_add:5@0", "dp", "cuda:0,1", "dp.overlap=off", "GPU 0 (Emulated GPU)"},
        {"rows_add:5@1", "dp", "cuda:0,1", "comm.backend=host", "GPU 1 (Emulated GPU)"},
        {"rows_add:5@1", "dp", "cuda:0,1", "dp.server=sharded", "GPU 1 (Emulated GPU)"},
        {"rows_add:5@0", "ddp", "cuda:0,1", "comm.backend=nccl", "rank 0: GPU 0 (Emulated GPU)"},
        {"rows_add:5@1", "ddp", "cuda:0,1", "comm.backend=host", "rank 1: GPU 1 (Emulated GPU)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char mode[32], devices[32], dir[600];
        snprintf(mode, sizeof mode, "mode=%s", cases[i].mode);
        snprintf(devices, sizeof devices, "devices=%s", cases[i].devices);
        snprintf(dir, sizeof dir, "log.dir=%s/hung-%zu", scratch_folder(), i);
        setenv("ENGINE_EMULATED_HANG", cases[i].hang, 1);
        program_run(&p, 60, "run", "--no-progress", "--set", mode, "--set", devices, "--set", cases[i].more, "--set",
                    "threads=1", "--set", "train=40st", "--set", "checkpoint=off", "--set", "eval=end", "--set",
                    "comm.timeout=5s", "--set", dir, "--set", "model={zoo: mlp, hidden: [16]}", NULL);
        unsetenv("ENGINE_EMULATED_HANG");
        if (p.code != 75) fail_msg("case %zu ends with %d:\n%s%s", i, p.code, p.out, p.err);
        expect(p.err, cases[i].says);
        expect(p.err, "has not done within 4");
        expect(p.err, "s what it was asked (training, step 4)");
        if (p.seconds > timing_limit(20)) fail_msg("case %zu took %g s", i, p.seconds);
        assert_int_equal(program_orphans(), 0);
    }
}

static void seen_with(const char *gpus, const char *says, int code) {
    setenv("ENGINE_EMULATED_GPUS", gpus, 1);
    program_run(&p, 60, "devices", NULL);
    assert_int_equal(p.code, 0);
    expect(p.out, says);
    program_run(&p, 300, "doctor", "cuda", NULL);
    if (p.code != code) fail_msg("%s GPUs: doctor gives %d:\n%s", gpus, p.code, p.out);
    unsetenv("ENGINE_EMULATED_GPUS");
}

static void however_many_there_are(void **state) {
    (void)state;
    seen_with("0", "there is no NVIDIA driver", 69);
    expect(p.out, "missing  cuda ");
    seen_with("1", "'devices: auto' means cuda:0 ", 0);
    assert_null(strstr(p.out, "peer access"));
    seen_with("2", "means cuda:0,1 ", 0);
    seen_with("3", "means cuda:0,1 ", 0);
    seen_with("4", "means cuda:0,1,2,3 ", 0);
    expect(p.out, "ok       peer access");
}

static void what_does_not_work_is_told(void **state) {
    (void)state;
    setenv("ENGINE_EMULATED_PEERS", "0", 1);
    program_run(&p, 60, "doctor", "cuda", NULL);
    unsetenv("ENGINE_EMULATED_PEERS");
    assert_int_equal(p.code, 0);
    expect(p.out, "warning  peer access");
    setenv("ENGINE_EMULATED_CUBLASLT_VERSION", "120304", 1);
    program_run(&p, 60, "doctor", "cuda", NULL);
    unsetenv("ENGINE_EMULATED_CUBLASLT_VERSION");
    assert_int_equal(p.code, 69);
    expect(p.out, "missing  cuBLASLt");
    setenv("ENGINE_EMULATED_FAIL", "cudaLaunchKernel:1", 1);
    program_run(&p, 60, "doctor", "cuda", NULL);
    unsetenv("ENGINE_EMULATED_FAIL");
    assert_int_equal(p.code, 69);
    expect(p.out, "missing  cuda:0");
}

/* Training then goes through the host. */
static void nccl_that_fails_is_told(void **state) {
    static const char *const faults[][2] = {
        {"remote_error:1", "warning  NCCL             ncclAllReduce: "},
        {"remote_error:1@0", "set NCCL_DEBUG=INFO"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        setenv("FAKE_NCCL_FAULT", faults[i][0], 1);
        program_run(&p, 60, "doctor", "cuda", NULL);
        unsetenv("FAKE_NCCL_FAULT");
        assert_int_equal(p.code, 0);
        expect(p.out, faults[i][1]);
    }
    setenv("ENGINE_CUDA_LIBRARIES", scratch_folder(), 1);
    program_run(&p, 60, "doctor", "cuda", NULL);
    setenv("ENGINE_CUDA_LIBRARIES", ENGINE_BINARY_DIR "/emulated", 1);
    assert_int_equal(p.code, 69);
    expect(p.out, "warning  NCCL             NCCL 2 was not found");
    expect(p.out, "missing  cuBLASLt         cuBLASLt 13 was not found");
}

/* What NCCL is told by the environment, with so many further settings of the run. */
static const char *nccl_told(const char *const *sets) {
    static char text[512];
    const char *path = scratch_path("settings");
    const char *words[PROGRAM_ARGS] = {"run",   "--no-progress",    "--set", "mode=ddp",
                                       "--set", "devices=cuda:0,1", "--set", "threads=1",
                                       "--set", "train=1st",        "--set", "checkpoint=off",
                                       "--set", "eval=end",         "--set", "model={zoo: mlp, hidden: [16]}"};
    int n = 0;
    while (words[n]) n++;
    for (; *sets; sets++) words[n++] = "--set", words[n++] = *sets;
    setenv("FAKE_NCCL_SETTINGS", path, 1);
    program_start(&p, words);
    assert_true(program_wait(&p, 60));
    unsetenv("FAKE_NCCL_SETTINGS");
    if (p.code) fail_msg("%s%s", p.out, p.err);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void nccl_keeps_to_what_the_run_asks_for(void **state) {
    char dir[600];
    (void)state;
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("nccl-told"));
    const char *plain[] = {dir, NULL}, *loose[] = {dir, "deterministic=false", NULL},
               *by_name[] = {dir, "comm.interface=lo", NULL}, *by_address[] = {dir, "comm.interface=127.0.0.1", NULL};
    assert_string_equal(nccl_told(plain), "NCCL_NVLS_ENABLE=0\nNCCL_SOCKET_IFNAME=\n");
    assert_string_equal(nccl_told(loose), "NCCL_NVLS_ENABLE=\nNCCL_SOCKET_IFNAME=\n");
    assert_string_equal(nccl_told(by_name), "NCCL_NVLS_ENABLE=0\nNCCL_SOCKET_IFNAME==lo\n");
    assert_string_equal(nccl_told(by_address), "NCCL_NVLS_ENABLE=0\nNCCL_SOCKET_IFNAME==lo\n");
    setenv("NCCL_NVLS_ENABLE", "2", 1);
    setenv("NCCL_SOCKET_IFNAME", "eth", 1);
    assert_string_equal(nccl_told(by_name), "NCCL_NVLS_ENABLE=2\nNCCL_SOCKET_IFNAME=eth\n");
    expect(p.err, "the same run again may give other bits");
    unsetenv("NCCL_NVLS_ENABLE");
    unsetenv("NCCL_SOCKET_IFNAME");
}

/* Where nvidia-smi shows a GPU, one that cannot be used or that hangs is no reason to skip. */
static void proof_needs_a_gpu_that_works(const char *const *words) {
    char path[8192];
    const char *before = getenv("PATH");
    FILE *f = fopen(scratch_path("nvidia-smi"), "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\necho 'GPU 0: NVIDIA H100'\n");
    fclose(f);
    assert_int_equal(chmod(scratch_path("nvidia-smi"), 0755), 0);
    char *keep = strdup(before);
    snprintf(path, sizeof path, "%s:%s", scratch_folder(), keep);
    setenv("PATH", path, 1);
    setenv("ENGINE_EMULATED_GPUS", "0", 1);
    program_spawn(&p, words);
    assert_true(program_wait(&p, 300));
    unsetenv("ENGINE_EMULATED_GPUS");
    setenv("PATH", keep, 1);
    free(keep);
    assert_int_equal(p.code, 69);
    expect(p.err, "nvidia-smi shows a GPU that the engine cannot use: no GPU can be used");
    setenv("ENGINE_EMULATED_HANG", "sum_kernel:1@0", 1);
    setenv("PROVE_DOCTOR_SECONDS", "5", 1);
    program_spawn(&p, words);
    assert_true(program_wait(&p, 300));
    unsetenv("ENGINE_EMULATED_HANG");
    unsetenv("PROVE_DOCTOR_SECONDS");
    assert_int_equal(p.code, 69);
    expect(p.err, "gpu-test: a GPU hangs, 'engine doctor cuda' ends with 124");
}

/* The row of layers: the bound of the cost page, what was measured, and the share of it. */
static void layers_are_beside_their_bound(const char *rows) {
    double expected, measured, share;
    const char *at = strstr(rows, "expected ");
    if (!at || sscanf(at, "expected %lf ms or more, measured %lf, share %lf %%", &expected, &measured, &share) != 3)
        fail_msg("%s", rows);
    program_run(&p, 60, "model", "summary", "mlp", "--batch", "2", "--device", "h100", "--json", "--set",
                "precision=f32", "--set", "devices=cuda:0", "--set", "mode=single", NULL);
    double bound = program_number(&p, "cost.step_ms") - program_number(&p, "cost.update.ms");
    assert_true(bound > 0 && fabs(expected - bound) <= 0.0051);
    assert_true(fabs(share - 100 * bound / measured) <= 0.51 + share / 100);
}

static void file_text(const char *path, char *text, size_t room) {
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, room - 1, f)] = '\0';
    fclose(f);
}

/* The script by itself: one row for each thing, and the exit code that they give together. */
static void the_proof_runs(void **state) {
    (void)state;
    char table[600];
    static char text[1 << 16];
    snprintf(table, sizeof table, "%s", scratch_path("table.txt"));
    const char *words[] = {"env",
                           "ENGINE=" ENGINE_BINARY_DIR "/engine_emulated",
                           "sh",
                           ENGINE_SOURCE_DIR "/tests/gpu/prove.sh",
                           "--quick",
                           "--only",
                           "about,sanitizer,layers",
                           table,
                           NULL};
    program_spawn(&p, words);
    assert_true(program_wait(&p, 300));
    if (p.code) fail_msg("%s%s", p.out, p.err);
    file_text(table, text, sizeof text);
    assert_non_null(strstr(text, "EMULATED"));
    assert_non_null(strstr(text, "engine doctor cuda"));
    assert_non_null(strstr(text, "0 failed"));
    expect(text, "racecheck");
    file_text(scratch_path("table.json"), text, sizeof text);
    assert_non_null(strstr(text, "{\"what\":\"memcheck\",\"result\":\"skipped\",\"seconds\":null,"));
    layers_are_beside_their_bound(text);
    program_run(&p, 30, "report", scratch_path("table.json"), "--format", "txt", "-o", "-", NULL);
    expect(p.out, "5 parts: 2 passed, 0 failed, 3 skipped.");
    setenv("ENGINE_EMULATED_GPUS", "0", 1);
    program_spawn(&p, words);
    assert_true(program_wait(&p, 300));
    unsetenv("ENGINE_EMULATED_GPUS");
    assert_int_equal(p.code, 0);
    expect(p.out, "gpu-test: skipped: no GPU can be used");
    proof_needs_a_gpu_that_works(words);
    const char *list[] = {"sh", ENGINE_SOURCE_DIR "/tests/gpu/prove.sh", "--list", NULL},
               *wrong[] = {"sh", ENGINE_SOURCE_DIR "/tests/gpu/prove.sh", "--only", "faults,speed", NULL};
    program_spawn(&p, list);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 0);
    expect(p.out, "bits-bf16  ");
    program_spawn(&p, wrong);
    assert_true(program_wait(&p, 60));
    assert_int_equal(p.code, 64);
    expect(p.err, "there is no part 'speed'");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_well),
        cmocka_unit_test(a_rank_is_killed),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(a_gpu_that_hangs_is_named),
        cmocka_unit_test(however_many_there_are),
        cmocka_unit_test(what_does_not_work_is_told),
        cmocka_unit_test(nccl_that_fails_is_told),
        cmocka_unit_test(nccl_keeps_to_what_the_run_asks_for),
        cmocka_unit_test(the_proof_runs),
#endif
    };
    return gpu_run_tests(tests);
}
