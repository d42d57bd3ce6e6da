/* Whether this machine runs a level of instructions (cpu.h). A separate header, because CMakeLists.txt asks the building
 * machine the same questions before anything is built (cmake/level.c). */
#pragma once
#include <stdbool.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool runs_v3(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

static inline bool runs_v4(void) {
    return runs_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static inline bool runs_v4bf16(void) {
    return runs_v4() && __builtin_cpu_supports("avx512bf16");
}

/* The kernel gives a process AMX's registers if it asks; to ask again does no harm. */
static inline bool runs_amx(void) {
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return runs_v4bf16() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

/* What the compiler takes for granted. */
static inline bool runs_base(void) {
    return true;
}

static inline bool runs_neon(void) {
    return true;
}
