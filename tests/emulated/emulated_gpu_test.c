/* The emulated GPU itself: threads that meet, streams that run late, captures, and what it must catch. */
#include "tests/emulated/selftest_run.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Pinned memory may be written only when the stream stands. */
static void hold(void *gate) {
    while (!atomic_load((atomic_int *)gate)) usleep(100);
}

static void threads_meet(void **state) {
    (void)state;
    cudaStream_t s = stream_new(0);
    enum { LANES = 48, SUMS = 3, WIDTH = 512 };
    unsigned *lanes = device_new(LANES * SELF_WARP * sizeof *lanes), got[LANES][SELF_WARP];
    GOOD(self_warp(lanes, s));
    GOOD(cudaMemcpyAsync(got, lanes, sizeof got, cudaMemcpyDeviceToHost, s));
    for (unsigned i = 0; i < LANES; i++) {
        unsigned lane = i % 32, base = i - lane;
        assert_int_equal(got[i][0], lane / 8 * 8 + 5 + base);
        assert_int_equal(got[i][1], lane % 16 < 3 ? i : i - 3);
        if (i < 32 || lane < 13) assert_int_equal(got[i][2], lane % 8 >= 5 ? i : i + 3);
        assert_int_equal(got[i][3], i ^ 1);
        unsigned thirds = 0;
        for (unsigned j = 0; j < 32 && base + j < LANES; j++) thirds |= (unsigned)((base + j) % 3 == 0) << j;
        assert_int_equal(got[i][4], thirds);
        assert_int_equal(got[i][5], i < 32 ? 1 : 2);
        assert_int_equal(got[i][6], i % 2 ? base + 7 : 0);
        assert_int_not_equal(got[i][7] >> lane & 1, 0);
    }
    float *x = device_new(SUMS * WIDTH * sizeof *x), *sums = device_new(SUMS * sizeof *sums);
    float values[SUMS * WIDTH], results[SUMS];
    for (int i = 0; i < SUMS * WIDTH; i++) values[i] = (float)(i % 97);
    GOOD(cudaMemcpyAsync(x, values, sizeof values, cudaMemcpyHostToDevice, s));
    GOOD(self_block_sum(sums, x, WIDTH, SUMS, s));
    GOOD(cudaMemcpyAsync(results, sums, sizeof results, cudaMemcpyDeviceToHost, s));
    for (int b = 0; b < SUMS; b++) {
        float sum = 0;
        for (int i = 0; i < WIDTH; i++) sum += values[b * WIDTH + i];
        assert_float_equal(results[b], sum, 0);
    }
    GOOD(cudaFree(lanes));
    GOOD(cudaFree(x));
    GOOD(cudaFree(sums));
    GOOD(cudaStreamDestroy(s));
}

static void wide_shuffles(void **state) {
    (void)state;
    cudaStream_t s = stream_new(0);
    uint64_t *x = device_new(64 * sizeof *x), got[64];
    GOOD(self_wide(x, s));
    GOOD(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, s));
    for (uint64_t i = 0; i < 32; i++) {
        uint64_t other = i ^ 31, next = i < 31 ? i + 1 : i;
        assert_true(got[2 * i] == (other << 40 | other));
        assert_true(got[2 * i + 1] == (next << 8 | next));
    }
    GOOD(cudaFree(x));
    GOOD(cudaStreamDestroy(s));
}

static void votes_and_atomics(void **state) {
    (void)state;
    cudaStream_t s = stream_new(0);
    int *x = device_new(64 * sizeof *x), got[64];
    GOOD(cudaMemsetAsync(x, 0, 64 * sizeof *x, s));
    GOOD(self_count(x, 3, 96, s));
    GOOD(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, s));
    assert_int_equal(got[0], 3 * 96);
    assert_int_equal(got[1], 48);
    assert_int_equal(got[2], 3 * 96);
    GOOD(self_early_end(x, s));
    GOOD(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 40; i++) assert_int_equal(got[i], 39 - i);
    GOOD(cudaFree(x));
    GOOD(cudaStreamDestroy(s));
}

static void memory_begins_poisoned(void **state) {
    (void)state;
    cudaStream_t s = stream_new(0);
    unsigned *x = device_new(128 * sizeof *x), got[128];
    GOOD(cudaMemcpy(got, x, sizeof got, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 128; i++) assert_int_equal(got[i], 0xffffffffu);
    GOOD(cudaMemsetAsync(x, 0, sizeof got, s));
    GOOD(self_fresh_shared(x, 4, s));
    GOOD(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, s));
    for (int i = 0; i < 128; i++) assert_int_equal(got[i], 0xffffffffu);
    GOOD(cudaFree(x));
    GOOD(cudaStreamDestroy(s));
}

