/* The interface between the parts of 'engine doctor': findings, one for each check, in the order of the checks. */
#pragma once
#include "cli/line/cli.h"

enum doctor_level {
    DOCTOR_OK,
    DOCTOR_NONE,    /* not present, and not required */
    DOCTOR_WARNING, /* it works, but not as well as it could */
    DOCTOR_MISSING
};
struct finding {
    enum doctor_level level;
    char name[40], text[640], hint[640]; /* hint: what to do, or "" */
};
enum { DOCTOR_FINDINGS = 256 };
struct doctor {
    const char *asked; /* a kind of devices that must work, or NULL */
    bool json;
    bool devices; /* only shows the devices: devices.c */
    int count;
    struct finding of[DOCTOR_FINDINGS];
};
/* Call it before a check: its name is reported if the check does not end. */
void doctor_begin(struct doctor *d, const char *name);
/* The finding of the check that was begun. "text\nhint" */
void doctor_say(struct doctor *d, enum doctor_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with the words of the last error. */
void doctor_error(struct doctor *d, enum doctor_level level);

/* Prints what 'devices:' can name on this machine, or writes it as JSON; gives the exit code. */
int devices_print(bool json);

void doctor_host(struct doctor *d);    /* doctor_host.c: processor, memory, names, network, MPI */
void doctor_devices(struct doctor *d); /* doctor_devices.c: software, GPUs, NCCL */
