/* engine doctor --devices: what 'devices:' can name on this machine, what 'auto' takes of that, and the software beneath. */
#include "cli/machine/doctor.h"

#include "engine/base/json.h"
#include "engine/base/text.h"
#include "engine/settings/places.h"
#include "engine/tell/processor.h"
#include "transport/carrier/carrier.h"

#include <stdio.h>
#include <string.h>

/* The number of an accelerator's units that 'auto' takes, where 'here' are present: the largest power of two. */
static int devices_auto_units(int here) {
    int count = 1;
    while (count * 2 <= here && count * 2 <= RUN_DEVICES_MAX) count *= 2;
    return count;
}

static int devices_units_of(const struct device_ops *kind) {
    int count = 0;
    return kind->units && kind->units(&count) == ERR_NONE ? count : 0;
}

/* The first accelerator that is here, as 'devices: auto' takes it; NULL: none. */
static const struct device_ops *devices_first_accelerator(void) {
    int n;
    const struct device_ops *const *kinds = device_kinds(&n);
    for (int i = 0; i < n; i++)
        if (devices_units_of(kinds[i])) return kinds[i];
    return NULL;
}

/* "cuda:0,1", "cpu:4"; out holds 320 bytes. */
static const char *devices_auto_text(char out[320]) {
    const struct device_ops *kind = devices_first_accelerator();
    int used;
    if (!kind) {
        int cores = device_host_cores();
        snprintf(out, 320, "cpu:%d", cores < RUN_DEVICES_MAX ? cores : RUN_DEVICES_MAX);
        return out;
    }
    used = snprintf(out, 320, "%s", kind->name);
    for (int i = 0; i < devices_auto_units(devices_units_of(kind)); i++)
        used += snprintf(out + used, 320 - (size_t)used, "%c%d", i ? ',' : ':', i);
    return out;
}

/* How unit i gets at unit j's memory. */
static const char *devices_unit_way(const struct device_ops *kind, int i, int j) {
    struct device_unit a, b;
    if (i == j) return "-";
    if (!kind->unit_reaches(i, j)) return "host";
    if (!kind->unit_about(i, &a) || !kind->unit_about(j, &b)) return "?";
    return !strncmp(a.link, "NVLink", 6) && !strncmp(b.link, "NVLink", 6) ? "NVLink" : "PCIe";
}

/* ---- for people ---- */

static void devices_print_units(const struct device_ops *kind, int count) {
    for (int i = 0; i < count; i++) {
        struct device_unit u;
        char all[32], left[32];
        if (!kind->unit_about(i, &u)) continue;
        printf("  %s:%d  %s, %s (%s free), capability %d.%d, %d multiprocessors, %s, %s\n", kind->name, i, u.name,
               text_of_bytes((double)u.memory, all), text_of_bytes((double)u.memory_free, left), u.major, u.minor,
               u.processors, u.bus, u.link);
    }
    if (count < 2) return;
    printf("\n  copies to it    ");
    for (int j = 0; j < count; j++) printf("%s:%-5d", kind->name, j);
    printf(" come from there by\n");
    for (int i = 0; i < count; i++) {
        printf("  %s:%-11d", kind->name, i);
        for (int j = 0; j < count; j++) printf("%-*s", (int)strlen(kind->name) + 6, devices_unit_way(kind, i, j));
        printf("\n");
    }
}

/* The i-th software of the device's kind; then, for accelerators, the carriers' software. false: no more. */
static bool devices_find_software(const struct device_ops *kind, int i, struct device_software *out) {
    int of_kind = 0, n;
    const struct carrier_ops *const *all = carrier_list(&n);
    for (; kind->software && kind->software(of_kind, out); of_kind++)
        if (of_kind == i) return true;
    for (int k = 0; kind->units && k < n; k++) {
        if (!all[k]->software || of_kind++ != i) continue;
        all[k]->software(out);
        return true;
    }
    return false;
}

