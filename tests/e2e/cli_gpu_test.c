/* What is said of GPUs on a machine that may have none: devices, doctor, and runs that ask for one. */
#include "tests/harness/program.h"

#include "engine/device/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct program p;

static bool has_gpu(void) {
    int count = 0;
    return device_find("cuda")->units(&count) == ERR_NONE;
}

static const struct json_value *find_named(const struct json_value *list, const char *name) {
    for (int i = 0; list && i < list->count; i++) {
        const struct json_value *at = json_get(&list->children[i], "name");
        if (at && !strcmp(at->text, name)) return &list->children[i];
    }
    fail_msg("no '%s' in:\n%s", name, p.out);
    return NULL;
}

static void devices_are_listed(void **state) {
    struct pool *pool;
    (void)state;
    assert_ok(pool_create(&pool));
    program_run(&p, 30, "devices", "--json", NULL);
    const struct json_value *kinds = json_get(program_json(&p, pool), "kinds");
    const struct json_value *cpu = find_named(kinds, "cpu"), *cuda = find_named(kinds, "cuda");
    assert_true(json_get(cpu, "here")->truth);
    assert_non_null(find_named(json_get(cpu, "software"), "own kernels"));
    assert_int_equal(json_get(cuda, "here")->truth, has_gpu());
    assert_true(has_gpu() == (json_get(cuda, "units")->count > 0));
    assert_true(has_gpu() || json_get(cuda, "missing"));
    pool_free(pool);
    program_run(&p, 30, "devices", NULL);
    assert_int_equal(p.code, 0);
    assert_non_null(strstr(p.out, "'devices: auto' means"));
    program_run(&p, 30, "devices", "all", NULL);
    assert_int_equal(p.code, 64);
}

static void doctor_looks_at_the_host(void **state) {
    static const char *const checks[] = {"processor", "cores",       "locked memory", "/dev/shm", "loopback",
                                         "host name", "this folder", "launcher",      "MPI"};
    struct pool *pool;
    (void)state;
    assert_ok(pool_create(&pool));
    program_run(&p, 120, "doctor", "--json", NULL);
    const struct json_value *all = json_get(program_json(&p, pool), "checks");
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) find_named(all, checks[i]);
    assert_string_equal(json_get(find_named(all, "loopback"), "state")->text, "ok");
    assert_string_equal(json_get(find_named(all, "cuda"), "state")->text, has_gpu() ? "ok" : "none");
    pool_free(pool);
    program_run(&p, 30, "doctor", "gpu", NULL);
    assert_int_equal(p.code, 64);
}

/* A folder that cannot be written is a warning; who is root writes everywhere. */
static void doctor_names_what_is_wrong(void **state) {
    (void)state;
    const char *words[] = {"env", "RANK=1", "MASTER_ADDR=127.0.0.1", ENGINE_BINARY_DIR "/engine", "doctor", NULL};
    program_spawn(&p, words);
    assert_true(program_wait(&p, 120));
    assert_int_equal(p.code, 0);
    if (!strstr(p.out, "warning  launcher")) fail_msg("%s", p.out);
    assert_non_null(strstr(p.out, "WORLD_SIZE"));
}

static void without_a_gpu_it_is_told(void **state) {
    (void)state;
    if (has_gpu()) skip();
    program_run(&p, 60, "doctor", "cuda", NULL);
    assert_int_equal(p.code, 69);
    assert_non_null(strstr(p.out, "missing  cuda"));
    program_run(&p, 60, "run", "--set", "devices=cuda", "--set", "mode=single", "--set", "log.dir=/nowhere", NULL);
    assert_int_equal(p.code, 69);
    bool built = !strstr(p.err, "built without CUDA");
    if (!strstr(p.err, built ? "no GPU can be used" : "-DENGINE_CUDA=ON")) fail_msg("%s", p.err);
    char dir[700];
    snprintf(dir, sizeof dir, "log.dir=%s", scratch_path("no-gpu"));
    program_run(&p, 60, "run", "--devices", "cuda:0", "--set", dir, NULL);
    assert_int_equal(p.code, 69); /* once, and before there is a directory */
    const char *error = strstr(p.err, "error: ");
    if (!error || strstr(error + 1, "error: ") || strstr(p.err, "to continue from")) fail_msg("%s", p.err);
    assert_int_not_equal(access(scratch_path("no-gpu"), F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_listed),
        cmocka_unit_test(doctor_looks_at_the_host),
        cmocka_unit_test(doctor_names_what_is_wrong),
        cmocka_unit_test(without_a_gpu_it_is_told),
    };
    return cmocka_run_group_tests_name("GPUs or none", tests, NULL, NULL);
}
