/* engine version: which engine this is, and what was built in. */
#include "cli/line/cli.h"

#include "engine/base/version.h"
#include "modes/modes.h"
#include "transport/algo/algo.h"
#include "transport/carrier/carrier.h"

#include <stdio.h>
#include <string.h>

struct version_options {
    bool features;
};
#define OPTIONS_STRUCT struct version_options

static void version_print_features(void) {
    int n;
    const struct device_ops *const *devices = device_kinds(&n);
    for (int i = 0; i < n; i++) printf("device     %-8s %s\n", devices[i]->name, devices[i]->summary);
    const struct mode_row *const *modes = mode_kinds(&n);
    for (int i = 0; i < n; i++) printf("mode       %-8s %s\n", modes[i]->name, modes[i]->summary);
    const struct link_ops *const *links = link_kinds(&n);
    for (int i = 0; i < n; i++) printf("link       %-8s %s\n", links[i]->row->name, links[i]->summary);
    const struct algo_ops *const *algos = algo_list(&n);
    for (int i = 0; i < n; i++) printf("algorithm  %-16s %s\n", algos[i]->name, algos[i]->why);
    const struct carrier_ops *const *carriers = carrier_list(&n);
    for (int i = 0; i < n; i++) printf("carrier    %-8s %s\n", carriers[i]->name, carriers[i]->summary);
    printf("levels     of instructions, of the device cpu: %s\n", ENGINE_WITH_LEVELS);
    printf("toolkits   CUDA and NCCL: %s; MPI: %s; WebP: %s\n", ENGINE_WITH_CUDA,
           !strcmp(ENGINE_FOUND_MPI, "found") ? "built in as a module" : "not in this build", ENGINE_FOUND_WEBP);
    printf("compiler   %s, %s\n", ENGINE_COMPILER, ENGINE_BUILD_TYPE);
}

static int version_command(const struct cli *cli) {
    const struct version_options *o = cli->options;
    const char *commit = version_commit();
    printf("engine %s%s%s%s\n", ENGINE_VERSION, commit ? " (" : "", commit ? commit : "", commit ? ")" : "");
    if (o->features) version_print_features();
    return 0;
}

static const struct option options[] = {
    {"--features", NULL, "devices, modes, links, algorithms, carriers, toolkits", CONFIG_BOOL, AT(features)}, {0}};

const struct command command_version = {
    .name = "version",
    .summary = "prints the version and the built-in features",
    OPTIONS(options),
    .run = version_command,
};
