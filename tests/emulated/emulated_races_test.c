/* The race detector of the emulated GPU: what is planted is found, and what is in order is left alone. */
#include "tests/emulated/selftest_run.h"

/* Two streams, and nothing between them, or not enough. */
static cudaStream_t one, two;
static float *x, *there, *pinned;
static cudaEvent_t event;
enum { FLOATS = 1000, BYTES = FLOATS * sizeof(float) };

static void begin(void) {
    one = stream_new(0);
    two = stream_new(0);
    GOOD(cudaSetDevice(1));
    there = device_new(BYTES);
    GOOD(cudaSetDevice(0));
    x = device_new(2 * BYTES);
    pinned = pinned_new(2 * BYTES);
    GOOD(cudaMemset(x, 0, 2 * BYTES));
    GOOD(cudaStreamSynchronize(NULL));
    GOOD(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
}

static void writes(cudaStream_t s) {
    GOOD(cudaMemsetAsync(x, 0, BYTES, s));
}

static void reads(cudaStream_t s) {
    GOOD(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDeviceToHost, s));
}

static void computes(cudaStream_t s) {
    GOOD(self_scale(x, x, 2, FLOATS, s));
}

/* ---- planted ---- */
static void a_copy_beside_a_fill(void) {
    begin();
    writes(one), reads(two);
}

static void kernels_beside_each_other(void) {
    begin();
    computes(one), computes(two);
}

static void a_write_after_a_read(void) {
    begin();
    reads(one), computes(two);
}

static void a_peer(void) {
    begin();
    cudaStream_t far = stream_new(1);
    GOOD(cudaSetDevice(0));
    computes(one);
    GOOD(cudaMemcpyPeerAsync(there, 1, x, 0, BYTES, far));
}

static void an_event_before_the_work(void) {
    begin();
    GOOD(cudaEventRecord(event, one));
    computes(one);
    GOOD(cudaStreamWaitEvent(two, event, 0));
    reads(two);
}

static void a_wait_after_the_work(void) {
    begin();
    computes(one);
    GOOD(cudaEventRecord(event, one));
    reads(two);
    GOOD(cudaStreamWaitEvent(two, event, 0));
}

static void an_event_that_nobody_records(void) {
    begin();
    computes(one);
    GOOD(cudaStreamWaitEvent(two, event, 0));
    reads(two);
}

static void the_host_waits_for_another(void) {
    begin();
    computes(one);
    GOOD(cudaStreamSynchronize(two));
    reads(two);
}

static void the_way_back(void) { /* the reader waits for the writer, the next write not for the reader */
    begin();
    computes(one);
    GOOD(cudaEventRecord(event, one));
    GOOD(cudaStreamWaitEvent(two, event, 0));
    reads(two);
    writes(one);
}

static void spans_that_share_a_float(void) {
    begin();
    computes(one);
    GOOD(self_scale(x + FLOATS - 1, x + FLOATS - 1, 2, FLOATS, two));
}

static void a_graph(void) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    begin();
    GOOD(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
    computes(one);
    GOOD(cudaStreamEndCapture(one, &graph));
    GOOD(cudaGraphInstantiate(&exec, graph, 0));
    GOOD(cudaGraphLaunch(exec, one));
    reads(two);
}

static void pinned_memory_that_is_still_read(void) {
    begin();
    GOOD(cudaMemcpyAsync(x, pinned, BYTES, cudaMemcpyHostToDevice, one));
    GOOD(cudaMemcpyAsync(pinned, x + FLOATS, BYTES, cudaMemcpyDeviceToHost, two));
}

static void freed_in_use(void) {
    begin();
    computes(one);
    GOOD(cudaFree(x));
}

static void pageable(void) {
    float here[4];
    begin();
    unsetenv("ENGINE_EMULATED_PAGEABLE");
    GOOD(cudaMemcpyAsync(here, x, sizeof here, cudaMemcpyDeviceToHost, one));
}

static void what_is_planted_is_found(void **state) {
    static void (*const planted[])(void) = {
        a_copy_beside_a_fill,
        kernels_beside_each_other,
        a_write_after_a_read,
        a_peer,
        an_event_before_the_work,
        a_wait_after_the_work,
        the_way_back,
        a_graph,
        an_event_that_nobody_records,
        the_host_waits_for_another,
        spans_that_share_a_float,
        pinned_memory_that_is_still_read,
    };
    (void)state;
#ifndef ENGINE_SANITIZED
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++) expect(planted[i], "a race: ");
    expect(freed_in_use, "nobody has waited for it");
#else
    (void)planted, (void)freed_in_use; /* the detector is off: the compiler's own takes its place */
#endif
    expect(pageable, "memory that is not pinned");
}

/* All that may stand between two streams, and neighbours that no one shares. */
static void what_is_in_order_is_left_alone(void **state) {
    (void)state;
    begin();
    computes(one);
    GOOD(cudaEventRecord(event, one));
    GOOD(cudaStreamWaitEvent(two, event, 0));
    reads(two);
    GOOD(cudaStreamSynchronize(two));
    writes(one);
    reads(one);
    GOOD(cudaEventRecord(event, one));
    while (cudaEventQuery(event) == cudaErrorNotReady) usleep(100);
    (void)cudaGetLastError();
    computes(two);
    GOOD(self_scale(x + FLOATS, x + FLOATS, 2, FLOATS, one));
    GOOD(cudaDeviceSynchronize());
    GOOD(cudaMemcpyAsync(pinned, x, BYTES, cudaMemcpyDeviceToHost, one));
    GOOD(cudaMemcpyAsync(pinned + FLOATS, x, BYTES, cudaMemcpyDeviceToHost, two));
    GOOD(cudaDeviceSynchronize());
    GOOD(cudaFree(x));
    GOOD(cudaFree(there));
    GOOD(cudaFreeHost(pinned));
    GOOD(cudaEventDestroy(event));
    GOOD(cudaStreamDestroy(one));
    GOOD(cudaStreamDestroy(two));
}

int main(void) {
    setenv("ENGINE_EMULATED_PAGEABLE", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_planted_is_found), /* first: a process with threads does not fork well */
        cmocka_unit_test(what_is_in_order_is_left_alone),
    };
    return cmocka_run_group_tests_name("emulated races", tests, NULL, NULL);
}
