/* NVIDIA's libraries: where they are looked for, and what is said of ones that are missing or wrong. */
#include "tests/gpu/gpu.h"

#include "engine/base/library.h"
#include "engine/device/cuda/library.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char variable[] = "ENGINE_CUDA_LIBRARIES", blaslt_file[] = "libcublasLt.so.13";
static char folder[] = "/tmp/engine_library_XXXXXX", given[4096];

static void expect_failure(const char *words, const char *hint) {
    assert_int_equal(library_load(), ERR_DEVICE);
    if (!strstr(error_message(), words)) fail_msg("no '%s' in: %s", words, error_message());
    if (!strstr(error_hint(), hint)) fail_msg("no '%s' in: %s", hint, error_hint());
    assert_int_equal(library_blaslt_version(), 0);
    assert_int_equal(library_cudnn_version(), 0);
}

/* A file of the folder, with the bytes of another or of a text. */
static void put_file(const char *name, const char *from, const char *text) {
    char path[4096], bytes[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *to = fopen(path, "wb"), *in = from ? fopen(from, "rb") : NULL;
    assert_non_null(to);
    if (from) assert_non_null(in);
    for (size_t n; in && (n = fread(bytes, 1, sizeof bytes, in)) > 0;) assert_int_equal(fwrite(bytes, 1, n, to), n);
    if (text) fputs(text, to);
    if (in) fclose(in);
    assert_int_equal(fclose(to), 0);
}

static void remove_file(const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(unlink(path), 0);
}

static void only_named_folders_are_searched(void **state) {
    (void)state;
    setenv(variable, "/nowhere:/nowhere/else", 1);
    expect_failure("no libcublasLt.so.13 in ENGINE_CUDA_LIBRARIES=/nowhere:/nowhere/else", "name the folder");
    assert_null(library_open("libm.so.6"));
    setenv(variable, "/nowhere:", 1); /* the empty one: the usual places */
    assert_non_null(library_open("libm.so.6"));
    assert_null(library_open("libengine_of_nobody.so.1"));
    unsetenv(variable);
    assert_non_null(library_open("libm.so.6"));
}

static void what_is_no_library_is_told(void **state) {
    (void)state;
    setenv(variable, folder, 1);
    put_file(blaslt_file, NULL, "this is no library\n");
    expect_failure("cuBLASLt 13 cannot be loaded", "install the libraries that it needs");
    assert_non_null(strstr(error_message(), folder));
    remove_file(blaslt_file);
}

/* libm.so.6 stands for any library. */
static const char *some_library(void) {
    struct link_map *map = NULL;
    void *handle = dlopen("libm.so.6", RTLD_NOW);
    assert_non_null(handle);
    assert_int_equal(dlinfo(handle, RTLD_DI_LINKMAP, &map), 0);
    return map->l_name;
}

static void a_library_without_a_function_is_told(void **state) {
    (void)state;
    setenv(variable, folder, 1);
    put_file(blaslt_file, some_library(), NULL);
    expect_failure("that was found has no cublasLtCreate", "install cuBLASLt 13");
    remove_file(blaslt_file);
}

#define WHEEL "lib/python3.11/site-packages/nvidia/nccl/lib"

static void a_library_among_a_python_s_packages_is_found(void **state) {
    static const char wheel[] = WHEEL, name[] = WHEEL "/libengine_test.so.1";
    char path[1024];
    (void)state;
    for (size_t n = 1; n < sizeof wheel; n++) {
        if (wheel[n] && wheel[n] != '/') continue;
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)n, wheel);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    put_file(name, some_library(), NULL);
    unsetenv(variable);
    assert_null(library_open("libengine_test.so.1"));
    setenv("VIRTUAL_ENV", folder, 1);
    assert_non_null(library_open("libengine_test.so.1"));
    unsetenv("VIRTUAL_ENV");
    remove_file(name);
    for (size_t n = sizeof wheel - 1; n > 0; n--) {
        if (wheel[n] && wheel[n] != '/') continue;
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)n, wheel);
        assert_int_equal(rmdir(path), 0);
    }
}

#ifdef ENGINE_EMULATED
static void another_version_is_told(void **state) {
    (void)state;
    setenv(variable, given, 1);
    setenv("ENGINE_EMULATED_CUBLASLT_VERSION", "120304", 1);
    expect_failure("cuBLASLt 13 from 13.0 on is needed, and the libcublasLt.so.13 that was found is of "
                   "version 12.3",
                   "pip install");
    unsetenv("ENGINE_EMULATED_CUBLASLT_VERSION");
}

static void without_it_no_gpu_opens(void **state) {
    struct device_params p = {.count = 1, .threads = 1};
    struct device *dev = NULL;
    (void)state;
    setenv(variable, folder, 1);
    assert_int_equal(device_find("cuda")->open(&p, &dev), ERR_DEVICE);
    assert_null(dev);
    assert_non_null(strstr(error_message(), "cuBLASLt 13 was not found"));
}
#endif

static void whole_ones_are_loaded_once(void **state) {
    (void)state;
    if (given[0])
        setenv(variable, given, 1);
    else
        unsetenv(variable);
    enum error err = library_load();
    if (err != ERR_NONE && !given[0]) {
        print_message("skipped: %s\n", error_message());
        skip();
    }
    assert_ok(err);
    assert_int_equal(library_blaslt_version() / 10000, 13);
    assert_int_equal(library_cudnn_version() / 10000, 9);
#ifdef ENGINE_EMULATED /* what cuDNN will open by name */
    assert_non_null(dlopen("libnvrtc.so.13", RTLD_NOW | RTLD_NOLOAD));
    assert_non_null(dlopen("libnvrtc-builtins.so.13.0", RTLD_NOW | RTLD_NOLOAD));
#endif
    setenv(variable, folder, 1);
    assert_ok(library_load());
}

int main(void) {
    const char *value = getenv(variable);
    snprintf(given, sizeof given, "%s", value ? value : "");
    if (!mkdtemp(folder)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_named_folders_are_searched),
        cmocka_unit_test(what_is_no_library_is_told),
        cmocka_unit_test(a_library_without_a_function_is_told),
        cmocka_unit_test(a_library_among_a_python_s_packages_is_found),
#ifdef ENGINE_EMULATED
        cmocka_unit_test(another_version_is_told),
        cmocka_unit_test(without_it_no_gpu_opens),
#endif
        cmocka_unit_test(whole_ones_are_loaded_once),
    };
    int failed = cmocka_run_group_tests_name("library", tests, NULL, NULL);
    rmdir(folder);
    return failed;
}
