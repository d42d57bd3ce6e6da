/* Convolutions of real models have plans: on this machine's GPU; where there is none cuDNN is told of GPUs that it
 * does not see, and says what it would run there. */
#include "tests/gpu/gpu.h"

#include "engine/device/cuda/conv_plan.h"

#include <string.h>

/* ---- layers --------------------------------------------------------------------------------- */
static const struct layer {
    const char *model;
    int n, in, size, out, kernel, stride, pad, groups;
    bool bias;
} layers[] = {
    {"lenet", 128, 1, 28, 6, 5, 1, 2, 1, true},
    {"lenet", 128, 6, 14, 16, 5, 1, 0, 1, true},
    {"vgg", 64, 3, 224, 64, 3, 1, 1, 1, true},
    {"vgg", 64, 256, 56, 512, 3, 1, 1, 1, true},
    {"vit", 64, 3, 224, 384, 16, 16, 0, 1, true},
    {"resnet-18, small", 32, 3, 32, 64, 3, 1, 1, 1, false},
    {"resnext", 64, 128, 56, 128, 3, 1, 1, 32, false},
    {"mobilenet", 64, 32, 112, 32, 3, 1, 1, 32, false},
    {"resnet-50", 256, 3, 224, 64, 7, 2, 3, 1, false},
    {"resnet-50", 256, 64, 56, 64, 1, 1, 0, 1, false},
    {"resnet-50", 256, 64, 56, 64, 3, 1, 1, 1, false},
    {"resnet-50", 256, 64, 56, 256, 1, 1, 0, 1, false},
    {"resnet-50", 256, 256, 56, 64, 1, 1, 0, 1, false},
    {"resnet-50", 256, 256, 56, 128, 1, 1, 0, 1, false},
    {"resnet-50", 256, 128, 56, 128, 3, 2, 1, 1, false},
    {"resnet-50", 256, 128, 28, 512, 1, 1, 0, 1, false},
    {"resnet-50", 256, 256, 56, 512, 1, 2, 0, 1, false},
    {"resnet-50", 256, 512, 28, 128, 1, 1, 0, 1, false},
    {"resnet-50", 256, 128, 28, 128, 3, 1, 1, 1, false},
    {"resnet-50", 256, 512, 28, 256, 1, 1, 0, 1, false},
    {"resnet-50", 256, 256, 28, 256, 3, 2, 1, 1, false},
    {"resnet-50", 256, 256, 14, 1024, 1, 1, 0, 1, false},
    {"resnet-50", 256, 512, 28, 1024, 1, 2, 0, 1, false},
    {"resnet-50", 256, 1024, 14, 256, 1, 1, 0, 1, false},
    {"resnet-50", 256, 256, 14, 256, 3, 1, 1, 1, false},
    {"resnet-50", 256, 1024, 14, 512, 1, 1, 0, 1, false},
    {"resnet-50", 256, 512, 14, 512, 3, 2, 1, 1, false},
    {"resnet-50", 256, 512, 7, 2048, 1, 1, 0, 1, false},
    {"resnet-50", 256, 1024, 14, 2048, 1, 2, 0, 1, false},
    {"resnet-50", 256, 2048, 7, 512, 1, 1, 0, 1, false},
    {"resnet-50", 256, 512, 7, 512, 3, 1, 1, 1, false},
    {"odd", 3, 5, 9, 7, 3, 2, 1, 1, true},
};
enum { LAYERS = sizeof layers / sizeof *layers };

static void shape_of(const struct layer *l, enum conv_pass pass, cudnnDataType_t type, bool exact,
                     struct conv_shape *s) {
    memset(s, 0, sizeof *s);
    s->n = l->n, s->groups = l->groups, s->type = type, s->exact = exact;
    s->x[0] = l->in, s->y[0] = l->out;
    for (int i = 0; i < 2; i++) {
        s->x[1 + i] = l->size, s->kernel[i] = l->kernel, s->stride[i] = l->stride, s->pad[i] = l->pad;
        s->y[1 + i] = (l->size + 2 * l->pad - l->kernel) / l->stride + 1;
    }
    if (pass == CONV_FORWARD) s->bias = l->bias;
}

