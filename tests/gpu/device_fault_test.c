/* What a GPU's device says when CUDA refuses, and that nothing is left behind: the n-th call of the runtime fails, for
 * every n. Faults are those of emulated GPUs: on a real one all succeeds at once. */
#include "tests/gpu/gpu.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

/* The settings are read at every call. */
static void fail_at(int n) {
    char text[32];
    snprintf(text, sizeof text, "*:%d", n);
    if (n)
        setenv("ENGINE_EMULATED_FAIL", text, 1);
    else
        unsetenv("ENGINE_EMULATED_FAIL");
}

/* All that one step does, in one go: what has been made is freed whatever happened. */
struct step {
    struct device *dev;
    void *memory, *host;
    struct device_mark *mark;
    struct device_recording *recording;
};

static enum error run_recorded(struct step *s, float *v) {
    const struct device_runtime *a = device_runtime(s->dev);
    TRY(a->record(s->dev));
    enum error err = device_add(s->dev, v, v, 100), end = a->recorded(s->dev, &s->recording);
    if (!err) err = end;
    return err ? err : a->replay(s->dev, s->recording);
}

static enum error run_step(struct step *s) {
    const struct device_runtime *a = device_runtime(s->dev);
    const struct formula plain = {.name = "sgd_plain"};
    const struct rule rule = {.step = &plain, .number = {{1, 1}}};
    TRY(a->alloc(s->dev, 4096, &s->memory));
    TRY(a->host_alloc(s->dev, 4096, &s->host));
    TRY(a->mark_create(s->dev, &s->mark));
    float *v = s->memory;
    const struct rule_span span = {.w = v, .g = v + 512, .n = 512};
    TRY(a->write(s->dev, LANE_COPY, v, s->host, 4096));
    TRY(a->mark(s->dev, LANE_COPY, s->mark));
    TRY(a->follow(s->dev, LANE_COMPUTE, s->mark));
    TRY(a->update(s->dev, &rule, &span, 1));
    TRY(run_recorded(s, v));
    TRY(a->lower(s->dev, LANE_COMPUTE, v, v + 512, 100, PRECISION_BF16));
    TRY(a->copy(s->dev, LANE_COMPUTE, v, s->dev, v + 512, 100));
    return device_read(s->dev, s->host, v, 4096);
}

static void end_step(struct step *s) {
    const struct device_runtime *a = device_runtime(s->dev);
    a->recording_free(s->recording);
    a->mark_free(s->mark);
    a->host_free(s->dev, s->host);
    a->free(s->dev, s->memory);
    *s = (struct step){.dev = s->dev};
}

static void check_words(enum error err, int n) {
    if (err != ERR_DEVICE && err != ERR_MEMORY)
        fail_msg("call %d: '%s', not an error of the device: %s", n, error_text(err), error_message());
    if (err == ERR_MEMORY) assert_true(strlen(error_hint()) > 0);
    assert_true(strlen(error_message()) > 10);
}

/* A step has about so many calls, and then watches its end; so many refusals must be told at least: some do no
 * harm. */
#ifdef ENGINE_EMULATED
enum { CALLS = 60, TOLD = 10 };
#else
enum { CALLS = 1, TOLD = 0 };
#endif

static void every_refusal_is_told(void **state) {
    (void)state;
    struct step s = {.dev = gpu_open(0)};
    int told = 0;
    for (int n = 1; n <= CALLS; n++) {
        fail_at(n);
        enum error err = run_step(&s);
        if (err) check_words(err, n);
        told += err != ERR_NONE;
        fail_at(0);
        end_step(&s);
        assert_ok(run_step(&s)); /* and the device is as good as before */
        end_step(&s);
    }
    assert_true(told >= TOLD);
    s.dev->ops->close(s.dev);
}

static void opening_leaves_nothing_behind(void **state) {
    (void)state;
    struct device_params p = {.count = 1, .threads = 1};
    int told = 0;
    for (int n = 1; n <= CALLS; n++) {
        struct device *dev = NULL;
        fail_at(n);
        enum error err = device_find("cuda")->open(&p, &dev);
        fail_at(0);
        if (err) check_words(err, n);
        told += err != ERR_NONE;
        assert_int_equal(dev != NULL, err == ERR_NONE);
        if (dev) dev->ops->close(dev);
    }
    assert_true(told >= TOLD);
}

#ifdef ENGINE_EMULATED
/* A thread that has not used the GPU yet, and cannot: what it asks for must not happen on GPU 0 instead. */
static void *allocate_elsewhere(void *arg) {
    struct step *s = arg;
    setenv("ENGINE_EMULATED_FAIL", "cudaSetDevice:1", 1);
    assert_fails(ERR_DEVICE, device_runtime(s->dev)->alloc(s->dev, 4096, &s->memory));
    assert_non_null(strstr(error_message(), "cannot use this GPU"));
    unsetenv("ENGINE_EMULATED_FAIL");
    assert_ok(device_runtime(s->dev)->alloc(s->dev, 4096, &s->memory));
    return NULL;
}

static void another_thread_stays_off_other_gpus(void **state) {
    (void)state;
    struct step s = {.dev = gpu_open(1)};
    struct cudaPointerAttributes about;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, allocate_elsewhere, &s), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(cudaPointerGetAttributes(&about, s.memory), cudaSuccess);
    assert_int_equal(about.device, 1);
    end_step(&s);
    s.dev->ops->close(s.dev);
}

static void a_machine_without_gpus(void **state) {
    (void)state;
    int count = -1;
    struct device *dev = NULL;
    struct device_params p = {.count = 1, .threads = 1};
    setenv("ENGINE_EMULATED_GPUS", "0", 1);
    assert_fails(ERR_DEVICE, device_find("cuda")->units(&count));
    assert_int_equal(count, 0);
    assert_non_null(strstr(error_message(), "driver"));
    assert_non_null(strstr(error_hint(), "nvidia-smi"));
    assert_fails(ERR_DEVICE, device_find("cuda")->open(&p, &dev));
    assert_null(dev);
    unsetenv("ENGINE_EMULATED_GPUS");
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_refusal_is_told),
        cmocka_unit_test(opening_leaves_nothing_behind),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(another_thread_stays_off_other_gpus),
        cmocka_unit_test(a_machine_without_gpus),
#endif
    };
    return gpu_run_tests(tests);
}
