#include "engine/tell/processor.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* MIDR_EL1's implementer and part number, as Arm, Ltd. and the others have published them. */
static const struct {
    unsigned implementer, part;
    const char *name;
} cores[] = {
    {0x41, 0xd03, "Cortex-A53"},           {0x41, 0xd04, "Cortex-A35"},  {0x41, 0xd05, "Cortex-A55"},
    {0x41, 0xd07, "Cortex-A57"},           {0x41, 0xd08, "Cortex-A72"},  {0x41, 0xd09, "Cortex-A73"},
    {0x41, 0xd0a, "Cortex-A75"},           {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse-N1"},
    {0x41, 0xd0d, "Cortex-A77"},           {0x41, 0xd40, "Neoverse-V1"}, {0x41, 0xd41, "Cortex-A78"},
    {0x41, 0xd42, "Cortex-A78AE"},         {0x41, 0xd44, "Cortex-X1"},   {0x41, 0xd46, "Cortex-A510"},
    {0x41, 0xd47, "Cortex-A710"},          {0x41, 0xd48, "Cortex-X2"},   {0x41, 0xd49, "Neoverse-N2"},
    {0x41, 0xd4d, "Cortex-A715"},          {0x41, 0xd4e, "Cortex-X3"},   {0x41, 0xd4f, "Neoverse-V2"},
    {0x41, 0xd80, "Cortex-A520"},          {0x41, 0xd81, "Cortex-A720"}, {0x41, 0xd82, "Cortex-X4"},
    {0x41, 0xd84, "Neoverse-V3"},          {0x41, 0xd8e, "Neoverse-N3"}, {0x46, 0x001, "A64FX"},
    {0x48, 0xd01, "Kunpeng-920"},          {0x4e, 0x004, "Carmel"},      {0x61, 0x022, "Apple M1 (Icestorm)"},
    {0x61, 0x023, "Apple M1 (Firestorm)"}, {0xc0, 0xac3, "Ampere-1"},    {0xc0, 0xac4, "Ampere-1a"},
};

enum { KINDS = 4 }; /* of cores, in one processor */
struct processor_reading {
    char *out;
    size_t n;
    unsigned implementer;
    unsigned long seen[KINDS];
    int kinds;
};

static void reading_add(const struct processor_reading *r, const char *name) {
    size_t used = strlen(r->out);
    snprintf(r->out + used, r->n - used, "%s%s", used ? " + " : "", name);
}

/* Each kind of core is listed once. */
static bool processor_is_new(struct processor_reading *r, unsigned part) {
    unsigned long core = (unsigned long)r->implementer << 16 | part;
    for (int i = 0; i < r->kinds; i++)
        if (r->seen[i] == core) return false;
    if (r->kinds == KINDS) return false;
    r->seen[r->kinds++] = core;
    return true;
}

static void add_core(struct processor_reading *r, unsigned part) {
    char numbers[64];
    if (!processor_is_new(r, part)) return;
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (cores[i].implementer == r->implementer && cores[i].part == part) {
            reading_add(r, cores[i].name);
            return;
        }
    snprintf(numbers, sizeof numbers, "ARM64, implementer 0x%02x, part 0x%03x", r->implementer, part);
    reading_add(r, numbers);
}

/* A line is "name   : value". True: there is nothing more to read. */
static bool read_line(struct processor_reading *r, const char *line) {
    const char *value = strchr(line, ':');
    if (!value) return false;
    value += 1 + strspn(value + 1, " \t");
    if (!strncmp(line, "model name", 10)) {
        snprintf(r->out, r->n, "%.*s", (int)strcspn(value, "\n"), value);
        return true;
    }
    if (!strncmp(line, "CPU implementer", 15)) r->implementer = (unsigned)strtoul(value, NULL, 0);
    if (!strncmp(line, "CPU part", 8)) add_core(r, (unsigned)strtoul(value, NULL, 0));
    return false;
}

const char *processor_name(const char *cpuinfo, const char *machine, char *out, size_t n) {
    struct processor_reading r = {.out = out, .n = n};
    FILE *f = fopen(cpuinfo, "re");
    char line[512];
    *out = '\0';
    while (f && fgets(line, sizeof line, f) && !read_line(&r, line)) {
    }
    if (f) fclose(f);
    if (!*out) snprintf(out, n, "%s", machine);
    return out;
}

const char *processor_here(char *out, size_t n) {
    struct utsname system;
    return processor_name("/proc/cpuinfo", uname(&system) == 0 ? system.machine : "unknown", out, n);
}