/* Whether there is one, and what it is; with what follows, or else without. */
static bool has_plan(struct cuda *c, enum conv_pass pass, struct conv_shape *s, struct conv_about *about) {
    struct conv_plan *plan = NULL, *again = NULL;
    bool got = conv_plan_get(c, pass, s, &plan) == ERR_NONE;
    if (!got && s->bias) {
        s->bias = false;
        got = conv_plan_get(c, pass, s, &plan) == ERR_NONE;
    }
    if (!got) return false;
    assert_ok(conv_plan_get(c, pass, s, &again));
    assert_ptr_equal(plan, again); /* layers of one shape share it */
    conv_plan_put(again);
    conv_plan_about(plan, about);
    assert_true((size_t)about->space == conv_plan_space(plan));
    conv_plan_put(plan);
    return true;
}

/* What is wrong with a plan, or NULL: the same bits every time, sums in f32, and where it is exact the factors as they
 * are. */
static const char *wrong_with(const struct conv_about *about, bool exact) {
    static const struct {
        unsigned note;
        const char *words;
    } wrong[] = {{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, "gives other bits each time"},
                 {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, "sums in less than f32"},
                 {CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "rounds its factors"},
                 {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, "rounds factors of f32"}};
    for (int i = 0; i < 3 + exact; i++)
        if (about->notes >> wrong[i].note & 1) return wrong[i].words;
    return NULL;
}

static void check_layers(struct cuda *c, const char *gpu) {
    static const struct {
        const char *name;
        cudnnDataType_t type;
        bool exact;
    } kinds[] = {{"bf16", CUDNN_DATA_BFLOAT16, false},
                 {"fp16", CUDNN_DATA_HALF, false},
                 {"f32", CUDNN_DATA_FLOAT, true},
                 {"tf32", CUDNN_DATA_FLOAT, false}};
    int64_t most = 0;
    int fused = 0, apart = 0;
    for (int i = 0; i < LAYERS * 4 * CONV_PASSES; i++) {
        const struct layer *l = &layers[i / CONV_PASSES / 4];
        int kind = i / CONV_PASSES % 4, pass = i % CONV_PASSES;
        struct conv_about about;
        struct conv_shape s;
        shape_of(l, (enum conv_pass)pass, kinds[kind].type, kinds[kind].exact, &s);
        if (!has_plan(c, (enum conv_pass)pass, &s, &about))
            fail_msg("%s, %d to %d channels of %d x %d, pass %d in %s on %s: %s", l->model, l->in, l->out, l->size,
                     l->size, pass, kinds[kind].name, gpu, error_message());
        print_message("%s, %s, %d to %d channels of %d x %d, pass %d in %s%s: engine %lld, notes "
                      "%x, %lld bytes\n",
                      gpu, l->model, l->in, l->out, l->size, l->size, pass, kinds[kind].name, s.bias ? " + bias" : "",
                      (long long)about.engine, about.notes, (long long)about.space);
        const char *wrong = wrong_with(&about, kinds[kind].exact);
        if (wrong) fail_msg("engine %lld %s", (long long)about.engine, wrong);
        fused += s.bias;
        apart += pass == CONV_FORWARD && l->bias && !s.bias;
        if (about.space > most) most = about.space;
    }
    print_message("%s: %d plans, workspaces of at most %lld MB; the bias in %d of %d\n", gpu, LAYERS * 4 * CONV_PASSES,
                  (long long)most >> 20, fused, fused + apart);
}

/* ---- a GPU that is not there ---------------------------------------------------------------- */
static cudnnBackendDescriptor_t absent; /* its description */
static struct cudnn_library real;

/* What would name the handle of a GPU names the description instead. */
static cudnnStatus_t set_attribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return real.BackendSetAttribute(d, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, part, 1, &absent);
    if (name == CUDNN_ATTR_ENGINEHEUR_MODE) {
        cudnnStatus_t s = real.BackendSetAttribute(d, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, part, 1, &absent);
        if (s) return s;
    }
    return real.BackendSetAttribute(d, name, type, count, value);
}

static const struct {
    const char *name;
    int capability, processors, shared, cache;
} gpus[] = {{"NVIDIA A100", 800, 108, 166912, 41943040},
            {"NVIDIA H200", 900, 132, 232448, 62914560},
            {"NVIDIA B200", 1000, 148, 232448, 132644864}};

