/* engine check: tries a plug-in on all that the engine's own parts must do. */
#include "lab/check/check.h"
#include "cli/line/end.h"
#include "cli/line/options.h"

#include <stdio.h>

struct check_options {
    const char *file;
    double timeout;
    int64_t sizes;
};
#define OPTIONS_STRUCT struct check_options

static void check_describe(const struct plugin *p) {
    const struct engine_plugin *of = p->of;
    printf("%s: %s\nsha256 %s\n", p->path, of->about ? of->about : "says nothing about itself", p->digest);
    for (int i = 0; i < plugin_parameters(of); i++)
        printf("parameter %s, by default %g: %s\n", of->parameters[i].name, of->parameters[i].standard,
               of->parameters[i].about ? of->parameters[i].about : "");
    if (of->algorithm && !of->algorithm->plan) printf("no plan: its bytes are held to nothing\n");
}

static int check_run(const struct cli *cli) {
    const struct check_options *o = cli->options;
    const struct plugin *p;
    struct check c = {.name = o->file, .out = stdout, .timeout = o->timeout, .sizes = (int)o->sizes};
    enum error err = plugin_open(o->file, PLUGIN_ANY, NULL, &p);
    if (err != ERR_NONE) return cli_end(err);
    c.name = p->path;
    check_describe(p);
    err = check_plugin(&c);
    if (err == ERR_NONE) printf("all %d cases are right\n", c.passed);
    return cli_end(err);
}

static const struct option options[] = {
    {"FILE", NULL, "the shared object", CONFIG_STRING, AT(file), .missing = "which plug-in?", .one = "file"},
    {"--timeout", "SECONDS", "how long a rank may wait, or stay in the plug-in; 2 by default", CONFIG_SECONDS,
     AT(timeout), 0.1, 3600},
    {"--sizes", "N", "groups of 1 to N ranks are tried; 17 by default", CONFIG_INT, AT(sizes), 1, CHECK_SIZES},
    {0}};

const struct command command_check = {
    .name = "check",
    .summary = "tries a plug-in of your own: values, bits, bytes, failures, memory",
    OPTIONS(options),
    .standard = &(const struct check_options){.timeout = 2, .sizes = CHECK_SIZES},
    .notes = "It runs the plug-in's code, each case in a process of its own, whose ranks are threads. Exit code 1: "
             "something is wrong.\n",
    .run = check_run,
};