static void limits_of_a_launch(void **state) {
    (void)state;
    cudaStream_t s = stream_new(0), other = stream_new(1);
    float *x = device_new(2 * sizeof *x), got[2];
    GIVES(cudaErrorInvalidResourceHandle, self_launch(1, 32, s)); /* GPU 1 is the current one */
    GOOD(self_launch(1, 32, other));
    GOOD(cudaSetDevice(0));
    GOOD(cudaFree(x));
    x = device_new(2 * sizeof *x);
    GIVES(cudaErrorInvalidConfiguration, self_launch(1, 1025, s));
    GIVES(cudaErrorInvalidConfiguration, self_launch(0, 32, s));
    GIVES(cudaErrorInvalidConfiguration, self_launch(INT64_C(1) << 32, 32, s));
    GIVES(cudaErrorInvalidValue, self_dynamic(x, 64 << 10, s));
    GIVES(cudaErrorInvalidValue, self_allow_dynamic(228 << 10));
    GOOD(self_allow_dynamic(64 << 10));
    GOOD(self_dynamic(x, 64 << 10, s));
    GOOD(cudaMemcpyAsync(got, x, sizeof got, cudaMemcpyDeviceToHost, s));
    assert_float_equal(got[0] + got[1], 6, 0);
    GOOD(cudaFree(x));
    GOOD(cudaStreamDestroy(s));
    GOOD(cudaStreamDestroy(other));
}