/* false: this cuDNN cannot be told of one. */
static bool describe(int which) {
    static const char form[] = "{\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,"
                               "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
                               "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"smClockRateKHz\":1980000,"
                               "\"memClockRateKHz\":3201000,\"l2CacheSize\":%d,\"warpSize\":32,"
                               "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
                               "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"pciDeviceId\":0,"
                               "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
                               "\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":80000000000,"
                               "\"cudaDeviceId\":0}";
    char text[1024];
    int length = snprintf(text, sizeof text, form, gpus[which].name, gpus[which].capability, gpus[which].processors,
                          gpus[which].cache, gpus[which].shared);
    return !real.BackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &absent) &&
           !real.BackendSetAttribute(absent, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length,
                                     text) &&
           !real.BackendFinalize(absent);
}

static void convolutions_have_plans_on_gpus_that_are_absent(void **state) {
    struct cuda nobody;
    (void)state;
    if (library_load() != ERR_NONE || library_cudnn_version() < 90800) {
        print_message("skipped: %s\n", library_cudnn_version() ? "cuDNN is older than 9.8" : error_message());
        skip();
    }
    real = dnn;
    memset(&nobody, 0, sizeof nobody);
    for (int i = 0; i < (int)(sizeof gpus / sizeof *gpus); i++) {
        if (!describe(i)) {
            print_message("skipped: this cuDNN cannot be told of GPUs\n");
            skip();
        }
        dnn.BackendSetAttribute = set_attribute;
        nobody.dnn = (cudnnHandle_t)absent; /* plans of one GPU are not another's */
        check_layers(&nobody, gpus[i].name);
        dnn = real;
        real.BackendDestroyDescriptor(absent);
    }
}

/* ---- a choice that overlooks a note --------------------------------------------------------- */
static unsigned overlooked, hidden; /* notes that the choice is not told of, and those of the last engine among them */

static cudnnStatus_t get_attribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                   cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *out) {
    cudnnStatus_t s = real.BackendGetAttribute(d, name, type, room, count, out);
    cudnnBackendNumericalNote_t *notes = out;
    int64_t kept = 0;
    if (s || name != CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) return s;
    hidden = 0;
    for (int64_t i = 0; i < *count; i++) {
        hidden |= overlooked & 1U << notes[i];
        if (!(overlooked >> notes[i] & 1)) notes[kept++] = notes[i];
    }
    *count = kept;
    return s;
}

/* In how many of the layers' plans in f32 what is overlooked is found. */
static int found_in_layers(struct cuda *c) {
    int found = 0;
    for (int i = 0; i < LAYERS * CONV_PASSES; i++) {
        enum conv_pass pass = (enum conv_pass)(i % CONV_PASSES);
        struct conv_about about;
        struct conv_shape s;
        shape_of(&layers[i / CONV_PASSES], pass, CUDNN_DATA_FLOAT, true, &s);
        if (!has_plan(c, pass, &s, &about)) continue;
        about.notes |= hidden;
        found += wrong_with(&about, true) != NULL;
    }
    return found;
}

static void a_note_that_is_overlooked_is_found(void **state) {
    static const cudnnBackendNumericalNote_t notes[] = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
                                                        CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    struct cuda nobody;
    (void)state;
    if (library_load() != ERR_NONE || library_cudnn_version() < 90800) skip();
    real = dnn;
    if (!describe(0)) skip();
    memset(&nobody, 0, sizeof nobody);
    nobody.dnn = (cudnnHandle_t)absent;
    dnn.BackendSetAttribute = set_attribute;
    dnn.BackendGetAttribute = get_attribute;
    for (int i = 0; i < 2; i++) {
        overlooked = 1U << notes[i];
        int found = found_in_layers(&nobody);
        print_message("note %d overlooked: %d plans of %d are found\n", (int)notes[i], found, LAYERS * CONV_PASSES);
        assert_true(found > 0);
    }
    dnn = real;
    real.BackendDestroyDescriptor(absent);
}

/* ---- a GPU that is -------------------------------------------------------------------------- */
static void convolutions_have_plans_on_this_gpu(void **state) {
    struct device *dev = gpu_open(0);
    (void)state;
    check_layers((struct cuda *)dev, ((struct cuda *)dev)->name);
    dev->ops->close(dev);
}

int main(void) {
    const struct CMUnitTest here[] = {cmocka_unit_test(convolutions_have_plans_on_this_gpu)};
    const struct CMUnitTest absent_ones[] = {cmocka_unit_test(convolutions_have_plans_on_gpus_that_are_absent),
                                             cmocka_unit_test(a_note_that_is_overlooked_is_found)};
    return gpu_count() ? cmocka_run_group_tests(here, NULL, NULL) : cmocka_run_group_tests(absent_ones, NULL, NULL);
}