static void devices_print_software(const struct device_ops *kind) {
    struct device_software s;
    for (int i = 0; devices_find_software(kind, i, &s); i++)
        if (!*s.missing)
            printf("  %-13s %s%s%s\n", s.name, s.version, *s.where ? "  " : "", s.where);
        else
            printf("  %-13s missing: %.*s\n", s.name, (int)strcspn(s.missing, "\n"), s.missing);
}

static void devices_print_kind(const struct device_ops *kind) {
    int count = devices_units_of(kind);
    printf("%-5s %s\n", kind->name, kind->summary);
    if (kind->units && !count) {
        printf("  none: %s\n", error_message());
        if (*error_hint()) printf("  hint: %s\n", error_hint());
        return;
    }
    devices_print_software(kind);
    if (count) devices_print_units(kind, count);
}

static void devices_print_meaning(void) {
    char text[320];
    int cores = device_host_cores();
    const struct device_ops *kind = devices_first_accelerator();
    printf("\n'devices: auto' means %s", devices_auto_text(text));
    if (!kind) {
        printf(" with 1 thread each; 'devices: cpu:N' makes N devices of max(1, %d/N) threads\n", cores);
        return;
    }
    printf(" (mode single: %s:0)\n'devices: %s' is the same; '%s:1,3' takes these two, '%s:0,0' makes two devices of "
           "one GPU; 'cpu:N' computes on processors\n",
           kind->name, kind->name, kind->name, kind->name);
    printf("gradients: mode dp copies from GPU to GPU (comm.backend peer), mode ddp uses NCCL (nccl) or passes through "
           "the host (host)\n");
}

/* ---- for programs ---- */

static void devices_json_unit(struct json *j, const struct device_ops *kind, int i, int count) {
    struct device_unit u;
    if (!kind->unit_about(i, &u)) return;
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("name", u.name), JSON_INT("memory", (int64_t)u.memory),
             JSON_INT("memory_free", (int64_t)u.memory_free), JSON_INT("major", u.major), JSON_INT("minor", u.minor),
             JSON_INT("processors", u.processors), JSON_TEXT("bus", u.bus), JSON_TEXT("link", u.link));
    json_array(j, "copies_from", k, count) json_string(j, NULL, devices_unit_way(kind, i, k));
    json_close(j, '}');
}

static void devices_json_kind(struct json *j, const struct device_ops *kind) {
    struct device_software s;
    int count = devices_units_of(kind);
    json_open(j, NULL, '{');
    json_put(j, JSON_TEXT("name", kind->name), JSON_TEXT("summary", kind->summary),
             JSON_BOOL("here", !kind->units || count > 0));
    if (kind->units && !count) json_string(j, "missing", error_message());
    json_open(j, "software", '[');
    for (int i = 0; devices_find_software(kind, i, &s); i++) {
        json_open(j, NULL, '{');
        json_put(j, JSON_TEXT("name", s.name), JSON_TEXT("version", s.version));
        if (*s.where) json_string(j, "where", s.where);
        if (*s.missing) json_string(j, "missing", s.missing);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_array(j, "units", i, count) devices_json_unit(j, kind, i, count);
    json_close(j, '}');
}

static enum error devices_print_json(void) {
    struct json j = {0};
    char text[320];
    int n;
    const struct device_ops *const *kinds = device_kinds(&n);
    json_open(&j, NULL, '{');
    json_string(&j, "processor", processor_here(text, sizeof text));
    json_int(&j, "cores", device_host_cores());
    json_string(&j, "auto", devices_auto_text(text));
    json_array(&j, "kinds", i, n) devices_json_kind(&j, kinds[i]);
    json_close(&j, '}');
    return cli_json(ERR_NONE, &j, stdout);
}

int devices_print(bool json) {
    int n;
    const struct device_ops *const *kinds = device_kinds(&n);
    if (json) return cli_end(devices_print_json());
    char name[256];
    printf("cores that this process may use: %d of %s\n\n", device_host_cores(), processor_here(name, sizeof name));
    for (int i = 0; i < n; i++) devices_print_kind(kinds[i]);
    devices_print_meaning();
    return 0;
}
