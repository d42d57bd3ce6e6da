/* engine doctor: checks whether this machine has what the engine needs, check by check. */
#include "cli/machine/doctor.h"

#include "engine/base/give_up.h"
#include "engine/base/json.h"
#include "engine/device/device.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const words[] = {
    [DOCTOR_OK] = "ok", [DOCTOR_NONE] = "none", [DOCTOR_WARNING] = "warning", [DOCTOR_MISSING] = "missing"};

/* ---- a check that does not end ---- */

enum { CHECK_SECONDS = 60 };
static char checking[64];

static void doctor_write_text(const char *text) {
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* there is nobody left to tell */
}

static void doctor_too_long(int signal) {
    (void)signal;
    doctor_write_text("error: '");
    doctor_write_text(checking);
    doctor_write_text(
        "' has not ended within 60 s\nhint: the driver or the device hangs; see dmesg and nvidia-smi, and "
        "restart the machine if necessary\n");
    _exit(error_exit_code(ERR_DEVICE));
}

/* ---- findings ---- */

void doctor_begin(struct doctor *d, const char *name) {
    if (d->count == DOCTOR_FINDINGS) d->count--; /* the last one counts */
    struct finding *f = &d->of[d->count];
    *f = (struct finding){.level = DOCTOR_OK};
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(checking, sizeof checking, "%s", name);
    alarm(CHECK_SECONDS);
}

static void doctor_print_finding(const struct finding *f) {
    printf("%-8s %-16s %s\n", words[f->level], f->name, f->text);
    if (*f->hint) printf("%26s%s\n", "", f->hint);
    fflush(stdout);
}

void doctor_say(struct doctor *d, enum doctor_level level, const char *fmt, ...) {
    struct finding *f = &d->of[d->count];
    va_list ap;
    char text[1280];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *hint = strchr(text, '\n');
    if (hint) *hint++ = '\0';
    snprintf(f->text, sizeof f->text, "%.639s", text);
    snprintf(f->hint, sizeof f->hint, "%.639s", hint ? hint : "");
    f->level = level;
    d->count++;
    alarm(0);
    if (!d->json) doctor_print_finding(f);
}

void doctor_error(struct doctor *d, enum doctor_level level) {
    doctor_say(d, level, "%s\n%s", error_message(), error_hint());
}

/* ---- the command ---- */

static enum error doctor_print_json(const struct doctor *d, bool well) {
    struct json j = {0};
    json_open(&j, NULL, '{');
    json_bool(&j, "ok", well);
    json_array(&j, "checks", i, d->count) {
        const struct finding *f = &d->of[i];
        json_open(&j, NULL, '{');
        json_put(&j, JSON_TEXT("name", f->name), JSON_TEXT("state", words[f->level]), JSON_TEXT("text", f->text));
        if (*f->hint) json_string(&j, "hint", f->hint);
        json_close(&j, '}');
    }
    json_close(&j, '}');
    return cli_json(ERR_NONE, &j, stdout);
}

static int doctor_command(const struct cli *cli) {
    struct doctor *d = cli->options;
    int missing = 0, warnings = 0;
    if (d->devices && d->asked) return cli_usage(cli, "--devices shows all kinds of devices");
    if (d->devices) return devices_print(d->json);
    signal(SIGALRM, doctor_too_long);
    doctor_host(d);
    doctor_devices(d);
    for (int i = 0; i < d->count; i++) {
        missing += d->of[i].level == DOCTOR_MISSING;
        warnings += d->of[i].level == DOCTOR_WARNING;
    }
    if (!d->json)
        printf("\n%d checks: %d missing, %d warning%s\n", d->count, missing, warnings, warnings == 1 ? "" : "s");
    else if (doctor_print_json(d, missing == 0) != ERR_NONE)
        return cli_fail(ERR_MEMORY);
    given_up_exit(error_exit_code(ERR_TIMEOUT));
    return missing ? error_exit_code(ERR_DEVICE) : 0;
}

static const char *doctor_kind_name(int i) {
    int n;
    const struct device_ops *const *kinds = device_kinds(&n);
    return i < n ? kinds[i]->name : NULL;
}

static const struct option options[] = {
    {"KIND", NULL, "kind of devices that must work: cuda; without it, GPUs are checked if there are any", CONFIG_STRING,
     offsetof(struct doctor, asked), .word = doctor_kind_name, .wants = "kind of devices", .one = "kind"},
    {"--devices", NULL, "shows the devices of this machine and their hardware, and checks nothing", CONFIG_BOOL,
     offsetof(struct doctor, devices)},
    {"--json", NULL, "instead of the lines", CONFIG_BOOL, offsetof(struct doctor, json)},
    {0}};

const struct command command_doctor = {
    .name = "doctor",
    .also = "env|info|diagnose|gpus|device",
    .summary = "checks whether this machine has what the engine needs; shows its devices",
    .options = options,
    .notes = "ok; none (not present, and not required); warning (works, could be better); missing.\n"
             "Exit code 69 when something is missing, 75 when a GPU hangs.\n",
    .size = sizeof(struct doctor),
    .run = doctor_command,
};
