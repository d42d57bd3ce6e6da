/* The cpu device: own vector kernels on the threads of a device. */
#include "engine/device/cpu/cpu.h"
#include "engine/device/cpu/reach.h"
#include "engine/device/runtime.h"
#include "engine/device/threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern const struct device_ops device_cpu;

struct cpu {
    struct device device;
    const struct cpu_level *level;
};

/* ---- levels --------------------------------------------------------------------------------- */
/* Those of this build, best first: CMakeLists.txt lists them as CPU_LEVELS. A machine that runs one runs all after it. This
 * file is compiled for the lowest, so it may ask any machine what it can. */
#define LEVEL(name) extern const struct cpu_level cpu_table_##name;
CPU_LEVELS
#undef LEVEL
#define LEVEL(name) &cpu_table_##name,
static const struct cpu_level *const levels[] = {CPU_LEVELS};
#undef LEVEL
#define LEVEL(name) runs_##name,
static bool (*const level_runs[])(void) = {CPU_LEVELS};
#undef LEVEL
enum { LEVELS = sizeof levels / sizeof *levels };

const struct cpu_level *const *cpu_levels(int *count) {
    int first = 0;
    while (first < LEVELS && !level_runs[first]()) first++;
    *count = LEVELS - first;
    return levels + first;
}

enum error cpu_level_choose(const struct cpu_level **out) {
    int count, used = 0;
    const struct cpu_level *const *possible = cpu_levels(&count);
    const char *wanted = getenv("ENGINE_ISA");
    char names[64];
    if (count == 0)
        return FAIL(ERR_DEVICE,
                    "this processor lacks level %s of instructions, the lowest that this build has kernels for\n"
                    "build for every processor: cmake -DENGINE_LEVELS=all BUILD_FOLDER && cmake --build BUILD_FOLDER",
                    levels[LEVELS - 1]->name);
    *out = possible[0];
    if (!wanted || !*wanted) return ERR_NONE;
    for (int i = 0; i < count; i++) {
        used += snprintf(names + used, sizeof names - (size_t)used, "%s%s", i ? ", " : "", possible[i]->name);
        if (strcmp(wanted, possible[i]->name) != 0) continue;
        *out = possible[i];
        return ERR_NONE;
    }
    return FAIL(ERR_CONFIG,
                "ENGINE_ISA is '%s', and this machine or this build has no such level of instructions\n"
                "possible here: %s; without the variable it is the first of them",
                wanted, names);
}

/* ---- the calling thread and its team -------------------------------------------------------- */
/* Denormals are slow and say nothing in training. Threads that the team starts later inherit this
 * and the binding. */
static void flush_denormals(void) {
#if defined(__x86_64__)
    enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };
    _mm_setcsr(_mm_getcsr() | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
#elif defined(__aarch64__)
    const uint64_t flush_to_zero = 1u << 24; /* operands and results */
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    __asm__ volatile("msr fpcr, %0" : : "r"(control | flush_to_zero));
#endif
}

/* The cores index * threads ... of the process's own: false when they are not enough for all the
 * devices. */
static bool own_cores(const struct device_params *p, cpu_set_t *own) {
    cpu_set_t all;
    int64_t first = (int64_t)p->index * p->threads, seen = 0;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return false;
    if ((int64_t)p->count * p->threads > CPU_COUNT(&all)) return false;
    CPU_ZERO(own);
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &all)) {
            if (seen >= first && seen < first + p->threads) CPU_SET(core, own);
            seen++;
        }
    return true;
}

static void threads_settle(const struct device_params *p) {
    cpu_set_t own;
    flush_denormals();
    if (p->pin && own_cores(p, &own)) (void)sched_setaffinity(0, sizeof own, &own); /* a wish: slower without */
}

static void settle_helper(const void *user) {
    (void)user; /* it has the binding of the thread that started it */
    flush_denormals();
}

void cpu_parallel(const struct device *dev, int64_t count, int64_t grain,
                  void (*work)(void *ctx, int64_t begin, int64_t end), void *ctx) {
    threads_share(dev->threads, count, grain, work, ctx);
}

struct run {
    struct cpu_pass pass;
    cpu_part_fn *part;
};

static void run_part(void *ctx, int64_t begin, int64_t end) {
    const struct run *r = ctx;
    r->part(&r->pass, begin, end);
}

enum error cpu_run(const struct op *op, const struct op_args *a, int64_t count, int64_t grain, cpu_part_fn *part) {
    struct run r = {{op, &op->desc, a}, part};
    cpu_parallel(op->dev, count, grain, run_part, &r);
    return ERR_NONE;
}

int cpu_thread(void) {
    return threads_self();
}

/* ---- the device ----------------------------------------------------------------------------- */
enum error cpu_open_at(const struct cpu_level *level, const struct device_params *p, struct device **out) {
    struct cpu *c = calloc(1, sizeof *c);
    if (!c) return FAIL(ERR_MEMORY, "cannot allocate a device");
    c->level = level;
    c->device.ops = &device_cpu;
    c->device.params = *p;
    c->device.isa = level->name;
    threads_settle(p);
    enum error err = threads_create(p->threads, settle_helper, NULL, &c->device.threads);
    if (err == ERR_NONE)
        *out = &c->device;
    else
        free(c);
    return err;
}

static enum error cpu_open(const struct device_params *p, struct device **out) {
    const struct cpu_level *level;
    TRY(cpu_level_choose(&level));
    return cpu_open_at(level, p, out);
}

static void cpu_close(struct device *d) {
    threads_free(d->threads);
    free(d);
}

static const struct op_impl *const *cpu_impls(struct device *d, enum op_kind kind) {
    bool forbidden = kind == OP_CONV2D && d->params.no_winograd;
    return ((const struct cpu *)d)->level->impls[kind] + (forbidden ? 1 : 0); /* cpu_conv_wino stands first */
}

static bool cpu_bf16(void) {
    const struct cpu_level *level;
    return cpu_level_choose(&level) == ERR_NONE && level->bf16;
}

/* The i-th software of the device: its kernels, with the instructions that they will use here. */
static bool cpu_software(int i, struct device_software *out) {
    const struct cpu_level *level;
    if (i > 0) return false;
    *out = (struct device_software){.name = "own kernels"};
    if (cpu_level_choose(&level) == ERR_NONE)
        snprintf(out->version, sizeof out->version, "%s, %s", level->name, level->instructions);
    else
        snprintf(out->missing, sizeof out->missing, "%s\n%s", error_message(), error_hint());
    return true;
}

const struct device_ops device_cpu = {
    .name = "cpu",
    .summary = "own vector kernels, bound to cores of their own",
    .open = cpu_open,
    .close = cpu_close,
    .impls = cpu_impls,
    .runtime = &host_runtime,
    .precisions = 1u << PRECISION_F32 | 1u << PRECISION_BF16,
    .image_layout = LAYOUT_BLOCKED,
    .has_bf16 = cpu_bf16,
    .software = cpu_software,
};
