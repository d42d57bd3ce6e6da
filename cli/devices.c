/* engine devices: what 'devices:' can name on this machine, and which rank gets which. */
#include "cli/cli.h"

#include <stdio.h>

extern const struct command command_devices;

static int devices_run(int argc, char **argv) {
    if (argc > 1) return cli_usage(&command_devices, "unknown argument '%s'", argv[1]);
    int n, cores = device_host_cores();
    const struct device_ops *const *kinds = device_kinds(&n);
    printf("cores this process may use: %d\n\n", cores);
    for (int i = 0; i < n; i++) printf("%-5s %s\n", kinds[i]->name, kinds[i]->summary);
    printf("\n'devices: auto' means cpu:%d with 1 thread each; 'devices: cpu:N' makes N devices of "
           "max(1, %d/N) threads\n",
           cores, cores);
    return 0;
}

const struct command command_devices = {
    .name = "devices",
    .arguments = "",
    .summary = "the devices of this machine",
    .help = "",
    .run = devices_run,
};