static void streams_run_late(void **state) {
    (void)state;
    enum { N = 1000 };
    atomic_int gate = 0;
    cudaStream_t s = stream_new(0), other = stream_new(1);
    float *there = device_new(N * sizeof *there), *host = pinned_new(N * sizeof *host);
    float *pageable = malloc(N * sizeof *pageable);
    GOOD(cudaSetDevice(0));
    float *x = device_new(2 * N * sizeof *x);
    cudaEvent_t done;
    GOOD(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
    for (int i = 0; i < N; i++) host[i] = pageable[i] = 1;
    GOOD(cudaLaunchHostFunc(s, hold, &gate));
    GOOD(cudaMemcpyAsync(x, host, N * sizeof *x, cudaMemcpyHostToDevice, s));
    GOOD(cudaMemcpyAsync(x + N, pageable, N * sizeof *x, cudaMemcpyHostToDevice, s));
    for (int i = 0; i < N; i++) host[i] = pageable[i] = 2; /* too early for one, not for the other */
    GOOD(self_scale(x, x, 10, 2 * N, s));
    GOOD(cudaEventRecord(done, s));
    GIVES(cudaErrorNotReady, cudaEventQuery(done));
    GIVES(cudaErrorNotReady, cudaStreamQuery(s));
    GOOD(cudaStreamWaitEvent(other, done, 0));
    GOOD(cudaMemcpyPeerAsync(there, 1, x, 0, N * sizeof *x, other));
    GIVES(cudaErrorNotReady, cudaStreamQuery(other));
    atomic_store(&gate, 1);
    GOOD(cudaMemcpyAsync(pageable, there, N * sizeof *x, cudaMemcpyDeviceToHost, other));
    GOOD(cudaEventSynchronize(done));
    GOOD(cudaEventQuery(done));
    GOOD(cudaMemcpyAsync(host, x + N, N * sizeof *x, cudaMemcpyDeviceToHost, s));
    GOOD(cudaStreamSynchronize(s));
    for (int i = 0; i < N; i++) {
        assert_float_equal(pageable[i], 20, 0);
        assert_float_equal(host[i], 10, 0);
    }
    GOOD(cudaEventDestroy(done));
    GOOD(cudaFree(x));
    GOOD(cudaFree(there));
    GOOD(cudaFreeHost(host));
    free(pageable);
    GOOD(cudaStreamDestroy(s));
    GOOD(cudaStreamDestroy(other));
}

static void the_legacy_stream(void **state) {
    (void)state;
    atomic_int gate = 0;
    cudaStream_t blocking, s;
    float *x = device_new(sizeof *x), *host = pinned_new(sizeof *host), one = 1;
    GOOD(cudaSetDevice(0));
    GOOD(cudaFree(x));
    x = device_new(sizeof *x);
    GOOD(cudaStreamCreate(&blocking));
    s = stream_new(0);
    GOOD(cudaMemcpy(x, &one, sizeof one, cudaMemcpyHostToDevice));
    setenv("ENGINE_EMULATED_RACES", "0", 1); /* it shows that one stream does not wait for the other */
    GOOD(cudaLaunchHostFunc(blocking, hold, &gate));
    GOOD(self_scale(x, x, 3, 1, blocking));
    GOOD(self_scale(x, x, 5, 1, NULL));
    GIVES(cudaErrorNotReady, cudaStreamQuery(NULL));
    GOOD(cudaMemcpyAsync(host, x, sizeof one, cudaMemcpyDeviceToHost, s)); /* does not wait */
    GOOD(cudaStreamSynchronize(s));
    assert_float_equal(*host, 1, 0);
    atomic_store(&gate, 1);
    GOOD(cudaMemcpy(&one, x, sizeof one, cudaMemcpyDeviceToHost));
    assert_float_equal(one, 15, 0);
    unsetenv("ENGINE_EMULATED_RACES");
    GOOD(cudaFree(x));
    GOOD(cudaFreeHost(host));
    GOOD(cudaStreamDestroy(s));
    GOOD(cudaStreamDestroy(blocking));
}

static void captures_are_replayed(void **state) {
    (void)state;
    cudaStream_t s = stream_new(0);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    float *x = device_new(4 * sizeof *x), *host = pinned_new(4 * sizeof *host);
    for (int i = 0; i < 4; i++) host[i] = (float)i;
    GOOD(cudaMemcpyAsync(x, host, 4 * sizeof *x, cudaMemcpyHostToDevice, s));
    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    GOOD(self_scale(x, x, 2, 4, s));
    GOOD(self_scale(x, x, 3, 2, s));
    GOOD(cudaStreamEndCapture(s, &graph));
    GOOD(cudaGraphInstantiate(&exec, graph, 0));
    GOOD(cudaGraphDestroy(graph));
    GOOD(cudaGraphLaunch(exec, s));
    GOOD(cudaGraphLaunch(exec, s));
    GOOD(cudaGraphExecDestroy(exec));
    GOOD(cudaMemcpyAsync(host, x, 4 * sizeof *x, cudaMemcpyDeviceToHost, s));
    GOOD(cudaStreamSynchronize(s));
    const float expected[] = {0, 36, 8, 12};
    for (int i = 0; i < 4; i++) assert_float_equal(host[i], expected[i], 0);

    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(s));
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
    assert_null(graph);
    void *more;
    GOOD(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    GIVES(cudaErrorStreamCaptureUnsupported, cudaMalloc(&more, 4));
    GIVES(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(s, &graph));
    GIVES(cudaErrorIllegalState, cudaStreamEndCapture(s, &graph));
    GOOD(cudaStreamSynchronize(s));
    GOOD(cudaFree(x));
    GOOD(cudaFreeHost(host));
    GOOD(cudaStreamDestroy(s));
}

static void pointers_are_known(void **state) {
    (void)state;
    struct cudaPointerAttributes a;
    int local = 0;
    char *x, *host = pinned_new(100);
    GOOD(cudaSetDevice(1));
    x = device_new(100);
    assert_int_equal((uintptr_t)x % 256, 0);
    GOOD(cudaSetDevice(0));
    GOOD(cudaPointerGetAttributes(&a, x + 99));
    assert_int_equal(a.type, cudaMemoryTypeDevice);
    assert_int_equal(a.device, 1);
    GOOD(cudaPointerGetAttributes(&a, host));
    assert_int_equal(a.type, cudaMemoryTypeHost);
    GOOD(cudaPointerGetAttributes(&a, &local));
    assert_int_equal(a.type, cudaMemoryTypeUnregistered);
    GIVES(cudaErrorInvalidValue, cudaMemcpy(x, &local, 101, cudaMemcpyHostToDevice));
    GIVES(cudaErrorInvalidValue, cudaMemcpy(x, &local, 4, cudaMemcpyDeviceToDevice));
    GIVES(cudaErrorInvalidValue, cudaMemcpyPeerAsync(x, 0, x, 1, 1, NULL));
    GIVES(cudaErrorInvalidValue, cudaFree(x + 1));
    GIVES(cudaErrorInvalidValue, cudaFreeHost(x));
    size_t all, left;
    GOOD(cudaMemGetInfo(&left, &all));
    assert_true(left <= all);
    void *much;
    GIVES(cudaErrorMemoryAllocation, cudaMalloc(&much, all + 1));
    GOOD(cudaFree(x));
    GOOD(cudaFreeHost(host));
}

static void calls_fail_when_asked(void **state) {
    (void)state;
    void *p, *q;
    setenv("ENGINE_EMULATED_FAIL", "cudaMalloc:2", 1);
    GOOD(cudaMalloc(&p, 4));
    GIVES(cudaErrorMemoryAllocation, cudaMalloc(&q, 4));
    GOOD(cudaMalloc(&q, 4));
    GOOD(cudaFree(p));
    GOOD(cudaFree(q));
    setenv("ENGINE_EMULATED_FAIL", "cudaLaunchKernel:1", 1);
    cudaStream_t s = stream_new(0);
    GIVES(cudaErrorUnknown, self_launch(1, 1, s));
    GOOD(self_launch(1, 1, s));
    unsetenv("ENGINE_EMULATED_FAIL");
    int n = 5;
    setenv("ENGINE_EMULATED_GPUS", "0", 1);
    GIVES(cudaErrorInsufficientDriver, cudaGetDeviceCount(&n));
    assert_int_equal(n, 0);
    unsetenv("ENGINE_EMULATED_GPUS");
    GOOD(cudaGetDeviceCount(&n));
    assert_int_equal(n, 2);
    GOOD(cudaStreamDestroy(s));
}

/* ---- what must end the process: run by another one ---- */
static void branches(void) {
    self_wrong(WRONG_BRANCHES, NULL, stream_new(0));
}
static void mask(void) {
    self_wrong(WRONG_MASK, NULL, stream_new(0));
}
static void waiting(void) {
    self_wrong(WRONG_WAIT, NULL, stream_new(0));
}
static void overrun(void) {
    self_wrong(WRONG_OVERRUN, NULL, stream_new(0));
}
static void beyond(void) { /* within the page, so that only cudaFree can see it */
    cudaStream_t s = stream_new(0);
    float *x = device_new(4 * sizeof *x), *from = device_new(4 * sizeof *x);
    cudaMemsetAsync(from, 0, 4 * sizeof *x, s);
    self_scale(x + 3, from, 1, 4, s);
    cudaStreamSynchronize(s);
    cudaFree(x);
}
static void race(void) {
    self_wrong(WRONG_RACE, NULL, stream_new(0));
}
static void same(void) {
    cudaStream_t s = stream_new(0);
    self_wrong(WRONG_SAME, device_new(4), s);
}
static void far(void) {
    cudaStream_t s = stream_new(0);
    self_wrong(WRONG_ADDRESS, device_new(4), s);
}
static void deep(void) {
    self_wrong(WRONG_STACK, NULL, stream_new(0));
}
static void touch(void) {
    *(volatile float *)device_new(4) = 1;
}

static void caught(void **state) {
    (void)state;
    expect(branches, "diverged");
    expect(mask, "not in the mask");
    expect(waiting, "never come");
    expect(overrun, "beyond an array");
    expect(beyond, "something wrote");
#ifdef ENGINE_SANITIZED_AS
    if (strstr(ENGINE_SANITIZED_AS, "thread")) expect(race, "data race");
    if (strstr(ENGINE_SANITIZED_AS, "thread")) expect(same, "data race");
    if (strstr(ENGINE_SANITIZED_AS, "address")) expect(touch, "use-after-poison");
    (void)far, (void)deep; /* the sanitizers tell these themselves */
#else
    (void)race, (void)same, (void)touch;
    expect(far, "thread (5, 0, 0): nothing lies at");
    expect(deep, "stack is full");
#endif
}

/* A kernel that reads a peer's memory without leave breaks the GPU for good. */
static void peers(void **state) {
    (void)state;
    int can = 0;
    cudaStream_t s = stream_new(0);
    float *mine = device_new(4), got;
    GOOD(cudaSetDevice(1));
    float *theirs = device_new(4), five = 5;
    GOOD(cudaMemcpy(theirs, &five, 4, cudaMemcpyHostToDevice));
    GOOD(cudaSetDevice(0));
    GOOD(cudaDeviceCanAccessPeer(&can, 0, 1));
    assert_int_equal(can, 1);
    GOOD(cudaDeviceEnablePeerAccess(1, 0));
    GIVES(cudaErrorPeerAccessAlreadyEnabled, cudaDeviceEnablePeerAccess(1, 0));
    GOOD(self_scale(mine, theirs, 2, 1, s));
    GOOD(cudaMemcpyAsync(&got, mine, 4, cudaMemcpyDeviceToHost, s));
    assert_float_equal(got, 10, 0);
    GOOD(cudaDeviceDisablePeerAccess(1));
    GOOD(self_scale(mine, theirs, 2, 1, s));
    GIVES(cudaErrorIllegalAddress, cudaStreamSynchronize(s));
    GIVES(cudaErrorIllegalAddress, cudaFree(mine));
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
}

int main(void) {
    setenv("ENGINE_EMULATED_PAGEABLE", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caught), /* first: a process with threads does not fork well */
        cmocka_unit_test(threads_meet),
        cmocka_unit_test(wide_shuffles),
        cmocka_unit_test(votes_and_atomics),
        cmocka_unit_test(memory_begins_poisoned),
        cmocka_unit_test(limits_of_a_launch),
        cmocka_unit_test(streams_run_late),
        cmocka_unit_test(the_legacy_stream),
        cmocka_unit_test(captures_are_replayed),
        cmocka_unit_test(pointers_are_known),
        cmocka_unit_test(calls_fail_when_asked),
        cmocka_unit_test(peers), /* last: nothing works after it */
    };
    return cmocka_run_group_tests_name("emulated gpu", tests, NULL, NULL);
}
