/* What a processor is called, from what kernels tell of it. */
#include "tests/harness/harness.h"

#include "engine/base/file.h"
#include "engine/tell/processor.h"

#include <string.h>

static const char *name_of(const char *cpuinfo) {
    static char name[200];
    const char *path = scratch_path("cpuinfo");
    assert_ok(file_replace(path, cpuinfo, strlen(cpuinfo)));
    return processor_name(path, "riscv64", name, sizeof name);
}

#define ARM(implementer, part)                                                                                         \
    "processor\t: 0\nCPU implementer\t: " implementer "\nCPU variant\t: 0x1\nCPU part\t: " part "\n\n"

static void names_are_told(void **state) {
    (void)state;
    assert_string_equal(name_of("processor\t: 0\nmodel name\t: An x86 @ 3 GHz\ncache size\t: 1 KB\n"
                                "processor\t: 1\nmodel name\t: Another\n"),
                        "An x86 @ 3 GHz");
    assert_string_equal(name_of(ARM("0x41", "0xd0c") ARM("0x41", "0xd0c")), "Neoverse-N1");
    assert_string_equal(name_of(ARM("0x41", "0xd03") ARM("0x41", "0xd0b") ARM("0x41", "0xd03")),
                        "Cortex-A53 + Cortex-A76");
}

static void unknown_ones_are_numbers(void **state) {
    (void)state;
    assert_string_equal(name_of(ARM("0x41", "0xfff") ARM("0x7f", "0xd0c")),
                        "ARM64, implementer 0x41, part 0xfff + ARM64, implementer 0x7f, part 0xd0c");
    assert_string_equal(name_of("processor\t: 0\nhart\t: 0\n"), "riscv64");
    char name[8];
    assert_string_equal(processor_name("/no/such/file", "riscv64", name, sizeof name), "riscv64");
}

/* One name is another's beginning: both are told. */
static void each_kind_of_core_is_told(void **state) {
    (void)state;
    assert_string_equal(name_of(ARM("0x41", "0xd42") ARM("0x41", "0xd41")), "Cortex-A78AE + Cortex-A78");
}

static void this_machine_has_a_name(void **state) {
    (void)state;
    char name[200];
    assert_true(strlen(processor_here(name, sizeof name)) > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_told),
        cmocka_unit_test(unknown_ones_are_numbers),
        cmocka_unit_test(each_kind_of_core_is_told),
        cmocka_unit_test(this_machine_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
